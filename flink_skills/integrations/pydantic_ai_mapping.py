"""Our messages as pydantic-ai's, and back."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from inspect import signature
from typing import Any

from pydantic import ValidationError
from pydantic_ai import messages as theirs
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition
from pydantic_core import PydanticSerializationError

from flink_skills.models.endings import AnswerEnd, end_of
from flink_skills.models.media import has_media
from flink_skills.models.messages import (
    AssistantMessage,
    Media,
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
    NO_TEXT,
    arguments_of,
    arguments_to_send,
    check_number,
    counted_usage,
    has_error,
    in_sequence,
    instead_of_answer,
    joined,
)
from flink_skills.models.schemas import schema_name, schema_text, tool_schema
from flink_skills.models.well_formed import sent_name

_log = logging.getLogger("flink_skills.model")

# A provider needs the parts of a response and their origin. Counts and times would only enlarge the state.
_OMITTED = {"usage", "timestamp", "metadata", "run_id", "conversation_id", "history_digest", "workspace_ref"}
# Names of the count of reasoning tokens in the details of a usage, by version and provider.
_REASONING = ("reasoning_tokens", "thoughts_tokens")


def kept_verbatim(response: theirs.ModelResponse, model: str) -> Verbatim | None:
    """Return the response as JSON text if any of its parts holds more than text or a tool call, else None."""
    if not model or not any(map(_holds_more, response.parts)):
        return None
    try:
        raw = theirs.ModelMessagesTypeAdapter.dump_json(
            [response], exclude={"__all__": _OMITTED}, exclude_none=True
        ).decode()
    except (PydanticSerializationError, UnicodeError) as error:
        _log.warning("model %s: its reasoning is not kept, because it cannot be written as JSON: %s", model, error)
        return None
    return Verbatim(model, raw)


def kept_response(message: AssistantMessage, model: str) -> theirs.ModelResponse | None:
    """Return the response that ``message`` was, or None if another model returned it or its calls are others now."""
    verbatim = message.verbatim
    if verbatim is None or verbatim.model != model:
        return None
    try:
        (response,) = theirs.ModelMessagesTypeAdapter.validate_json(verbatim.raw)
    except (ValidationError, ValueError) as error:
        # Another version of pydantic-ai may have written it. The conversation continues without the reasoning.
        reason = str(error).partition("\n")[0]
        _log.warning("model %s: its earlier reasoning cannot be read and is not sent back: %s", model, reason)
        return None
    if not isinstance(response, theirs.ModelResponse):
        return None
    calls = [part for part in response.parts if isinstance(part, theirs.ToolCallPart)]
    names = [(call.id, sent_name(call.name)) for call in message.tool_calls]
    if [(part.tool_call_id, part.tool_name) for part in calls] != names:
        return None
    return replace(response, parts=list(map(_sendable, response.parts)))


def usage_of(usage: Any) -> Usage:
    """Return the usage of a response as ours.

    Both count tokens of caches as input, and tokens of reasoning as output. Versions of pydantic-ai differ in what they
    report of them.
    """
    details: Mapping[str, Any] = getattr(usage, "details", None) or {}
    reasoning = getattr(usage, "output_reasoning_tokens", 0) or next(filter(None, map(details.get, _REASONING)), 0)
    return counted_usage(
        usage.input_tokens,
        usage.output_tokens,
        read=getattr(usage, "cache_read_tokens", 0),
        written=getattr(usage, "cache_write_tokens", 0),
        reasoning=reasoning,
    )


def _holds_more(part: theirs.ModelResponsePart) -> bool:
    if not isinstance(part, (theirs.TextPart, theirs.ToolCallPart)):
        return True
    # Versions of pydantic-ai differ in the fields of these parts.
    return bool(getattr(part, "id", None) or getattr(part, "provider_details", None))


def _sendable(part: theirs.ModelResponsePart) -> theirs.ModelResponsePart:
    """Return the part, with arguments that providers accept."""
    if isinstance(part, theirs.ToolCallPart) and isinstance(arguments_of(part.args), str):
        wrapped: dict[str, Any] = {"args": arguments_to_send(part.args or "")}
        return replace(part, **wrapped)
    return part


# Newer versions can say that a tool failed; the text says it in any case.
_HAS_OUTCOME = any(f.name == "outcome" for f in fields(theirs.ToolReturnPart))


def to_messages(request: ModelRequest, *, model: str = "", schema_in_text: bool = False) -> list[theirs.ModelMessage]:
    """Return the conversation for pydantic-ai.

    All messages between two responses are one request there: providers want the results of all calls of a response in
    one message. A message that ``model`` returned, by its label, goes back as its provider wrote it.
    """
    system = request.system
    if schema_in_text:
        system = f"{system}\n\n{schema_text(request.output_schema or {})}".strip()
    parts: list[theirs.ModelRequestPart] = [theirs.SystemPromptPart(system)] if system else []
    converted: list[theirs.ModelMessage] = []
    # Media of results, which few providers accept inside, and the messages of the user behind them.
    said: list[UserMessage] = []
    at, messages = 0, request.messages
    while at < len(messages):
        message, number = messages[at], 1
        if isinstance(message, AssistantMessage):
            _add_request(converted, [*parts, *_user_prompt(said)])
            parts, said = [], []
            run = in_sequence(messages, at, AssistantMessage)
            message, number = joined(run), len(run)
            kept = kept_response(message, model)
            converted.append(theirs.ModelResponse(parts=_response_parts(message)) if kept is None else kept)
        elif isinstance(message, ToolMessage):
            parts.append(_tool_return(message))
            if message.media:
                said.append(UserMessage(f"Content of the result of {message.name}:", message.media))
        else:
            said.append(message)
        at += number
    _add_request(converted, [*parts, *_user_prompt(said)])
    return converted


def _add_request(converted: list[theirs.ModelMessage], parts: list[theirs.ModelRequestPart]) -> None:
    if parts:
        converted.append(theirs.ModelRequest(parts=parts))


def _user_prompt(messages: Sequence[UserMessage]) -> list[theirs.ModelRequestPart]:
    """Return the only prompt between two responses: providers and chat templates reject two user messages."""
    texts = [message.content for message in messages if message.content.strip()]
    if has_media(messages):
        content: list[theirs.UserContent] = []
        for message in messages:
            content += [message.content] if message.content.strip() else []
            content += map(_media, message.media)
        return [theirs.UserPromptPart(content)]
    return [theirs.UserPromptPart("\n\n".join(texts) or NO_TEXT)] if messages else []


def _media(media: Media) -> theirs.UserContent:
    if media.data is not None:
        return theirs.BinaryContent(media.data, media_type=media.media_type, identifier=media.name)
    if media.kind == "image":
        return theirs.ImageUrl(media.location, media_type=media.media_type)
    if media.kind == "audio":
        return theirs.AudioUrl(media.location, media_type=media.media_type)
    return theirs.DocumentUrl(media.location, media_type=media.media_type)


def parameters(request: ModelRequest, *, native_schema: bool = False) -> ModelRequestParameters:
    """Tools and output schema for pydantic-ai."""
    tools = [
        ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=tool_schema(tool.parameters),
        )
        for tool in request.tools
    ]
    if not native_schema or request.output_schema is None:
        return ModelRequestParameters(function_tools=tools)
    schema = dict(request.output_schema)
    return ModelRequestParameters(
        function_tools=tools,
        output_mode="native",
        output_object=OutputObjectDefinition(
            json_schema=schema,
            name=schema_name(schema),
            description=str(schema["description"]) if "description" in schema else None,
        ),
    )


def from_response(response: theirs.ModelResponse, model: str = "") -> ModelResponse:
    """Return their response as ours. Parts that are neither text nor a tool call are in its ``verbatim`` only.

    Args:
        response: The response of pydantic-ai.
        model: The label of the model that returned it.

    Raises :class:`ValueError` for too many tool calls.
    """
    text: list[str] = []
    calls: list[ToolCall] = []
    for part in response.parts:
        if isinstance(part, theirs.TextPart):
            text.append(part.content)
        elif isinstance(part, theirs.ToolCallPart):
            check_number(len(calls) + 1)
            calls.append(ToolCall(id=part.tool_call_id, name=part.tool_name, arguments=arguments_of(part.args)))
    return ModelResponse(
        "".join(text),
        tuple(calls),
        usage_of(response.usage),
        _reason(response),
        kept_verbatim(response, model),
        "" if calls or "".join(text).strip() else _instead(response),
    )


def _instead(response: theirs.ModelResponse) -> str:
    """Return what a response without text and calls has."""
    parts = [part for part in response.parts if not isinstance(part, theirs.TextPart)]
    thoughts = [part.content for part in parts if isinstance(part, theirs.ThinkingPart)]
    return instead_of_answer(thoughts, (part.part_kind for part in parts if part.part_kind != "thinking"))


def _reason(response: theirs.ModelResponse) -> str:
    """Return the reason of the provider, with their own name of it if the two differ in meaning."""
    if getattr(response, "state", "") == "suspended":
        return AnswerEnd.PAUSED.value
    theirs_ = str(getattr(response, "finish_reason", None) or "")
    given = str((getattr(response, "provider_details", None) or {}).get("finish_reason") or "")
    return given if given and end_of(given) is end_of(theirs_) else ": ".join(filter(None, (theirs_, given)))


def _response_parts(message: AssistantMessage) -> list[theirs.ModelResponsePart]:
    parts: list[theirs.ModelResponsePart] = []
    # An empty message would be refused by some providers, and no message at all breaks the alternation.
    if message.content.strip() or not message.tool_calls:
        parts.append(theirs.TextPart(message.content if message.content.strip() else NO_ANSWER))
    for call in message.tool_calls:
        parts.append(
            theirs.ToolCallPart(
                tool_name=sent_name(call.name), args=arguments_to_send(call.arguments), tool_call_id=call.id
            )
        )
    return parts


class _SaysItself(theirs.ToolReturnPart):
    """An error whose text is an object with a key ``error``: for providers that have no other place for an error it is
    not wrapped in one more."""

    def model_response_str(self, **how: Any) -> str:
        if "wrap_if_error" in signature(super().model_response_str).parameters:
            how["wrap_if_error"] = False
        return super().model_response_str(**how)


def _tool_return(message: ToolMessage) -> theirs.ToolReturnPart:
    outcome: dict[str, Any] = {"outcome": "failed"} if _HAS_OUTCOME and message.is_error else {}
    part = _SaysItself if outcome and has_error(message.content) else theirs.ToolReturnPart
    return part(tool_name=sent_name(message.name), content=message.content, tool_call_id=message.call_id, **outcome)
