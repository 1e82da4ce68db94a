"""What spans hold of texts: nothing, what they are like, or the texts themselves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from flink_skills.telemetry.tracing.messages import input_message, output_message

__all__ = ["Content", "plain"]

#: A name, which a model may have written.
_LONGEST_NAME = 128
#: One text, and all texts of one attribute, in characters: spans wait in memory, and collectors limit their requests.
_LONGEST_TEXT = 32_768
_MOST_TEXT = 65_536
_MOST_NAMES = 64


def plain(text: str, longest: int = _LONGEST_NAME) -> str:
    """``text`` as an attribute may have it: valid UTF-8 without control characters, cut to ``longest`` characters."""
    cut = text[:longest]
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in cut)
    return cut


class Content:
    """Makes the attributes that depend on ``skills.trace.content``.

    ``hides`` takes secrets out of a text; nothing leaves, not even a digest, that has not been through it.
    """

    def __init__(self, level: str = "none", hides: Callable[[str], str] | None = None) -> None:
        self.metadata = level in ("metadata", "full")
        self.full = level == "full"
        self.hidden = hides or (lambda text: text)

    def text(self, text: str) -> str:
        """``text`` without secrets, as it may be sent; the middle of a long one is left out."""
        shown = self.hidden(text)
        if len(shown) > _LONGEST_TEXT:
            left_out = len(shown) - _LONGEST_TEXT
            half = _LONGEST_TEXT // 2
            shown = f"{shown[:half]}\n[{left_out} characters left out]\n{shown[-half:]}"
        return shown.encode("utf-8", "replace").decode()

    def digest(self, text: str) -> str:
        return hashlib.sha256(self.hidden(text).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def json(self, value: Any) -> str:
        """``value`` as JSON, each text in it as :meth:`text` makes it; as a text of its own where that is too long."""
        shown = json.dumps(self._shown(value), ensure_ascii=False, default=str)
        return shown if len(shown) <= _MOST_TEXT else json.dumps(self.text(shown), ensure_ascii=False)

    def _shown(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(name)): self._shown(item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._shown(item) for item in value]
        return value

    def request(self, request: Any) -> dict[str, Any]:
        """Attributes of what a model was asked."""
        sizes = [len(message.content) for message in request.messages]
        found: dict[str, Any] = {
            "flink_skills.request.messages": len(sizes),
            "flink_skills.request.size": len(request.system) + sum(sizes),
            "flink_skills.request.tools": len(request.tools),
        }
        if self.metadata:
            found["flink_skills.request.system.digest"] = self.digest(request.system)
            if request.messages:
                found["flink_skills.request.last_message.digest"] = self.digest(request.messages[-1].content)
            found["flink_skills.request.tool.names"] = _names(tool.name for tool in request.tools)
        if self.full:
            if request.system:
                found["gen_ai.system_instructions"] = self.json([{"type": "text", "content": request.system}])
            shown, left_out = self._newest([input_message(message) for message in request.messages])
            found["gen_ai.input.messages"] = f"[{', '.join(shown)}]"
            if left_out:
                found["flink_skills.request.messages_left_out"] = left_out
        return found

    def _newest(self, messages: Sequence[Mapping[str, Any]]) -> tuple[list[str], int]:
        """The last messages as JSON, as many as there is space for, and the number of the others."""
        shown: list[str] = []
        space = _MOST_TEXT
        for message in reversed(messages):
            text = self.json(message)
            space -= len(text)
            if space < 0 and shown:
                break
            shown.insert(0, text)
        return shown, len(messages) - len(shown)

    def response(self, response: Any) -> dict[str, Any]:
        """Attributes of what a model answered."""
        found: dict[str, Any] = {
            "flink_skills.response.size": len(response.text),
            "flink_skills.response.tool_calls": len(response.tool_calls),
        }
        if self.metadata:
            found["flink_skills.response.digest"] = self.digest(response.text)
        if self.full:
            found["gen_ai.output.messages"] = self.json([output_message(response)])
        return found

    def arguments(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        """Attributes of what a tool was called with: an object, or what a model wrote in place of one."""
        written = arguments if isinstance(arguments, str) else json.dumps(arguments, sort_keys=True, default=str)
        found: dict[str, Any] = {"flink_skills.tool.arguments.size": len(written)}
        if self.metadata:
            found["flink_skills.tool.arguments.digest"] = self.digest(written)
            if not isinstance(arguments, str):
                found["flink_skills.tool.arguments.names"] = _names(str(name) for name in arguments)
        if self.full:
            found["gen_ai.tool.call.arguments"] = self.json(arguments)
        return found

    def result(self, content: str) -> dict[str, Any]:
        """Attributes of what a tool answered."""
        found: dict[str, Any] = {"flink_skills.tool.result.size": len(content)}
        if self.metadata:
            found["flink_skills.tool.result.digest"] = self.digest(content)
        if self.full:
            found["gen_ai.tool.call.result"] = self.text(content)
        return found

    def command(self, command: str | Sequence[str]) -> dict[str, Any]:
        """Attributes of a command line."""
        line = command if isinstance(command, str) else " ".join(command)
        found: dict[str, Any] = {"flink_skills.command.size": len(line)}
        if self.metadata:
            found["flink_skills.command.digest"] = self.digest(line)
        if self.full:
            found["process.command_line"] = self.text(line)
        return found

    def output(self, stdout: bytes, stderr: bytes) -> dict[str, Any]:
        """Attributes of what a command wrote, in bytes."""
        found: dict[str, Any] = {"flink_skills.command.stdout.size": len(stdout)}
        found["flink_skills.command.stderr.size"] = len(stderr)
        if self.full:
            found["flink_skills.command.stdout"] = self.text(stdout.decode("utf-8", "replace"))
            found["flink_skills.command.stderr"] = self.text(stderr.decode("utf-8", "replace"))
        return found


def _names(names: Iterable[str]) -> list[str]:
    return [plain(name) for name in names][:_MOST_NAMES]
