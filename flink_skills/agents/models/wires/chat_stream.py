"""Streamed chat completions."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from flink_skills.agents.models.endings import AnswerEnd, end_of
from flink_skills.agents.models.wires.json_bytes import object_of
from flink_skills.agents.models.wires.wire import NoCompletionError, StreamReader
from flink_skills.agents.state.messages import ModelResponse
from flink_skills.telemetry import OnDelta, TextDelta, ToolCallDelta

__all__ = ["ChatStreamReader", "reason_of"]


class ChatStreamReader(StreamReader):
    """Puts the chunks of a chat completion together. ``answer`` makes the response of the whole message."""

    def __init__(self, answer: Callable[..., ModelResponse]) -> None:
        self._answer = answer
        self._message: dict[str, Any] = {}
        self._texts: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._arguments: dict[int, list[str]] = {}
        self._reason: str | None = None
        self._usage: Mapping[str, Any] = {}
        self._id: Any = None

    def event(self, data: Mapping[str, Any], on_delta: OnDelta) -> None:
        choices = data.get("choices")
        if not isinstance(choices, list):
            raise NoCompletionError("an event of its stream has no choices")
        self._id = self._id or data.get("id")
        if isinstance(data.get("usage"), dict):
            self._usage = data["usage"]
        if not choices:
            return
        choice = object_of(choices[0])
        self._reason = reason_of(choice) or self._reason
        for name, value in object_of(choice.get("delta")).items():
            if name in ("content", "refusal") and isinstance(value, str):
                if value:
                    self._texts.append(value)
                    on_delta(TextDelta(value))
            elif name == "tool_calls":
                for position, call in enumerate(value or ()):
                    self._call(object_of(call), position, on_delta)
            elif name != "role" and value:
                _extend(self._message, name, value)

    def response(self) -> ModelResponse | None:
        if self._reason is None:
            return None
        message = {**self._message, "content": "".join(self._texts)}
        calls = []
        for index in sorted(self._calls):
            call = self._calls[index]
            function = {**call["function"], "arguments": "".join(self._arguments[index])}
            calls.append({**call, "function": function})
        return self._answer(message, calls, reason=self._reason, usage=self._usage, id_=self._id)

    def _call(self, delta: Mapping[str, Any], position: int, on_delta: OnDelta) -> None:
        index = delta.get("index")
        if not isinstance(index, int):
            # Some servers send each call whole, and number none of them.
            index = len(self._calls) if delta.get("id") or position else max(self._calls, default=0)
        call = self._calls.get(index)
        if call is None:
            id_ = delta.get("id") or f"call-{self._id or uuid.uuid4().hex}-{index}"
            call = self._calls[index] = {"id": id_, "type": "function", "function": {"name": ""}}
            self._arguments[index] = []
        function = object_of(delta.get("function"))
        # Some servers repeat the name with each piece.
        call["function"]["name"] = call["function"]["name"] or function.get("name") or ""
        for name, value in delta.items():
            if name not in ("id", "type", "index", "function") and value:
                call[name] = value
        arguments = function.get("arguments")
        written = arguments if isinstance(arguments, str) else ""
        self._arguments[index].append(written)
        on_delta(ToolCallDelta(call["id"], call["function"]["name"], written, sorted(self._calls).index(index)))


def _extend(message: dict[str, Any], name: str, value: Any) -> None:
    """Add a piece of a field. Append texts and lists, and replace anything else."""
    before = message.get(name)
    if isinstance(before, str) and isinstance(value, str):
        value = before + value
    if isinstance(before, list) and isinstance(value, list):
        value = [*before, *value]
    message[name] = value


def reason_of(choice: Mapping[str, Any]) -> str | None:
    """Return the reason why a choice ended, with what a router and the filters of Azure add to it. None if it has none.

    >>> reason_of({"finish_reason": "content_filter", "content_filter_results": {"hate": {"filtered": True}}})
    'content_filter: hate'
    """
    reason = choice.get("finish_reason")
    if not reason:
        return None
    native = str(choice.get("native_finish_reason") or "")
    found = [str(reason), *([native] if end_of(native) is not AnswerEnd.COMPLETE and native != reason else [])]
    filters = object_of(choice.get("content_filter_results"))
    return ": ".join([*found, *(name for name, of in filters.items() if object_of(of).get("filtered") is True)])
