"""Span attributes with the content of a turn, at each level of ``skills.trace.content``.

The functions inspect attributes of messages instead of their classes, because this layer must not import them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from flink_skills.telemetry.activity import map_strings
from flink_skills.texts import printable


def input_message(message: Any) -> dict[str, Any]:
    """Return a message of a model request."""
    if hasattr(message, "call_id"):
        answer = {"type": "tool_call_response", "id": message.call_id, "response": message.content}
        return {"role": "tool", "parts": [answer]}
    role = "assistant" if hasattr(message, "tool_calls") else "user"
    return {"role": role, "parts": _parts(message.content, getattr(message, "tool_calls", ()))}


def output_message(response: Any) -> dict[str, Any]:
    """Return a model's answer."""
    return {
        "role": "assistant",
        "parts": _parts(response.text, response.tool_calls),
        "finish_reason": finish_reason(response),
    }


def finish_reason(response: Any) -> str:
    """Return the finish reason of the provider. Derive it from the answer if the provider returned none."""
    return str(response.finish_reason or ("tool_call" if response.tool_calls else "stop"))


def _parts(text: str, calls: Any) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"type": "text", "content": text}] if text else []
    for call in calls:
        parts.append({"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments})
    return parts


#: Maximum number of characters of a name, which a model may have written.
_MAX_NAME_LENGTH = 128
#: Maximum number of characters of one string, and of an attribute. Spans are buffered in memory, and collectors limit
#: the size of requests.
_MAX_TEXT_LENGTH = 32_768
_MAX_ATTRIBUTE_LENGTH = 65_536
_MAX_NAMES = 64


def plain(text: str, max_length: int = _MAX_NAME_LENGTH) -> str:
    """Return ``text`` truncated, and without characters that are not printable."""
    return printable(text[:max_length])


class Content:
    """Builder of the attributes that depend on ``skills.trace.content``.

    ``redact`` removes secrets from a string. It is applied to every string, even before a digest.
    """

    def __init__(self, level: str = "none", redact: Callable[[str], str] | None = None) -> None:
        self.metadata = level in ("metadata", "full")
        self.full = level == "full"
        self.redact = redact or (lambda text: text)

    def text(self, text: str) -> str:
        """Return ``text`` redacted and encodable in UTF-8. The middle of a long text is omitted."""
        redacted = self.redact(text)
        if len(redacted) > _MAX_TEXT_LENGTH:
            omitted = len(redacted) - _MAX_TEXT_LENGTH
            half = _MAX_TEXT_LENGTH // 2
            redacted = f"{redacted[:half]}\n[{omitted} characters omitted]\n{redacted[-half:]}"
        return redacted.encode("utf-8", "replace").decode()

    def digest(self, text: str) -> str:
        """Return the first 16 digits of the SHA-256 of the redacted ``text``."""
        return hashlib.sha256(self.redact(text).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def json(self, value: Any) -> str:
        """Return ``value`` as JSON, with :meth:`text` applied to each string.

        If the JSON is too long, return it truncated, as one JSON string.
        """
        dumped = json.dumps(map_strings(value, self.text), ensure_ascii=False, default=str)
        return dumped if len(dumped) <= _MAX_ATTRIBUTE_LENGTH else json.dumps(self.text(dumped), ensure_ascii=False)

    def request(self, request: Any) -> dict[str, Any]:
        """Return the attributes of a model request."""
        sizes = [len(message.content) for message in request.messages]
        attributes: dict[str, Any] = {
            "flink_skills.request.messages": len(sizes),
            "flink_skills.request.size": len(request.system) + sum(sizes),
            "flink_skills.request.tools": len(request.tools),
        }
        if self.metadata:
            attributes["flink_skills.request.system.digest"] = self.digest(request.system)
            if request.messages:
                attributes["flink_skills.request.last_message.digest"] = self.digest(request.messages[-1].content)
            attributes["flink_skills.request.tool.names"] = _names(tool.name for tool in request.tools)
        if self.full:
            if request.system:
                attributes["gen_ai.system_instructions"] = self.json([{"type": "text", "content": request.system}])
            messages, omitted = self._newest([input_message(message) for message in request.messages])
            attributes["gen_ai.input.messages"] = f"[{', '.join(messages)}]"
            if omitted:
                attributes["flink_skills.request.messages_left_out"] = omitted
        return attributes

    def _newest(self, messages: Sequence[Mapping[str, Any]]) -> tuple[list[str], int]:
        """Return as many of the last messages as fit, as JSON, and the number of omitted messages."""
        newest: list[str] = []
        space = _MAX_ATTRIBUTE_LENGTH
        for message in reversed(messages):
            text = self.json(message)
            space -= len(text)
            if space < 0 and newest:
                break
            newest.insert(0, text)
        return newest, len(messages) - len(newest)

    def response(self, response: Any) -> dict[str, Any]:
        """Return the attributes of a model's answer."""
        attributes: dict[str, Any] = {
            "flink_skills.response.size": len(response.text),
            "flink_skills.response.tool_calls": len(response.tool_calls),
        }
        if self.metadata:
            attributes["flink_skills.response.digest"] = self.digest(response.text)
        if self.full:
            attributes["gen_ai.output.messages"] = self.json([output_message(response)])
        return attributes

    def arguments(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        """Return the attributes of a tool's arguments: an object, or the string that a model wrote instead."""
        name, full_name = "flink_skills.tool.arguments", "gen_ai.tool.call.arguments"
        attributes = self._measured(name, _arguments_text(arguments), full_name, lambda: self.json(arguments))
        if self.metadata and not isinstance(arguments, str):
            attributes[f"{name}.names"] = _names(str(name) for name in arguments)
        return attributes

    def requested_arguments(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        """Return the attributes for the arguments that a model wrote, if the call ran with others."""
        name = "flink_skills.tool.requested_arguments"
        return self._measured(name, _arguments_text(arguments), name, lambda: self.json(arguments))

    def result(self, content: str) -> dict[str, Any]:
        """Return the attributes of a tool's result."""
        name = "flink_skills.tool.result"
        return self._measured(name, content, "gen_ai.tool.call.result", lambda: self.text(content))

    def command(self, command: str | Sequence[str]) -> dict[str, Any]:
        """Return the attributes of a command line."""
        line = command if isinstance(command, str) else " ".join(command)
        return self._measured("flink_skills.command", line, "process.command_line", lambda: self.text(line))

    def _measured(self, name: str, text: str, full_name: str, full: Callable[[], str]) -> dict[str, Any]:
        """Return the size, digest and content of ``text``, depending on the level."""
        attributes: dict[str, Any] = {f"{name}.size": len(text)}
        if self.metadata:
            attributes[f"{name}.digest"] = self.digest(text)
        if self.full:
            attributes[full_name] = full()
        return attributes

    def output(self, stdout: bytes, stderr: bytes) -> dict[str, Any]:
        """Return the attributes of a command's output."""
        attributes: dict[str, Any] = {"flink_skills.command.stdout.size": len(stdout)}
        attributes["flink_skills.command.stderr.size"] = len(stderr)
        if self.full:
            attributes["flink_skills.command.stdout"] = self.text(stdout.decode("utf-8", "replace"))
            attributes["flink_skills.command.stderr"] = self.text(stderr.decode("utf-8", "replace"))
        return attributes


def _names(names: Iterable[str]) -> list[str]:
    return [plain(name) for name in names][:_MAX_NAMES]


def _arguments_text(arguments: Mapping[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, sort_keys=True, default=str)
