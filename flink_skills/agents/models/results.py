"""Arguments, ids and results of tool calls in the form in which providers accept them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from flink_skills.agents.state.messages import (
    AssistantMessage,
    Message,
    ModelResponse,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from flink_skills.agents.state.well_formed import with_calls

__all__ = [
    "NO_ANSWER",
    "NO_TEXT",
    "arguments_of",
    "arguments_to_send",
    "empty_answer",
    "error_text",
    "has_error",
    "identified",
    "in_sequence",
    "instead_of_answer",
    "joined",
    "number_of",
    "with_ids",
]

K = TypeVar("K", AssistantMessage, ToolMessage, UserMessage)

# Some providers reject an empty message, and without a message user and assistant do not alternate.
NO_ANSWER = "(no answer)"
NO_TEXT = "(empty message)"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")


def arguments_of(value: Any) -> Mapping[str, Any] | str:
    """Return the arguments of a tool call: an object, or the text that the model wrote if that is not an object."""
    if not value:
        return {}
    if not isinstance(value, str):
        return value if isinstance(value, dict) else json.dumps(value, ensure_ascii=False)
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found if isinstance(found, dict) else value


def arguments_to_send(arguments: Mapping[str, Any] | str) -> dict[str, Any]:
    """Return the arguments of an earlier call. Providers take only objects, so a text is wrapped."""
    found = arguments_of(arguments)
    return {"invalid_arguments": found} if isinstance(found, str) else dict(found)


def in_sequence(messages: Sequence[Message], at: int, kind: type[K]) -> list[K]:
    """Return the messages of one kind from ``at`` on, up to the first of another kind."""
    found: list[K] = []
    while at < len(messages) and isinstance(message := messages[at], kind):
        found.append(message)
        at += 1
    return found


def joined(said: Sequence[AssistantMessage]) -> AssistantMessage:
    """Return answers in sequence as one, because providers take only one. Several have no provider's form."""
    if len(said) == 1:
        return said[0]
    text = "\n\n".join(message.content for message in said if message.content.strip())
    return AssistantMessage(text, tuple(call for message in said for call in message.tool_calls))


def error_text(message: ToolMessage) -> str:
    """Return the result of a call for an API that has no field for errors."""
    if not message.is_error or has_error(message.content):
        return message.content
    return json.dumps({"error": message.content}, ensure_ascii=False)


def has_error(content: str) -> bool:
    """Return whether a result is a JSON object that names its error itself."""
    if not content.startswith("{"):
        return False
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and bool(value.get("error"))


def with_ids(calls: Iterable[ToolCall], place: str) -> tuple[ToolCall, ...]:
    """Return the calls of one answer with an id each: some servers return none, or the same one twice.

    ``place`` distinguishes the answers of a conversation, for instance the id of the answer.
    """
    seen: set[str] = set()
    found = []
    for number, call in enumerate(calls):
        used = call
        if not call.id or call.id in seen:
            used = ToolCall(f"call-{place}-{number}", call.name, call.arguments)
        seen.add(used.id)
        found.append(used)
    return tuple(found)


def identified(response: ModelResponse, place: str) -> ModelResponse:
    """Return the answer, including its provider's form, with the ids of :func:`with_ids`."""
    calls = with_ids(response.tool_calls, place)
    same = all(a is b for a, b in zip(response.tool_calls, calls, strict=True))
    return response if same else with_calls(response, calls)


def instead_of_answer(reasoning: Iterable[Any], others: Iterable[Any]) -> str:
    """Return what a message has that contains neither text nor a call.

    ``reasoning`` are the parts of its reasoning, and ``others`` the names of its other parts.

    >>> instead_of_answer(["First, "], ["audio"])
    'reasoning of 7 characters, audio'
    """
    size = sum(len(text) for text in reasoning if isinstance(text, str))
    names = dict.fromkeys(name for name in others if isinstance(name, str) and _NAME.fullmatch(name))
    return ", ".join([*([f"reasoning of {size:,} characters"] if size else []), *names])


def empty_answer(response: ModelResponse) -> str:
    """Return what an empty answer contained instead, as a part for messages.

    >>> empty_answer(ModelResponse("", usage=Usage(reasoning_tokens=812)))
    'empty: it contained only reasoning of 812 tokens'
    """
    found = response.instead
    if not found and (tokens := response.usage.reasoning_tokens):
        found = f"reasoning of {tokens:,} tokens"
    return f"empty: it contained only {found}" if found else "empty"


def number_of(value: Any) -> int:
    """Return a number of tokens, 0 for anything that is none."""
    return int(value) if isinstance(value, (int, float)) and value > 0 else 0
