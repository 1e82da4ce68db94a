"""Text of events: the column ``detail`` at each level of ``skills.events.content``, and joined deltas of answers."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from flink_skills.telemetry.activity import (
    Activity,
    Delta,
    TextDelta,
    ToolCallDelta,
    map_strings,
    replace_surrogates,
)

#: Maximum number of characters of content in an event at content ``full``. An event states how many it omits.
MAX_TEXT_LENGTH = 8192
#: Maximum number of characters of a name or path in an event. Models can write names of any length, and a sink such as
#: Kafka rejects large records.
MAX_NAME_LENGTH = 512
#: Maximum number of names of called tools or arguments in an event. An event states how many it omits.
MAX_NAMES = 64

#: Removes secrets from a string.
Redact = Callable[[str], str]


def _json(value: Any) -> str:
    return to_json(value, fallback=str, inf_nan_mode="strings").decode()


class EventDetail:
    """Builder of the column ``detail``, and of every other string in an event that the job does not define itself.

    Args:
        content: Level of ``skills.events.content``. ``none`` includes names, sizes and outcomes. ``metadata`` adds the
            names of arguments and the SHA-256 of each string. ``full`` adds the first :data:`MAX_TEXT_LENGTH`
            characters of each string. At each level names are truncated to :data:`MAX_NAME_LENGTH`.
        redact: Removes secrets. It is applied to every string first.
    """

    def __init__(self, content: str, redact: Redact | None) -> None:
        self._redact = redact
        self._with_digests = content != "none"
        self._with_text = content == "full"
        self._builders = {
            "turn": self._turn,
            "chat": self._chat,
            "tool": self._tool,
            "command": self._command,
            "agent": self._agent,
        }

    def for_activity(self, activity: Activity) -> str | None:
        """Return the detail of an activity that has ended. Return None if it is empty."""
        build = self._builders.get(activity.kind)
        fields = build(activity.attributes) if build is not None else None
        return _json(fields) if fields else None

    def for_fields(self, fields: Mapping[str, Any]) -> str | None:
        """Return a detail with the non-empty ``fields``. Return None if all are empty."""
        present = {
            name: map_strings(value, self._truncate, self.clean_name)
            for name, value in fields.items()
            if value or value == 0
        }
        return _json(present) if present else None

    def for_delta(self, fields: Mapping[str, Any]) -> str | None:
        """Return the detail of a delta, whose text is already redacted. Return None if it is empty."""
        cleaned = {name: self.clean_name(value) if name == "model_call_id" else value for name, value in fields.items()}
        return _json(cleaned) if cleaned else None

    def for_model_error(self, fields: Mapping[str, Any], error: str) -> str | None:
        """Return a detail with ``fields`` and the provider's error message, which is content."""
        return self.for_fields({**fields, "message": self._truncate(error) if self._with_text else ""})

    def for_wait(self, attributes: Mapping[str, Any]) -> str | None:
        """Return the detail of a wait. The answer is content."""
        fields = {"wait_id": attributes["wait_id"], "wait_kind": attributes["wait_kind"], "by": attributes.get("by")}
        if attributes.get("answer") is not None:
            self._add_text(fields, "answer", _json(map_strings(attributes["answer"], self.clean)))
        return self.for_fields(fields)

    def clean_name(self, name: str) -> str:
        """Return a redacted and truncated name or path."""
        name = self.clean(name)
        return name if len(name) <= MAX_NAME_LENGTH else f"{name[: MAX_NAME_LENGTH - 1]}…"

    def clean(self, text: str) -> str:
        """Return ``text`` redacted and encodable in every Unicode encoding."""
        if self._redact is not None:
            text = self._redact(text)
        return text if text.isascii() else text.encode("utf-8", "replace").decode()

    def _names(self, names: Iterable[str]) -> list[str]:
        listed = list(names)
        omitted = len(listed) - MAX_NAMES
        return [*map(self.clean_name, listed[:MAX_NAMES]), *([f"… ({omitted} more)"] if omitted > 0 else [])]

    def _truncate(self, text: str) -> str:
        text = self.clean(text)
        omitted = len(text) - MAX_TEXT_LENGTH
        return text if omitted <= 0 else f"{text[:MAX_TEXT_LENGTH]}… ({omitted} more characters)"

    def _sha256(self, text: str) -> str:
        return hashlib.sha256(self.clean(text).encode()).hexdigest()

    def _add_text(self, fields: dict[str, Any], name: str, text: str) -> None:
        """Add the digest of a text and the text itself, depending on the content level."""
        if self._with_digests:
            fields[f"{name}_sha256"] = self._sha256(text)
            if self._with_text:
                fields[name] = self._truncate(text)

    def _turn(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for name in ("steps", "replayed", "outputs"):
            if attributes.get(name):
                fields[name] = attributes[name]
        if attributes.get("skills"):
            fields["skills"] = self._names(attributes["skills"])
        if self._with_text and attributes.get("message"):
            fields["message"] = self._truncate(attributes["message"])
        return fields

    def _agent(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        return {"skills": self._names(attributes["skills"])} if attributes.get("skills") else {}

    def _chat(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        request, response = attributes["request"], attributes.get("response")
        fields: dict[str, Any] = {"messages": len(request.messages)}
        if "fallback_of" in attributes:
            fields["fallback_of"] = attributes["fallback_of"]
        if attributes.get("skills"):
            fields["skills"] = self._names(attributes["skills"])
        if self._with_digests:
            self._add_text(fields, "system", request.system)
            self._add_text(fields, "prompt", _new_text(request.messages))
        if response is not None:
            if response.finish_reason:
                fields["finish_reason"] = self.clean_name(response.finish_reason)
            if response.tool_calls:
                fields["tool_calls"] = self._names(call.name for call in response.tool_calls)
            if self._with_digests:
                self._add_text(fields, "response", response.text)
        return fields

    def _tool(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        fields: dict[str, Any] = {"times": attributes["times"]} if "times" in attributes else {}
        if self._with_digests:
            arguments = attributes.get("arguments")
            if isinstance(arguments, Mapping):
                fields["argument_names"] = self._names(map(str, arguments))
            self._add_text(fields, "arguments", self._argument_text(arguments))
            if "requested_arguments" in attributes:
                self._add_text(fields, "requested_arguments", self._argument_text(attributes["requested_arguments"]))
            self._add_text(fields, "result", str(attributes.get("content") or ""))
        return fields

    def _argument_text(self, arguments: Any) -> str:
        if isinstance(arguments, str):
            return arguments
        # Redact before the conversion to JSON, which escapes the quotes in a secret.
        return _json(map_strings(arguments, self.clean))

    def _command(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        result = attributes.get("result")
        fields: dict[str, Any] = {"interactive": True} if attributes.get("interactive") else {}
        if result is not None:
            fields["cpu_ms"] = round(result.cpu_time * 1000)
            fields["memory"] = result.memory
            if result.signal is not None:
                fields["signal"] = result.signal
            if result.timed_out:
                fields["timed_out"] = True
        if self._with_digests:
            self._add_text(fields, "command", _command_text(attributes["command"]))
            if result is not None:
                self._add_text(fields, "stdout", result.stdout.decode("utf-8", "replace"))
                self._add_text(fields, "stderr", result.stderr.decode("utf-8", "replace"))
        return fields


def _command_text(command: str | Sequence[str]) -> str:
    return command if isinstance(command, str) else " ".join(command)


def _new_text(messages: Sequence[Any]) -> str:
    """Return the messages after the model's last answer, so that an audit trail contains each message one time."""
    new: list[str] = []
    for message in reversed(messages):
        if hasattr(message, "tool_calls"):
            break
        new.append(message.content)
    return "\n\n".join(reversed(new))


#: Returns how many characters at the end of a string may be the start of a secret.
SecretPrefixLength = Callable[[str], int]


@dataclass(frozen=True)
class EventDelta:
    """Content of one ``delta`` event.

    Attributes:
        action: ``text`` or ``arguments`` for content. ``withdrawn`` if the earlier deltas are invalid, ``restarted``
            if the answer is also requested again.
        size: Number of characters.
        tool: Name of the called tool.
        detail: Fields of the column ``detail``.
    """

    action: str
    size: int = 0
    tool: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class _Stream:
    """Text of an answer, or arguments of one of its calls, that is not sent yet."""

    pending: str = ""
    tool: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


class DeltaBuffer:
    """Buffer of the deltas of one answer. Use it only on the event loop.

    It sends the deltas ``interval`` seconds after the first one that waits, and at the latest when the answer is
    complete. A suffix that may be the start of a secret waits for the next delta.

    Args:
        activity: The ``chat`` activity.
        interval: Seconds for which deltas are joined. 0 sends each delta immediately.
        redact: Removes secrets from a string.
        secret_prefix_length: Returns how many characters at the end of a string may be the start of a secret.
        send: Receives the joined deltas.
    """

    def __init__(
        self,
        activity: Activity,
        interval: float,
        redact: Redact,
        secret_prefix_length: SecretPrefixLength,
        send: Callable[[Activity, EventDelta], None],
    ) -> None:
        self._activity = activity
        self._interval = interval
        self._redact = redact
        self._secret_prefix_length = secret_prefix_length
        self._send = send
        self._streams: dict[int, _Stream] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._has_sent = False

    def add(self, delta: Delta) -> None:
        """Add the next delta."""
        if isinstance(delta, TextDelta):
            self._streams.setdefault(-1, _Stream()).pending += delta.text
        elif isinstance(delta, ToolCallDelta):
            stream = self._streams.get(delta.index)
            if stream is None:
                detail = {"index": delta.index, "model_call_id": delta.call_id, "streaming": delta.is_streaming}
                stream = self._streams[delta.index] = _Stream(tool=delta.name, detail=detail)
            stream.pending += delta.arguments
        else:
            self._discard(delta.restarted)
            return
        if not self._interval:
            self._flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._flush)

    def end(self) -> None:
        """Send the remaining text of a complete answer, or discard the deltas of a failed one."""
        if self._activity.error:
            self._discard(False)
        else:
            self._flush(is_complete=True)
        self._stop()

    def _discard(self, restarted: bool) -> None:
        self._stop()
        self._streams.clear()
        if self._has_sent or restarted:
            self._has_sent = False
            self._send(self._activity, EventDelta("restarted" if restarted else "withdrawn"))

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _flush(self, *, is_complete: bool = False) -> None:
        self._stop()
        for index, stream in self._streams.items():
            end = len(stream.pending) if is_complete else self._split_position(stream.pending)
            text, stream.pending = self._redact(replace_surrogates(stream.pending[:end])), stream.pending[end:]
            for start in range(0, len(text), MAX_TEXT_LENGTH):
                chunk = text[start : start + MAX_TEXT_LENGTH]
                action = "text" if index < 0 else "arguments"
                self._has_sent = True
                detail = {**stream.detail, action: chunk}
                self._send(self._activity, EventDelta(action, len(chunk), stream.tool, detail))

    def _split_position(self, text: str) -> int:
        """Return the last position at which ``text`` can be split without splitting a secret or a character."""
        position = len(text) - self._secret_prefix_length(text)
        if position == len(text):
            # Keep the first half of a surrogate pair: JSON can contain a character as two escapes.
            return position - 1 if text and "\ud800" <= text[-1] <= "\udbff" else position
        redacted = self._redact(text)
        # Search for an earlier position if one secret overlaps the start of another.
        while position > 0 and self._redact(text[:position]) + self._redact(text[position:]) != redacted:
            position -= 1
        return position
