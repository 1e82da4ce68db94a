"""Streamed messages of Anthropic."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from flink_skills.agents.models.results import arguments_of
from flink_skills.agents.models.wires.json_bytes import dump, object_of
from flink_skills.agents.models.wires.wire import NoCompletionError, StreamReader
from flink_skills.agents.state.messages import ModelResponse
from flink_skills.telemetry import OnDelta, TextDelta, ToolCallDelta

__all__ = ["AnthropicStreamReader"]

# The field of a block that the pieces of each kind continue.
_PIECES = {
    "text_delta": "text",
    "input_json_delta": "partial_json",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
}


class AnthropicStreamReader(StreamReader):
    """Puts the events of a message together. ``answer`` makes the response of its content."""

    def __init__(self, answer: Callable[..., ModelResponse]) -> None:
        self._answer = answer
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}
        #: The number of each block with a call among the calls.
        self._calls: dict[int, int] = {}
        self._reason: str | None = None
        self._usage: dict[str, Any] = {}
        self._id = ""
        self._ended = False

    def event(self, data: Mapping[str, Any], on_delta: OnDelta) -> None:
        kind = data.get("type")
        if kind == "content_block_delta":
            self._delta(_index(data), object_of(data.get("delta")), on_delta)
        elif kind == "content_block_start":
            self._start(_index(data), dict(object_of(data.get("content_block"))), on_delta)
        elif kind == "message_start":
            message = object_of(data.get("message"))
            self._id = str(message.get("id") or uuid.uuid4().hex)
            self._count(message)
        elif kind == "message_delta":
            self._reason = object_of(data.get("delta")).get("stop_reason") or self._reason
            self._count(data)
        elif kind == "message_stop":
            self._ended = True
        elif not isinstance(kind, str):
            raise NoCompletionError("an event of its stream has no type")

    def response(self) -> ModelResponse | None:
        if not self._ended:
            return None
        content = [self._whole(index) for index in sorted(self._blocks)]
        return self._answer(content, reason=self._reason, usage=self._usage, id_=self._id)

    def _count(self, of: Mapping[str, Any]) -> None:
        usage = object_of(of.get("usage"))
        self._usage.update({name: value for name, value in usage.items() if value is not None})

    def _start(self, index: int, block: dict[str, Any], on_delta: OnDelta) -> None:
        self._blocks[index] = block
        if block.get("type") == "tool_use":
            self._calls[index] = len(self._calls)
            block["id"] = block.get("id") or f"call-{self._id}-{self._calls[index]}"
            # The API begins with an empty object. Some servers send the whole one here.
            whole = block.get("input")
            self._tell(index, dump(whole).decode() if whole else "", on_delta)
        elif block.get("type") == "text" and block.get("text"):
            on_delta(TextDelta(str(block["text"])))

    def _delta(self, index: int, delta: Mapping[str, Any], on_delta: OnDelta) -> None:
        if index not in self._blocks:
            raise NoCompletionError("a piece of its stream belongs to no block")
        if delta.get("type") == "citations_delta":
            self._blocks[index].setdefault("citations", []).append(delta.get("citation"))
            return
        field = _PIECES.get(str(delta.get("type")))
        piece = delta.get(field) if field else None
        if field is None or not isinstance(piece, str) or not piece:
            return
        self._pieces.setdefault((index, field), []).append(piece)
        if field == "text":
            on_delta(TextDelta(piece))
        elif field == "partial_json" and index in self._calls:
            self._tell(index, piece, on_delta)

    def _tell(self, index: int, arguments: str, on_delta: OnDelta) -> None:
        block = self._blocks[index]
        on_delta(ToolCallDelta(block["id"], str(block.get("name") or ""), arguments, self._calls[index]))

    def _whole(self, index: int) -> dict[str, Any]:
        block = self._blocks[index]
        for field in ("text", "thinking", "signature"):
            if pieces := self._pieces.get((index, field)):
                block[field] = str(block.get(field) or "") + "".join(pieces)
        if written := self._pieces.get((index, "partial_json"), ()):
            block["input"] = arguments_of("".join(written))
        return block


def _index(data: Mapping[str, Any]) -> int:
    index = data.get("index")
    if not isinstance(index, int):
        raise NoCompletionError("an event of its stream has no index")
    return index
