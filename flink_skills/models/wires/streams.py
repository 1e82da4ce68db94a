"""Streamed answers, folded into the whole bodies that the wires read.

Servers differ in what they send. A reader ignores what is not a part of an answer, and accepts all forms in which
servers send the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flink_skills.models.messages import ModelResponse
from flink_skills.models.results import arguments_of, check_number
from flink_skills.models.wires.json_bytes import dump, object_of
from flink_skills.models.wires.pieces import (
    Fields,
    StreamedCall,
    content_text,
    index_of,
    item_text,
    joined_arguments,
    joined_content,
    stated_reason,
)
from flink_skills.models.wires.wire import NoCompletionError, StreamReader
from flink_skills.telemetry import OnDelta, TextDelta, ToolCallDelta

# Pieces of calls in one event, and choices. They are folded without a pause.
_MAX_PIECES = 1_024
_MAX_CHOICES = 128


def _ignore_delta(delta: Any) -> None:
    """Ignore a piece."""


# Fields of a choice that are not about its end.
_PARTS = frozenset({"delta", "message", "logprobs", "usage"})


class ChatStream(StreamReader):
    """Folds the chunks of a chat completion."""

    def __init__(self, read: Callable[[Any], ModelResponse]) -> None:
        super().__init__(read)
        self._message = Fields(self._keep)
        self._content: list[Any] = []
        self._calls: list[StreamedCall] = []
        #: The last call at each index, and the calls by their ids.
        self._at: dict[int, StreamedCall] = {}
        self._by_id: dict[str, StreamedCall] = {}
        self._legacy: StreamedCall | None = None
        self._choice: int | None = None
        self._has_deltas = False
        #: The fields of the choice with its reason.
        self._end: Mapping[str, Any] = {}

    def event(self, data: Mapping[str, Any], on_delta: OnDelta) -> None:
        self._identify(data.get("id"))
        self._count(object_of(data.get("x_groq")).get("usage"))
        self._count(data.get("usage"))
        choices = data.get("choices")
        for choice in choices[:_MAX_CHOICES] if isinstance(choices, list) else ():
            self._take(object_of(choice), on_delta)

    def body(self) -> dict[str, Any]:
        message = {"role": "assistant", "content": joined_content(self._content), **self._message.whole()}
        if self._legacy is not None:
            message["function_call"] = self._legacy.body()["function"]
        if self._calls:
            message["tool_calls"] = [call.body() for call in sorted(self._calls, key=lambda call: call.place)]
        choice = {**self._end, "message": message}
        return {"id": self._id, "choices": [choice], "usage": self._usage}

    def _take(self, choice: Mapping[str, Any], on_delta: OnDelta) -> None:
        index = index_of(choice.get("index")) or 0
        if self._choice is None:
            self._choice = index
        elif self._choice and not index:
            # Another choice came before the first one.
            self._choice, self._reason = index, None
            self._restart()
        if index != self._choice:
            return
        self._count(choice.get("usage"))
        delta, message = choice.get("delta"), choice.get("message")
        if isinstance(delta, dict) and delta:
            self._has_deltas = True
            self._fold(delta, on_delta)
        elif isinstance(message, dict):
            if self._has_deltas:
                # The whole message behind its pieces.
                self._restart()
                on_delta = _ignore_delta
            self._fold(message, on_delta)
        reason = choice.get("finish_reason") and stated_reason(choice)
        # Some servers end each answer with "stop", also behind another reason.
        if reason and (reason != "stop" or not self._end):
            self._end = self._keep({name: value for name, value in choice.items() if name not in _PARTS})
            self.is_over = True

    def _restart(self) -> None:
        self._message, self._content = Fields(self._keep), []
        self._calls, self._at, self._by_id, self._legacy = [], {}, {}, None
        self._has_deltas = False

    def _fold(self, delta: Mapping[str, Any], on_delta: OnDelta) -> None:
        for name, value in delta.items():
            if name == "content":
                self._add_content(value, on_delta)
            elif name == "tool_calls":
                self._add_calls(value, on_delta)
            elif name == "function_call" and isinstance(value, dict):
                self._legacy = self._legacy or self._new_call(0, "")
                self._continue(self._legacy, {"function": value}, on_delta)
            elif name != "role" and value:
                self._message.add(name, value)
                if name == "refusal" and isinstance(value, str):
                    on_delta(TextDelta(value))

    def _add_content(self, value: Any, on_delta: OnDelta) -> None:
        if not value:
            return
        if isinstance(value, list):
            self._content += self._keep(value)
        else:
            self._content.append(self._keep(value))
        if text := content_text(value):
            on_delta(TextDelta(text))

    def _add_calls(self, value: Any, on_delta: OnDelta) -> None:
        pieces = value if isinstance(value, list) else [value]
        if len(pieces) > _MAX_PIECES:
            raise ValueError(
                f"an event of the stream has {len(pieces):,} pieces of calls; {_MAX_PIECES:,} are accepted"
            )
        for position, piece in enumerate(pieces):
            if isinstance(piece, dict):
                index = index_of(piece.get("index"))
                # Calls without a number are distinguished by their positions if one event has several.
                self._add_call(piece, position if index is None and len(pieces) > 1 else index, on_delta)

    def _add_call(self, piece: Mapping[str, Any], index: int | None, on_delta: OnDelta) -> None:
        function = object_of(piece.get("function"))
        id_, name = str(piece.get("id") or ""), str(function.get("name") or "")
        if index is not None:
            call = self._at.get(index)
        else:
            call = self._by_id.get(id_) or (self._calls[-1] if self._calls else None)
        arguments = function.get("arguments")
        if call is not None and id_ and id_ == call.id and arguments and call.pieces == [arguments]:
            return  # the whole call once more
        if call is None or call.ends_before(id_, name, arguments):
            check_number(len(self._calls) + 1)
            place = index if index is not None else self._calls[-1].place if self._calls else 0
            call = self._new_call(place, id_)
            self._calls.append(call)
        if index is not None:
            self._at[index] = call
        if id_:
            self._by_id[id_] = call
        self._continue(call, piece, on_delta)

    def _new_call(self, place: int, id_: str) -> StreamedCall:
        call = StreamedCall(len(self._calls), place)
        call.delta_id = id_ or self._call_id(call.number)
        return call

    def _continue(self, call: StreamedCall, piece: Mapping[str, Any], on_delta: OnDelta) -> None:
        call.id = call.id or str(piece.get("id") or "")
        for name, value in piece.items():
            if name not in ("id", "index", "function") and value:
                call.fields[name] = self._keep(value, is_new=name not in call.fields)
        written = ""
        for name, value in object_of(piece.get("function")).items():
            if name == "name":
                call.name = call.named(value)
            elif name != "arguments":
                call.fields["function"][name] = self._keep(value, is_new=name not in call.fields["function"])
            elif isinstance(value, str):
                written = value
                if value:
                    call.pieces.append(value)
            elif value is not None:
                call.whole = self._keep(value)
                written = dump(value).decode()
        on_delta(ToolCallDelta(call.delta_id, call.name, written, call.number))


class AnthropicStream(StreamReader):
    """Folds the events of a message of Anthropic."""

    def __init__(self, read: Callable[[Any], ModelResponse]) -> None:
        super().__init__(read)
        self._blocks: list[_Block] = []
        self._at: dict[int, _Block] = {}
        self._calls = 0
        self._reason: Any = None

    def event(self, data: Mapping[str, Any], on_delta: OnDelta) -> None:
        kind = data.get("type")
        if kind == "content_block_delta":
            self._delta(index_of(data.get("index")), object_of(data.get("delta")), on_delta)
        elif kind == "content_block_start":
            self._start(index_of(data.get("index")), object_of(data.get("content_block")), on_delta)
        elif kind == "message_start":
            message = object_of(data.get("message"))
            self._identify(message.get("id"))
            self._end(message)
            content = message.get("content")
            for block in content if isinstance(content, list) else ():
                self._start(None, object_of(block), on_delta)
        elif kind == "message_delta":
            self._end(object_of(data.get("delta")))
            self._count(data.get("usage"))
        elif kind == "message_stop":
            self.is_over = True

    def body(self) -> dict[str, Any]:
        content = [block.body() for block in sorted(self._blocks, key=lambda block: block.place)]
        return {"id": self._id, "content": content, "stop_reason": self._reason, "usage": self._usage}

    def _end(self, of: Mapping[str, Any]) -> None:
        self._reason = of.get("stop_reason") or self._reason
        self.is_over |= self._reason is not None
        self._count(of.get("usage"))

    def _start(self, index: int | None, block: Mapping[str, Any], on_delta: OnDelta) -> None:
        begun = self._at.get(index) if index is not None else None
        if begun is not None and block.get("id") and begun.fields.get("id") == block["id"]:
            return
        new = self._block(index, dict(self._keep(block)))
        if block.get("type") == "tool_use":
            check_number(self._calls + 1)
            new.number, self._calls = self._calls, self._calls + 1
            new.delta_id = str(block.get("id") or self._call_id(new.number))
            # The API begins with an empty object. Some servers send the whole one here.
            whole = block.get("input")
            self._emit(new, dump(whole).decode() if whole and not isinstance(whole, str) else whole or "", on_delta)
        elif block.get("type") == "text" and block.get("text"):
            on_delta(TextDelta(str(block["text"])))

    def _block(self, index: int | None, fields: dict[str, Any]) -> _Block:
        place = index if index is not None else self._blocks[-1].place if self._blocks else 0
        new = _Block(place, fields, self._keep)
        self._blocks.append(new)
        if index is not None:
            self._at[index] = new
        return new

    def _delta(self, index: int | None, delta: Mapping[str, Any], on_delta: OnDelta) -> None:
        kind = str(delta.get("type") or "")
        block = self._at.get(index) if index is not None else self._blocks[-1] if self._blocks else None
        if (own := _OWN_BLOCKS.get(kind)) and (block is None or block.fields.get("type") != own):
            # Some servers announce only calls.
            block = self._block(index, {"type": own})
        if kind == "input_json_delta" and (block is None or block.fields.get("type") in _OWN_BLOCKS.values()):
            raise NoCompletionError("a piece of the stream belongs to no call")
        if block is None:
            return
        for name, value in delta.items():
            if name == "type" or not value:
                continue
            if name == "citation":
                block.added.add("citations", [value])
            elif name == "partial_json":
                block.written.append(str(value))
                if block.delta_id:
                    self._emit(block, str(value), on_delta)
            else:
                block.added.add(name, value)
        if kind == "text_delta" and isinstance(delta.get("text"), str) and delta["text"]:
            on_delta(TextDelta(delta["text"]))

    def _emit(self, block: _Block, arguments: str, on_delta: OnDelta) -> None:
        on_delta(ToolCallDelta(block.delta_id, str(block.fields.get("name") or ""), arguments, block.number))


# The type of the block that a delta begins if none was announced.
_OWN_BLOCKS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "thinking"}


class _Block:
    """One streamed block of a message."""

    def __init__(self, place: int, fields: dict[str, Any], keep: Callable[[Any], Any]) -> None:
        self.place = place
        self.fields = fields
        self.added = Fields(keep)
        self.written: list[str] = []
        self.number = 0
        self.delta_id = ""

    def body(self) -> dict[str, Any]:
        body = dict(self.fields)
        for name, value in self.added.whole().items():
            before: Any = body.get(name)
            body[name] = before + value if type(before) is type(value) and not isinstance(value, dict) else value
        if self.written:
            body["input"] = arguments_of(joined_arguments(self.written))
        return body


class ResponsesStream(StreamReader):
    """Folds the events of a response."""

    def __init__(self, read: Callable[[Any], ModelResponse]) -> None:
        super().__init__(read)
        self._items: list[_Item] = []
        self._at: dict[int, _Item] = {}
        self._by_id: dict[str, _Item] = {}
        self._calls = 0
        self._whole: dict[str, Any] = {}

    def event(self, data: Mapping[str, Any], on_delta: OnDelta) -> None:
        kind = str(data.get("type") or "")
        delta = data.get("delta")
        if kind in _TEXTS:
            self._text(data, _TEXTS[kind], delta, on_delta)
        elif kind in _WHOLE_TEXTS:
            item = self._item(data, None)
            if item is None or not item.is_emitted:
                self._text(data, *_WHOLE_TEXTS[kind], on_delta)
        elif kind == "response.function_call_arguments.delta":
            self._arguments(data, str(delta or ""), on_delta)
        elif kind == "response.function_call_arguments.done":
            item = self._item(data, None)
            if item is not None and not item.is_emitted:
                self._arguments(data, str(data.get("arguments") or ""), on_delta)
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._take(data, object_of(data.get("item")), on_delta, is_whole=kind.endswith("done"))
        else:
            self._end(kind, data.get("response"))

    def body(self) -> dict[str, Any]:
        items = sorted(self._items, key=lambda item: item.place)
        return {**self._whole, "output": self._whole.get("output") or [item.body() for item in items]}

    def _end(self, kind: str, response: Any) -> None:
        if not isinstance(response, dict):
            return
        self._identify(response.get("id"))
        self._count(response.get("usage"))
        status = response.get("status") or kind.removeprefix("response.")
        if status in _FINAL or response.get("error"):
            usage = {**self._usage, **object_of(response.get("usage"))}
            self.is_over = True
            self._whole = {**self._keep(response), "status": status, "id": self._id, "usage": usage}

    def _item(self, data: Mapping[str, Any], id_: Any) -> _Item | None:
        """Return the item of an event. A new id at the place of another item is a new item."""
        index, id_ = index_of(data.get("output_index")), str(id_ or data.get("item_id") or "")
        found = self._by_id.get(id_) if id_ else None
        if found is None and index is not None:
            found = self._at.get(index)
            if found is not None and id_ and found.id and found.id != id_ and "item" in data:
                return None
        if found is None and index is None and not id_ and self._items:
            found = self._items[-1]
        return found

    def _begun(self, data: Mapping[str, Any], fields: Mapping[str, Any]) -> _Item:
        index = index_of(data.get("output_index"))
        place = index if index is not None else self._items[-1].place if self._items else 0
        item = _Item(place, dict(fields))
        item.id = str(fields.get("id") or data.get("item_id") or "")
        self._items.append(item)
        if index is not None:
            self._at[index] = item
        if item.id:
            self._by_id[item.id] = item
        if fields.get("type") == "function_call":
            check_number(self._calls + 1)
            item.number, self._calls = self._calls, self._calls + 1
            item.delta_id = str(fields.get("call_id") or fields.get("id") or self._call_id(item.number))
        return item

    def _take(self, data: Mapping[str, Any], fields: Mapping[str, Any], on_delta: OnDelta, *, is_whole: bool) -> None:
        item = self._item(data, fields.get("id"))
        if item is None:
            item = self._begun(data, self._keep(fields))
            if item.delta_id and not is_whole:
                self._emit(item, "", on_delta)
        if not is_whole:
            return
        item.fields = dict(self._keep(fields))
        if item.is_emitted:
            return
        # Some servers send no pieces of an item.
        if item.delta_id:
            self._emit(item, _written(fields.get("arguments")), on_delta)
        elif text := item_text(fields):
            on_delta(TextDelta(text))

    def _text(self, data: Mapping[str, Any], part: str, field: Any, on_delta: OnDelta) -> None:
        text = data.get("text", data.get("refusal")) if field in ("text", "refusal") else field
        item = self._item(data, None) or self._begun(data, {"type": "message", "role": "assistant"})
        item.is_emitted = True
        if isinstance(text, str) and text:
            item.texts.setdefault((index_of(data.get("content_index")) or 0, part), []).append(text)
            on_delta(TextDelta(text))

    def _arguments(self, data: Mapping[str, Any], written: str, on_delta: OnDelta) -> None:
        item = self._item(data, None)
        if item is None or not item.delta_id:
            raise NoCompletionError("a piece of the stream belongs to no call")
        item.is_emitted = True
        item.written.append(written)
        self._emit(item, written, on_delta)

    def _emit(self, item: _Item, arguments: str, on_delta: OnDelta) -> None:
        on_delta(ToolCallDelta(item.delta_id, str(item.fields.get("name") or ""), arguments, item.number))


# The part of a message that pieces belong to.
_TEXTS = {"response.output_text.delta": "output_text", "response.refusal.delta": "refusal"}
_WHOLE_TEXTS = {"response.output_text.done": ("output_text", "text"), "response.refusal.done": ("refusal", "refusal")}
_FINAL = frozenset({"completed", "incomplete", "failed", "cancelled"})


class _Item:
    """One streamed item of a response."""

    def __init__(self, place: int, fields: dict[str, Any]) -> None:
        self.place = place
        self.fields = fields
        self.id = ""
        self.texts: dict[tuple[int, str], list[str]] = {}
        self.written: list[str] = []
        self.number = 0
        self.delta_id = ""
        self.is_emitted = False

    def body(self) -> dict[str, Any]:
        body = dict(self.fields)
        if self.texts and not item_text(body):
            body["content"] = [
                {"type": part, "text" if part == "output_text" else "refusal": "".join(texts)}
                for (_, part), texts in sorted(self.texts.items())
            ]
        if self.written and not body.get("arguments"):
            body["arguments"] = "".join(self.written)
        return body


def _written(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else dump(arguments).decode() if arguments else ""
