"""What events say beyond their columns, at each level of ``skills.events.content``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic_core import to_json

from flink_skills.telemetry.activity import Activity

__all__ = ["LONGEST_NAME", "LONGEST_TEXT", "MOST_NAMES", "EventDetail", "Hides"]

#: Characters of a text that an event keeps at content ``full``; the rest is counted.
LONGEST_TEXT = 8192
#: Characters that an event keeps of a name or a path: models write names as long as they like, and a sink such as Kafka
#: refuses records that are too large.
LONGEST_NAME = 512
#: Names of called tools or of arguments that an event keeps; the rest is counted.
MOST_NAMES = 64

#: Takes out of a text what nobody may see.
Hides = Callable[[str], str]


def _json(value: Any) -> str:
    return to_json(value, fallback=str, inf_nan_mode="strings").decode()


class EventDetail:
    """Makes the field ``detail`` of events, and every other text in them that is not the job's own.

    ``content`` is that of ``skills.events.content``: ``none`` keeps names, sizes and outcomes, ``metadata`` also the
    names of arguments and the sha256 of texts, ``full`` the texts, up to :data:`LONGEST_TEXT` characters of each.
    ``hides`` goes over every text first, whatever becomes of it. At each level names are cut at :data:`LONGEST_NAME`.
    """

    def __init__(self, content: str, hides: Hides | None) -> None:
        self._hides = hides
        self._digests = content != "none"
        self._texts = content == "full"
        self._of = {
            "turn": self._turn,
            "chat": self._chat,
            "tool": self._tool,
            "command": self._command,
            "agent": self._agent,
        }

    def of(self, activity: Activity) -> str | None:
        """The detail of an activity that has ended."""
        make = self._of.get(activity.kind)
        found = make(activity.attributes) if make is not None else None
        return _json(found) if found else None

    def of_fields(self, fields: Mapping[str, Any]) -> str | None:
        """The detail that holds ``fields``, without those that are empty."""
        found = {name: self._cut_in(value) for name, value in fields.items() if value or value == 0}
        return _json(found) if found else None

    def of_piece(self, fields: Mapping[str, Any]) -> str | None:
        """The detail of a piece of an answer, whose text is already without what is hidden."""
        found = {name: self.shown(value) if name == "model_call_id" else value for name, value in fields.items()}
        return _json(found) if found else None

    def of_retry(self, attributes: Mapping[str, Any]) -> str | None:
        """The detail of a request that is made again: what the provider said is its text, not ours."""
        fields = {"try": attributes["attempt"], "pause_ms": round(attributes["pause"] * 1000)}
        return self.of_fields({**fields, "message": self._cut(attributes["error"]) if self._texts else ""})

    def of_fallback(self, attributes: Mapping[str, Any]) -> str | None:
        """Return the detail of a request that goes to a fallback. The error of the provider is content."""
        message = self._cut(attributes["error"]) if self._texts else ""
        return self.of_fields({"to": attributes["to"], "message": message})

    def shown(self, name: str) -> str:
        """A name or a path as an event has it: without what is hidden, and not too long."""
        name = self.whole(name)
        return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"

    def whole(self, text: str) -> str:
        """``text`` without what is hidden, as text that can be written in any encoding of Unicode."""
        if self._hides is not None:
            text = self._hides(text)
        return text if text.isascii() else text.encode("utf-8", "replace").decode()

    def _whole(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.whole(value)
        if isinstance(value, Mapping):
            return {self.whole(str(name)): self._whole(item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._whole(item) for item in value]
        return value

    def _cut_in(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._cut(value)
        if isinstance(value, Mapping):
            return {self.shown(str(name)): self._cut_in(item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._cut_in(item) for item in value]
        return value

    def _names(self, names: Iterable[str]) -> list[str]:
        found = list(names)
        rest = len(found) - MOST_NAMES
        return [*map(self.shown, found[:MOST_NAMES]), *([f"… ({rest} more)"] if rest > 0 else [])]

    def _cut(self, text: str) -> str:
        text = self.whole(text)
        left_out = len(text) - LONGEST_TEXT
        return text if left_out <= 0 else f"{text[:LONGEST_TEXT]}… ({left_out} more characters)"

    def _sha256(self, text: str) -> str:
        return hashlib.sha256(self.whole(text).encode()).hexdigest()

    def _text(self, found: dict[str, Any], name: str, text: str) -> None:
        """Note a text by its digest, or as a whole, where that is wanted."""
        if self._digests:
            found[f"{name}_sha256"] = self._sha256(text)
            if self._texts:
                found[name] = self._cut(text)

    def _turn(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in ("steps", "replayed", "outputs"):
            if attributes.get(name):
                found[name] = attributes[name]
        if attributes.get("skills"):
            found["skills"] = self._names(attributes["skills"])
        if self._texts and attributes.get("message"):
            found["message"] = self._cut(attributes["message"])
        return found

    def _agent(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        return {"skills": self._names(attributes["skills"])} if attributes.get("skills") else {}

    def _chat(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        request, response = attributes["request"], attributes.get("response")
        found: dict[str, Any] = {"messages": len(request.messages)}
        if "fallback_of" in attributes:
            found["fallback_of"] = attributes["fallback_of"]
        if attributes.get("skills"):
            found["skills"] = self._names(attributes["skills"])
        if self._digests:
            self._text(found, "system", request.system)
            self._text(found, "prompt", _new_text(request.messages))
        if response is not None:
            if response.finish_reason:
                found["finish_reason"] = self.shown(response.finish_reason)
            if response.tool_calls:
                found["tool_calls"] = self._names(call.name for call in response.tool_calls)
            if self._digests:
                self._text(found, "response", response.text)
        return found

    def _tool(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self._digests:
            arguments = attributes.get("arguments")
            if isinstance(arguments, Mapping):
                found["argument_names"] = self._names(map(str, arguments))
            self._text(found, "arguments", self._argument_text(arguments))
            self._text(found, "result", str(attributes.get("content") or ""))
        return found

    def _argument_text(self, arguments: Any) -> str:
        if isinstance(arguments, str):
            return arguments
        # Hidden before it is JSON too: a value with quotes in it is written differently there.
        return _json(self._whole(arguments))

    def _command(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        result = attributes.get("result")
        found: dict[str, Any] = {"interactive": True} if attributes.get("interactive") else {}
        if result is not None:
            found["cpu_ms"] = round(result.cpu_time * 1000)
            found["memory"] = result.memory
            if result.signal is not None:
                found["signal"] = result.signal
            if result.timed_out:
                found["timed_out"] = True
        if self._digests:
            self._text(found, "command", _command_text(attributes["command"]))
            if result is not None:
                self._text(found, "stdout", result.stdout.decode("utf-8", "replace"))
                self._text(found, "stderr", result.stderr.decode("utf-8", "replace"))
        return found


def _command_text(command: str | Sequence[str]) -> str:
    return command if isinstance(command, str) else " ".join(command)


def _new_text(messages: Sequence[Any]) -> str:
    """What is new in a request since the model spoke last: all of it once in an audit trail, nothing twice."""
    new: list[str] = []
    for message in reversed(messages):
        if hasattr(message, "tool_calls"):
            break
        new.append(message.content)
    return "\n\n".join(reversed(new))
