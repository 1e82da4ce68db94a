"""Parts of pydantic-ai's responses that a provider wants back: reasoning, signatures and ids.

A response that has any becomes JSON text, and the same response again when the conversation goes back to its model.
pydantic-ai then writes each part by the rule of its provider.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic_ai import messages as theirs
from pydantic_core import PydanticSerializationError

from flink_skills.models.messages import AssistantMessage, Usage, Verbatim
from flink_skills.models.results import arguments_of, arguments_to_send, counted_usage
from flink_skills.models.well_formed import sent_name

__all__ = ["kept_response", "kept_verbatim", "usage_of"]

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
