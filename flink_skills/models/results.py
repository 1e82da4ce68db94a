"""Arguments, ids and results of tool calls in the form in which providers accept them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from flink_skills.models.messages import (
    AssistantMessage,
    Message,
    ModelResponse,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from flink_skills.models.well_formed import with_calls
from flink_skills.tools.arguments import MAX_VALUES, TooLargeError, check_size, model_json

K = TypeVar("K", AssistantMessage, ToolMessage, UserMessage)

# Some providers reject an empty message, and without a message user and assistant do not alternate.
NO_ANSWER = "(no answer)"
NO_TEXT = "(empty message)"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
MAX_CALLS = 256
"""Tool calls in one answer. Providers allow 128."""

_SHOWN = 1_000
# Tokens that one response can state. The largest contexts have a tenth of it.
_MAX_TOKENS = 10_000_000
_DIGITS = 12


def arguments_of(value: Any) -> Mapping[str, Any] | str:
    """Return the arguments of a tool call: an object, or the text that the model wrote if that is not an object.

    An object with too many values or levels is a text that says so.
    """
    if not value:
        return {}
    if isinstance(value, str):
        try:
            found = model_json(value, strict=False)
            # Some servers encode the object twice, or write "null" for no arguments.
            found = model_json(found, strict=False) if isinstance(found, str) and found else found
        except ValueError:
            return value
        return found if isinstance(found, dict) else value if found else {}
    try:
        check_size(value)
    except TooLargeError as error:
        return _refused(str(error), value)
    return value if isinstance(value, dict) else json.dumps(value, ensure_ascii=False)


def _refused(reason: str, arguments: Any) -> str:
    """Return a text in place of arguments. It is not JSON, so the call is an error for the model."""
    return f"{reason}: {json.dumps(arguments, ensure_ascii=False)[:_SHOWN]}"


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


def joined(answers: Sequence[AssistantMessage]) -> AssistantMessage:
    """Return answers in sequence as one, because providers take only one. Several have no provider's form."""
    if len(answers) == 1:
        return answers[0]
    text = "\n\n".join(message.content for message in answers if message.content.strip())
    return AssistantMessage(text, tuple(call for message in answers for call in message.tool_calls))


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


def check_number(calls: int) -> None:
    """Check the number of tool calls in one answer. Raises :class:`ValueError`."""
    if calls > MAX_CALLS:
        raise ValueError(f"the response has {calls:,} tool calls; at most {MAX_CALLS} are accepted")


def with_ids(calls: Sequence[ToolCall], place: str) -> tuple[ToolCall, ...]:
    """Return the calls of one answer with an id each: some servers return none, or the same one twice.

    ``place`` distinguishes the answers of a conversation, for instance the id of the answer. The calls with which the
    arguments of all calls have too many values get a text instead, because each next step walks through all of them.
    """
    seen: set[str] = set()
    found, values = [], 0
    for number, call in enumerate(calls):
        used = call
        if not call.id or call.id in seen:
            used = replace(call, id=f"call-{place}-{number}")
        if len(calls) > 1 and not isinstance(call.arguments, str):
            size = check_size(call.arguments)
            values += size
            if values > MAX_VALUES:
                values -= size
                reason = f"the arguments of all calls of the answer have more than {MAX_VALUES:,} values"
                used = replace(used, arguments=_refused(reason, call.arguments))
        seen.add(used.id)
        found.append(used)
    return tuple(found)


def identified(response: ModelResponse, place: str) -> ModelResponse:
    """Return the answer, including its provider's form, with the ids of :func:`with_ids`."""
    calls = with_ids(response.tool_calls, place)
    same = all(a is b for a, b in zip(response.tool_calls, calls, strict=True))
    return response if same else with_calls(response, calls)


def counted_usage(inputs: Any, outputs: Any, *, read: Any = 0, written: Any = 0, reasoning: Any = 0) -> Usage:
    """Return the usage that a response states. Anything that is not a number counts as 0.

    Args:
        inputs: Input tokens, with those of the cache.
        outputs: Output tokens, with those of reasoning.
        read: Input tokens that the provider read from its cache.
        written: Input tokens that the provider wrote to its cache.
        reasoning: Output tokens of reasoning.
    """
    total, output = number_of(inputs), number_of(outputs)
    if not (read or written or reasoning):
        return Usage(total, output, 1)
    # A part is at most the whole: costs are computed from the difference.
    cached = min(number_of(read), total)
    return Usage(
        total,
        output,
        1,
        cache_read_tokens=cached,
        cache_write_tokens=min(number_of(written), total - cached),
        reasoning_tokens=min(number_of(reasoning), output),
    )


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
    """Return a number of tokens: 0 for anything that is none, at most 10 million.

    >>> number_of(7.9), number_of("12"), number_of(-1), number_of(float("inf"))
    (7, 12, 0, 10000000)
    """
    if type(value) is int and 0 <= value <= _MAX_TOKENS:
        return value
    if isinstance(value, str):
        # A longer string is not a number of tokens, and would take time.
        value = int(value) if len(value) < _DIGITS and value.isascii() and value.isdigit() else 0
    return int(min(value, _MAX_TOKENS)) if isinstance(value, (int, float)) and value > 0 else 0
