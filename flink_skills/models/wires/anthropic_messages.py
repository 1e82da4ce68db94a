"""The wire of Anthropic's messages.

The rules are those of https://platform.claude.com/docs/en/api/messages.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Union

from flink_skills.models.messages import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelResponse,
    ToolCall,
    ToolMessage,
    Usage,
    Verbatim,
)
from flink_skills.models.results import (
    NO_ANSWER,
    NO_TEXT,
    arguments_of,
    arguments_to_send,
    check_number,
    counted_usage,
    identified,
    in_sequence,
    instead_of_answer,
    number_of,
)
from flink_skills.models.schemas import tool_schema
from flink_skills.models.well_formed import sent_name
from flink_skills.models.wires.anthropic_settings import AnthropicSettings
from flink_skills.models.wires.json_bytes import decoded, dump, object_of
from flink_skills.models.wires.media_parts import anthropic_block, parts
from flink_skills.models.wires.streams import AnthropicStream
from flink_skills.models.wires.wire import Fixed, NoCompletionError, Prefixes, Wire
from flink_skills.tools.base import ToolSpec

_THINKING = ("thinking", "redacted_thinking")
_MARKS = {
    "5m": b',"cache_control":{"type":"ephemeral"}}',
    "1h": b',"cache_control":{"type":"ephemeral","ttl":"1h"}}',
}
_OTHER = re.compile(r"[^a-zA-Z0-9_.-]")
_Pieces = Union[bytes, memoryview]


class AnthropicMessages(Wire):
    """Maps a conversation to messages.

    Results of tools and the user's text behind them are one message of the API. The tools, the system text and the
    conversation end with a mark for the cache, unless the setting ``cache`` is ``off``.
    """

    path = "/v1/messages"

    def __init__(self, label: str, model: str) -> None:
        super().__init__(label, model)
        self._settings = AnthropicSettings(model)
        self._tools = Fixed(_tool)
        self._eager_tools = Fixed(_eager_tool)
        self._without_thinking = Prefixes(partial(self._encoded_with, self._blocks_without_thinking), self.joins)
        self._head = b'{"model":' + dump(model)

    def body(self, request: ModelRequest, settings: Mapping[str, Any], *, stream: bool) -> bytes:
        mark = _MARKS.get(_retention(settings.get("cache", "auto")))
        pieces: list[_Pieces] = [self._head]
        if request.tools:
            eager = settings.get("anthropic_eager_input_streaming")
            tools = (self._eager_tools if eager else self._tools).tools(request.tools)
            pieces += (b',"tools":[', *_marked(tools, mark, b"}"), b"]")
        if request.system.strip():
            pieces += (b',"system":[', *_marked(self._tools.system(request.system, _text), mark, b"}"), b"]")
        thinks = self._settings.thinks(settings)
        if thinks and self._settings.has_budget(settings) and not self._may_think(request.messages):
            thinks = False
        messages = (self._prefixes if thinks else self._without_thinking).encoded(request.messages)
        if not request.messages or isinstance(request.messages[-1], AssistantMessage):
            mark = None
        pieces += (b',"messages":[', *_marked(messages, mark, b"}]}"), b"]")
        if stream:
            pieces.append(b',"stream":true')
        pieces.append(
            self._settings.encoded(settings, request.output_schema, with_tools=bool(request.tools), thinks=thinks)
        )
        pieces.append(b"}")
        return b"".join(pieces)

    def headers(self, settings: Mapping[str, Any]) -> Mapping[str, str]:
        return self._settings.headers(settings)

    def takes_schema(self, schema: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
        return self._settings.takes_schema(schema, settings)

    def encoded(self, messages: Sequence[Message], at: int) -> tuple[bytes, int]:
        return self._encoded_with(self._blocks, messages, at)

    def _encoded_with(
        self, blocks: Callable[[AssistantMessage], bytes], messages: Sequence[Message], at: int
    ) -> tuple[bytes, int]:
        """Return a message of the wire as :meth:`encoded` does, with ``blocks`` for answers."""
        if answers := in_sequence(messages, at, AssistantMessage):
            return b'{"role":"assistant","content":[' + b",".join(map(blocks, answers)) + b"]}", len(answers)
        end = next(
            (end for end in range(at, len(messages)) if isinstance(messages[end], AssistantMessage)), len(messages)
        )
        return dump({"role": "user", "content": _user(messages[at:end])}), end - at

    def _blocks(self, message: AssistantMessage) -> bytes:
        """Return the blocks of an answer, separated by commas."""
        if message.verbatim is not None and message.verbatim.model == self.label:
            return message.verbatim.raw[1:-1].encode()
        return dump(_assistant(message))[1:-1]

    def _blocks_without_thinking(self, message: AssistantMessage) -> bytes:
        """Return the blocks for a request that does not allow thinking, which must not contain any."""
        if message.verbatim is None or message.verbatim.model != self.label:
            return self._blocks(message)
        blocks = decoded(message.verbatim.raw.encode())
        return dump([block for block in blocks if block.get("type") not in _THINKING])[1:-1]

    def usage(self, stated: Mapping[str, Any]) -> Usage:
        read, written = (number_of(stated.get(f"cache_{name}_input_tokens")) for name in ("read", "creation"))
        return counted_usage(
            number_of(stated.get("input_tokens")) + read + written,
            stated.get("output_tokens"),
            read=read,
            written=written,
            reasoning=object_of(stated.get("output_tokens_details")).get("thinking_tokens"),
        )

    def response(self, data: Any) -> ModelResponse:
        answer = object_of(data)
        content = answer.get("content")
        if not isinstance(content, list):
            raise NoCompletionError("the response has no content")
        blocks = [object_of(block) for block in content]
        text = "".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")
        calls = [block for block in blocks if block.get("type") == "tool_use"]
        check_number(len(calls))
        response = ModelResponse(
            text,
            tuple(map(_call, calls)),
            self.usage(object_of(answer.get("usage"))),
            str(answer.get("stop_reason") or ""),
            self._verbatim(blocks),
            "" if calls or text.strip() else _instead(blocks),
        )
        return identified(response, str(answer.get("id") or uuid.uuid4().hex))

    def reader(self) -> AnthropicStream:
        return AnthropicStream(self.response)

    def _may_think(self, messages: Sequence[Message]) -> bool:
        """Return whether thinking within a budget is allowed: not in a tool loop that began without."""
        in_loop = False
        for message in reversed(messages):
            if isinstance(message, AssistantMessage):
                if not message.tool_calls:
                    break
                if self._thought(message):
                    return True
                in_loop = True
        return not in_loop

    def _thought(self, message: AssistantMessage) -> bool:
        verbatim = message.verbatim
        if verbatim is None or verbatim.model != self.label:
            return False
        return any(block.get("type") in _THINKING for block in decoded(verbatim.raw.encode()))

    def _verbatim(self, blocks: Sequence[Mapping[str, Any]]) -> Verbatim | None:
        """Return the blocks as they came if there are others than text and calls, such as signed thinking."""
        kept = [_to_keep(block) for block in blocks if _can_return(block)]
        if all(block["type"] in ("text", "tool_use") for block in kept) or kept[-1]["type"] in _THINKING:
            return None
        return Verbatim(self.label, dump(kept).decode())


def _retention(cache: Any) -> str:
    if cache in (None, False, "off"):
        return ""
    return "1h" if cache == "1h" else "5m"


def _marked(data: bytes, mark: bytes | None, end: bytes) -> tuple[_Pieces, ...]:
    """Return JSON with a mark in its last block, which ``end`` ends. ``data`` itself stays as it is."""
    if mark is None or not data.endswith(end):
        return (data,)
    return memoryview(data)[: -len(end)], mark, end[1:]


def _text(text: str) -> bytes:
    return dump({"type": "text", "text": text})


def _tool(tool: ToolSpec) -> bytes:
    schema = tool_schema(tool.parameters)
    # The API rejects other names. The readers of arguments ignore punctuation.
    names = {name: _OTHER.sub("_", name)[:64] for name in schema["properties"]}
    if len({*names.values()}) == len(names):
        schema["properties"] = {names[name]: of for name, of in schema["properties"].items()}
        if "required" in schema:
            schema["required"] = [names.get(name, name) for name in schema["required"]]
    return dump({"name": tool.name, "description": tool.description, "input_schema": schema})


def _eager_tool(tool: ToolSpec) -> bytes:
    return _tool(tool)[:-1] + b',"eager_input_streaming":true}'


def _user(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the blocks of one message of the user. The API wants results of tools first."""
    results = [_result(message) for message in messages if isinstance(message, ToolMessage)]
    others = [_blocks(message) for message in messages if not isinstance(message, ToolMessage)]
    return [*results, *chain.from_iterable(others)] or [{"type": "text", "text": NO_TEXT}]


