"""Streamed responses of OpenAI."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flink_skills.agents.models.wires.json_bytes import object_of
from flink_skills.agents.models.wires.wire import NoCompletionError, StreamReader
from flink_skills.agents.state.messages import ModelResponse
from flink_skills.telemetry import OnDelta, TextDelta, ToolCallDelta

__all__ = ["ResponsesStreamReader"]

_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_TEXTS = frozenset({"response.output_text.delta", "response.refusal.delta"})


class ResponsesStreamReader(StreamReader):
    """Puts the events of a response together.

    ``answer`` makes the response of the last event, and ``text_of`` is the text of an item.
    """

    def __init__(
        self, answer: Callable[[Mapping[str, Any]], ModelResponse], text_of: Callable[[Mapping[str, Any]], str]
    ) -> None:
        self._answer = answer
        self._text_of = text_of
        self._items: dict[int, Mapping[str, Any]] = {}
        #: Id, name and number of each call, by the index of its item.
        self._calls: dict[int, tuple[str, str, int]] = {}
        #: The items of which pieces were passed on.
        self._told: set[int] = set()
        self._response: ModelResponse | None = None

    def event(self, data: Mapping[str, Any], on_delta: OnDelta) -> None:
        kind = data.get("type")
        if not isinstance(kind, str):
            raise NoCompletionError("an event of its stream has no type")
        if kind in _TEXTS:
            self._told.add(_index(data))
            if data.get("delta"):
                on_delta(TextDelta(str(data["delta"])))
        elif kind == "response.function_call_arguments.delta":
            self._told.add(_index(data))
            self._tell(_index(data), str(data.get("delta") or ""), on_delta)
        elif kind == "response.output_item.added":
            self._start(_index(data), object_of(data.get("item")), on_delta)
        elif kind == "response.output_item.done":
            self._end(_index(data), object_of(data.get("item")), on_delta)
        elif kind in _ENDS:
            self._response = self._answer(self._whole(object_of(data.get("response"))))

    def response(self) -> ModelResponse | None:
        return self._response

    def _start(self, index: int, item: Mapping[str, Any], on_delta: OnDelta) -> None:
        if item.get("type") == "function_call" and index not in self._calls:
            id_ = str(item.get("call_id") or item.get("id") or "")
            self._calls[index] = (id_, str(item.get("name") or ""), len(self._calls))
            self._tell(index, "", on_delta)

    def _end(self, index: int, item: Mapping[str, Any], on_delta: OnDelta) -> None:
        """Take a whole item. Some servers send no pieces of it."""
        self._start(index, item, on_delta)
        self._items[index] = item
        if index in self._told:
            return
        if index in self._calls:
            self._tell(index, str(item.get("arguments") or ""), on_delta)
        elif text := self._text_of(item):
            on_delta(TextDelta(text))

    def _tell(self, index: int, arguments: str, on_delta: OnDelta) -> None:
        if index not in self._calls:
            raise NoCompletionError("a piece of its stream belongs to no call")
        id_, name, number = self._calls[index]
        on_delta(ToolCallDelta(id_, name, arguments, number))

    def _whole(self, response: Mapping[str, Any]) -> Mapping[str, Any]:
        if response.get("output") or not self._items:
            return response
        return {**response, "output": [self._items[index] for index in sorted(self._items)]}


def _index(data: Mapping[str, Any]) -> int:
    index = data.get("output_index")
    return index if isinstance(index, int) else 0
