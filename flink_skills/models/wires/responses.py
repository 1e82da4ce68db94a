"""The wire of OpenAI's responses.

The rules are those of https://platform.openai.com/docs/api-reference/responses.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from flink_skills.models.error_bodies import failure
from flink_skills.models.messages import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelResponse,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    Verbatim,
)
from flink_skills.models.results import (
    NO_ANSWER,
    arguments_of,
    arguments_to_send,
    check_number,
    counted_usage,
    error_text,
    identified,
    in_sequence,
    instead_of_answer,
    joined,
)
from flink_skills.models.schemas import is_strict, schema_name, tool_schema
from flink_skills.models.well_formed import sent_name
from flink_skills.models.wires.chat_completions import leave_out_sampling, reasoning_effort
from flink_skills.models.wires.json_bytes import dump, object_of
from flink_skills.models.wires.media_parts import parts, responses_part, user_content
from flink_skills.models.wires.pieces import item_text
from flink_skills.models.wires.streams import ResponsesStream
from flink_skills.models.wires.wire import Fixed, NoCompletionError, Schema, SettingsFields, Wire
from flink_skills.tools.base import ToolSpec

_SAME = ("temperature", "top_p", "service_tier")
# Settings that are part of another field.
_NESTED = frozenset({"openai_reasoning_effort", "openai_reasoning_summary", "openai_text_verbosity"})
# OpenAI returns encrypted reasoning only for these models, and refuses a request for it for others.
_REASONS = re.compile(r"(?!.*-chat)(?:o[1-9]|gpt-[5-9]|codex|computer-use)")
_ENCRYPTED = "reasoning.encrypted_content"


class ResponsesSettings(SettingsFields):
    """Encodes settings for one model."""

    def fields(self, settings: Mapping[str, Any], schema: Schema, with_tools: bool, thinks: bool) -> dict[str, Any]:
        # The conversation is sent with each request: the provider need not store it.
        found: dict[str, Any] = {"store": False}
        for name, value in settings.items():
            if value is None or name in _NESTED:
                continue
            if name in _SAME:
                found[name] = value
            elif name.startswith("openai_"):
                found[name.removeprefix("openai_")] = value
        if (most := settings.get("max_tokens")) is not None:
            found["max_output_tokens"] = most
        if with_tools and (parallel := settings.get("parallel_tool_calls")) is not None:
            found["parallel_tool_calls"] = parallel
        if reasoning := _reasoning(settings):
            found["reasoning"] = {**reasoning, **found.get("reasoning", {})}
        if "reasoning" in found or _REASONS.match(self._model):
            found.setdefault("include", [_ENCRYPTED])
        if text := _text(settings, schema):
            found["text"] = {**found.get("text", {}), **text}
        leave_out_sampling(self._model, found)
        # Fields of extra_body replace all others.
        found.update(settings.get("extra_body") or {})
        return found


def _reasoning(settings: Mapping[str, Any]) -> dict[str, Any]:
    effort = settings.get("openai_reasoning_effort") or reasoning_effort(settings.get("thinking"))
    summary = settings.get("openai_reasoning_summary")
    return {name: value for name, value in (("effort", effort), ("summary", summary)) if value}


def _text(settings: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    text: dict[str, Any] = {}
    if schema is not None:
        text["format"] = {
            "type": "json_schema",
            "name": schema_name(schema),
            "schema": schema,
            "strict": is_strict(schema),
        }
        if "description" in schema:
            text["format"]["description"] = str(schema["description"])
    if verbosity := settings.get("openai_text_verbosity"):
        text["verbosity"] = verbosity
    return text


# The states of a response that has ended.
_ENDED = frozenset({"completed", "incomplete", "failed", "cancelled"})


class Responses(Wire):
    """Maps a conversation to responses.

    Each request contains the whole conversation, and the provider stores none. Reasoning is requested in its encrypted
    form, and sent back.

    Args:
        label: The label of the model.
        model: The name of the model.
        path: The path of the API behind the base URL.
    """

    def __init__(self, label: str, model: str, *, path: str = "/responses") -> None:
        super().__init__(label, model)
        self.path = path
        self._settings = ResponsesSettings(model)
        self._fixed = Fixed(_tool)
        self._head = b'{"model":' + dump(model)

    def body(self, request: ModelRequest, settings: Mapping[str, Any], *, stream: bool) -> bytes:
        pieces = [self._head]
        if request.system:
            pieces += (b',"instructions":', self._fixed.system(request.system, dump))
        if request.tools:
            pieces += (b',"tools":[', self._fixed.tools(request.tools), b"]")
        pieces += (b',"input":[', self.messages(request.messages), b"]")
        if stream:
            pieces.append(b',"stream":true')
        encoded = self._settings.encoded(settings, request.output_schema, with_tools=bool(request.tools))
        pieces += (encoded, self.cache_key(request, settings), b"}")
        return b"".join(pieces)

    def encoded(self, messages: Sequence[Message], at: int) -> tuple[bytes, int]:
        message = messages[at]
        if isinstance(message, AssistantMessage):
            answers = in_sequence(messages, at, AssistantMessage)
            if not any(of.verbatim is not None and of.verbatim.model == self.label for of in answers):
                return self._items(joined(answers)), len(answers)
            return b",".join(map(self._items, answers)), len(answers)
        if isinstance(message, ToolMessage):
            text = error_text(message)
            output = parts(_text_part(text), message.media, responses_part) if message.media else text
            return dump({"type": "function_call_output", "call_id": message.call_id, "output": output}), 1
        texts = in_sequence(messages, at, UserMessage)
        return dump({"role": "user", "content": user_content(texts, _text_part, responses_part)}), len(texts)

    def _items(self, message: AssistantMessage) -> bytes:
        if message.verbatim is not None and message.verbatim.model == self.label:
            # A list of items. It continues the list of the request.
            return message.verbatim.raw[1:-1].encode()
        return b",".join(map(dump, _assistant(message)))

    def usage(self, stated: Mapping[str, Any]) -> Usage:
        details = object_of(stated.get("input_tokens_details"))
        return counted_usage(
            stated.get("input_tokens"),
            stated.get("output_tokens"),
            read=details.get("cached_tokens"),
            written=details.get("cache_write_tokens"),
            reasoning=object_of(stated.get("output_tokens_details")).get("reasoning_tokens"),
        )

    def response(self, data: Any) -> ModelResponse:
        response = object_of(data)
        if (failed := failure(response, {})) is not None:
            raise failed
        status = response.get("status", "completed")
        output = response.get("output")
        if not isinstance(output, list) or status not in _ENDED:
            raise NoCompletionError(
                "the response has no output" if not isinstance(output, list) else f"the status is {status}"
            )
        items = [object_of(item) for item in output]
        text = "".join(map(item_text, items))
        calls = [item for item in items if item.get("type") == "function_call"]
        check_number(len(calls))
        if status == "completed":
            is_cut = any(item.get("status") == "incomplete" for item in items)
            reason = "refusal" if any(map(_refuses, items)) else "tool_calls" if calls else "stop"
            reason = "incomplete" if is_cut else reason
        else:
            details = object_of(response.get("incomplete_details"))
            reason = f"{status}: {details['reason']}" if details.get("reason") else str(status)
        answer = ModelResponse(
            text,
            tuple(map(_call, calls)),
            self.usage(object_of(response.get("usage"))),
            reason,
            self._verbatim(items),
            "" if calls or text.strip() else _instead(items),
        )
        return identified(answer, str(response.get("id") or uuid.uuid4().hex))

    def reader(self) -> ResponsesStream:
        return ResponsesStream(self.response)

    def _verbatim(self, items: Sequence[Mapping[str, Any]]) -> Verbatim | None:
        """Return the items unchanged if some are of another kind than texts and calls."""
        if not items or all(map(_is_plain, items)) or not all(map(_can_return, items)):
            return None
        # An item of reasoning belongs to the item behind it, and is refused alone.
        if items[-1].get("type") == "reasoning":
            return None
        return Verbatim(self.label, dump(list(items)).decode())


def _tool(tool: ToolSpec) -> bytes:
    function = {"type": "function", "name": tool.name, "description": tool.description}
    # Otherwise the API closes the objects of the parameters.
    return dump({**function, "parameters": tool_schema(tool.parameters), "strict": False})


def _assistant(message: AssistantMessage) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if message.content.strip() or not message.tool_calls:
        items.append({"role": "assistant", "content": message.content if message.content.strip() else NO_ANSWER})
    for call in message.tool_calls:
        arguments = dump(arguments_to_send(call.arguments)).decode()
        items.append(
            {"type": "function_call", "call_id": call.id, "name": sent_name(call.name), "arguments": arguments}
        )
    return items


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def _call(item: Mapping[str, Any]) -> ToolCall:
    id_ = item.get("call_id") or item.get("id") or ""
    return ToolCall(str(id_), str(item.get("name") or ""), arguments_of(item.get("arguments")))


def _refuses(item: Mapping[str, Any]) -> bool:
    content = item.get("content")
    parts = map(object_of, content) if isinstance(content, list) else ()
    return item.get("type") == "message" and any(part.get("refusal") and not part.get("text") for part in parts)


def _is_plain(item: Mapping[str, Any]) -> bool:
    kind = item.get("type")
    return kind == "function_call" or (kind == "message" and not item.get("phase"))


def _can_return(item: Mapping[str, Any]) -> bool:
    """Return whether the API accepts an item in a later request: reasoning only with its content."""
    return item.get("type") != "reasoning" or bool(item.get("encrypted_content") or item.get("content"))


def _instead(items: Sequence[Mapping[str, Any]]) -> str:
    """Return what an output without text and calls has."""
    thoughts = [item for item in items if item.get("type") == "reasoning"]
    lists = (item.get(name) for item in thoughts for name in ("content", "summary"))
    texts = [object_of(part).get("text") for parts in lists if isinstance(parts, list) for part in parts]
    others = (item.get("type") for item in items if item.get("type") not in ("message", "reasoning"))
    return instead_of_answer(texts, others)