def _blocks(message: Message) -> list[dict[str, Any]]:
    return parts({"type": "text", "text": message.content}, message.media, anthropic_block)


def _result(message: ToolMessage) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": message.call_id}
    if message.media:
        result["content"] = _blocks(message)
    elif message.content.strip():
        result["content"] = message.content
    if message.is_error:
        result["is_error"] = True
    return result


def _assistant(message: AssistantMessage) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if message.content.strip() or not message.tool_calls:
        blocks.append({"type": "text", "text": message.content if message.content.strip() else NO_ANSWER})
    for call in message.tool_calls:
        blocks.append(
            {
                "type": "tool_use",
                "id": call.id,
                "name": sent_name(call.name),
                "input": arguments_to_send(call.arguments),
            }
        )
    return blocks


def _call(block: Mapping[str, Any]) -> ToolCall:
    return ToolCall(str(block.get("id") or ""), str(block.get("name") or ""), arguments_of(block.get("input")))


def _can_return(block: Mapping[str, Any]) -> bool:
    kind = block.get("type")
    if kind == "text":
        return bool(str(block.get("text") or "").strip())
    # An answer that was cut off has no signature, and the API refuses such a block.
    return bool(block.get("signature")) if kind == "thinking" else isinstance(kind, str)


def _to_keep(block: Mapping[str, Any]) -> dict[str, Any]:
    if block["type"] == "tool_use":
        return {**block, "input": arguments_to_send(arguments_of(block.get("input")))}
    return dict(block)


def _instead(blocks: Sequence[Mapping[str, Any]]) -> str:
    """Return what a message without text and calls has."""
    others = (block.get("type") for block in blocks if block.get("type") not in ("text", "thinking"))
    return instead_of_answer((block.get("thinking") for block in blocks), others)
