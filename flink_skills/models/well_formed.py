"""Messages that every encoding and every provider takes.

JSON can write half of a surrogate pair (``"\\ud800"``), and UTF-8 cannot.

What a model or an event says that way would be kept in a conversation, and each later request of it would fail. The
same is true of integers of thousands of digits, which some clients read and Python's JSON does not write. A message is
made so once, when it comes into a conversation: a request must not cost more the longer its history is.

The same holds for call ids. Servers give none, the same in each round, or ones that other providers reject.

A message in its provider's form is checked, and only its call ids and names are changed. One that does not
qualify is omitted, and the message goes back as its text and its calls.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import orjson

from flink_skills.models.messages import AssistantMessage, Message, ModelResponse, ToolCall, ToolMessage, Verbatim

#: Characters of a message in its provider's form: longer ones would fill journals and sessions.
MAX_VERBATIM = 256 * 1024

_log = logging.getLogger("flink_skills.model")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NO_RESULT = "This call has no result: it did not run."

T = TypeVar("T")
M = TypeVar("M", ModelResponse, AssistantMessage)


def well_formed(value: T) -> T:
    """``value``, a text or something of JSON, with U+FFFD for each lone surrogate; the same object where none is.

    >>> well_formed("a\\ud800b")
    'a\ufffdb'
    """
    return _well_formed(value)  # type: ignore[no-any-return]


def _well_formed(value: Any) -> Any:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        items = [(key, _well_formed(key), of, _well_formed(of)) for key, of in value.items()]
        same = all(key is new_key and of is new for key, new_key, of, new in items)
        return value if same else {new_key: new for _, new_key, _, new in items}
    if isinstance(value, (list, tuple)):
        members = [_well_formed(member) for member in value]
        return value if all(a is b for a, b in zip(value, members, strict=True)) else members
    return value


def _text(text: str) -> str:
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:
        # By way of UTF-16, where the two halves of a pair that came apart are one character again.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def well_formed_response(response: ModelResponse) -> ModelResponse:
    """Return the response with text that every encoding takes, without a verbatim form that cannot be kept."""
    text, calls = _text(response.text), well_formed_calls(response.tool_calls)
    if text is not response.text or calls is not response.tool_calls:
        return replace(response, text=text, tool_calls=calls, verbatim=None)
    if response.verbatim is None or _may_be_kept(response.verbatim):
        return response
    return replace(response, verbatim=None)


def _may_be_kept(verbatim: Verbatim) -> bool:
    raw = verbatim.raw
    if len(raw) > MAX_VERBATIM:
        _log.warning(
            "model %s: the reasoning of an answer is not kept, because it has %d characters with its message and at "
            "most %d are kept",
            verbatim.model,
            len(raw),
            MAX_VERBATIM,
        )
        return False
    if _text(raw) is not raw:
        return False
    if _SURROGATE.search(raw) is None:
        return True
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return well_formed(value) is value


def call_id(given: str, place: Callable[[], str], *taken: Container[str]) -> str:
    """Return a call id that every provider accepts: the given one, unless it is rejected or taken.

    ``place`` returns the position of the call. It determines a new id, so that each attempt at a turn has the same.
    Nine letters and digits are the form of the strictest servers, those of Mistral.

    >>> place = "0".__str__
    >>> call_id("call_7", place), call_id("functions.f:0", place), call_id("call_7", place, {"call_7"})
    ('call_7', '5feceb66f', '5feceb66f')
    """
    if _ID.fullmatch(given) and not any(given in ids for ids in taken):
        return given
    digest = hashlib.sha256(place().encode("utf-8", "surrogatepass")).hexdigest()
    parts = (digest[at : at + 9] for at in range(len(digest) - 8))
    return next(part for part in parts if not any(part in ids for ids in taken))


def sent_name(name: str) -> str:
    """Return a call's name as every provider accepts it. A model can invent one that they reject.

    >>> sent_name("weather"), sent_name("functions.weather"), sent_name("")
    ('weather', 'functions_weather', 'unknown')
    """
    return name if _NAME.fullmatch(name) else re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unknown"


def call_ids(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the call ids in a conversation."""
    return (call.id for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls)


def with_call_ids(message: M, place: Callable[[int], str], *taken: Container[str]) -> M:
    """Return a model's answer with unique call ids in the form of :func:`call_id`.

    ``place`` returns the position of a call by its number in the answer. Its provider's form gets the same ids.
    """
    calls = message.tool_calls
    if not calls:
        return message
    new: dict[str, ToolCall] = {}
    for number, call in enumerate(calls):
        id_ = call_id(call.id, partial(place, number), new, *taken)
        new[id_] = call if id_ == call.id else ToolCall(id_, call.name, call.arguments)
    if all(a is b and _NAME.fullmatch(a.name) for a, b in zip(calls, new.values(), strict=True)):
        return message
    return with_calls(message, tuple(new.values()))


def with_calls(message: M, calls: tuple[ToolCall, ...]) -> M:
    """Return a model's answer, including its provider's form, with other call ids."""
    verbatim = message.verbatim
    return replace(message, tool_calls=calls, verbatim=None if verbatim is None else _renamed(verbatim, calls))


def _renamed(verbatim: Verbatim, calls: Sequence[ToolCall]) -> Verbatim | None:
    """Return the provider's form with the ids and names of ``calls``. Return None if it has other calls."""
    try:
        value = json.loads(verbatim.raw)
        for (part, id_, named, name), call in zip(_calls_in(value), calls, strict=True):
            part[id_], named[name] = call.id, sent_name(call.name)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        _log.warning("model %s: the reasoning of an answer is not kept: %s", verbatim.model, type(error).__name__)
        return None
    return Verbatim(verbatim.model, json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _calls_in(value: Any) -> Iterator[tuple[dict[str, Any], str, dict[str, Any], str]]:
    """Yield where the calls in a provider's form have their id and their name."""
    if isinstance(value, dict):  # chat completions
        yield from ((call, "id", call["function"], "name") for call in value.get("tool_calls") or ())
        return
    for item in value:
        if item.get("type") == "tool_use":  # Anthropic
            yield item, "id", item, "name"
        elif item.get("type") == "function_call":  # responses
            yield item, "call_id", item, "name"
        for part in item.get("parts", ()):  # pydantic-ai
            if part["part_kind"] == "tool-call":
                yield part, "tool_call_id", part, "tool_name"


def well_formed_conversation(messages: Sequence[Message]) -> Sequence[Message]:
    """Return a conversation that providers accept, the same object if it is one.

    Earlier releases and hooks can leave ids that other providers reject, results without a call and calls without a
    result. The call ids become those of :func:`with_call_ids`, a result without a call is omitted, and a call
    without a result gets an error.
    """
    found: list[Message] = []
    taken: set[str] = set()
    # The calls without a result, and the ids that their results have.
    waiting: list[tuple[str, ToolCall]] = []
    for at, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            number = next((n for n, (id_, _) in enumerate(waiting) if id_ == message.call_id), None)
            if number is not None:
                call = waiting.pop(number)[1]
                found.append(message if call.id == message.call_id else replace(message, call_id=call.id))
            continue
        found += [ToolMessage(call.id, call.name, _NO_RESULT, is_error=True) for _, call in waiting]
        waiting = []
        if not isinstance(message, AssistantMessage):
            found.append(message)
            continue
        said = with_call_ids(message, f"{at}:{{}}".format, taken)
        found.append(said)
        waiting = [(old.id, call) for old, call in zip(message.tool_calls, said.tool_calls, strict=True)]
        taken.update(call.id for call in said.tool_calls)
    found += [ToolMessage(call.id, call.name, _NO_RESULT, is_error=True) for _, call in waiting]
    same = len(found) == len(messages) and all(a is b for a, b in zip(messages, found, strict=True))
    return messages if same else found


def well_formed_message(message: Message) -> Message:
    """The message with text that every encoding takes."""
    content = _text(message.content)
    if isinstance(message, AssistantMessage):
        calls = well_formed_calls(message.tool_calls)
        if content is message.content and calls is message.tool_calls:
            return message
        return replace(message, content=content, tool_calls=calls, verbatim=None)
    if isinstance(message, ToolMessage):
        call_id, name = _text(message.call_id), _text(message.name)
        if content is message.content and call_id is message.call_id and name is message.name:
            return message
        return replace(message, content=content, call_id=call_id, name=name)
    return message if content is message.content else replace(message, content=content)


def well_formed_calls(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """The calls with arguments that JSON can write.

    Where an integer has more digits than that, the arguments are a text that says so: as with any other that is no
    JSON, the model is told instead of the tool being called.
    """
    if not calls:
        return calls
    new = tuple(_call(call) for call in calls)
    return calls if all(a is b for a, b in zip(calls, new, strict=True)) else new


def _call(call: ToolCall) -> ToolCall:
    try:
        # orjson rejects each value that is replaced below, and walks through the others 20 times faster.
        orjson.dumps((call.id, call.name, call.arguments))
        return call
    except TypeError:
        pass
    id_, name, arguments = _text(call.id), _text(call.name), _well_formed(call.arguments)
    if not isinstance(arguments, str):
        told = _without_long_integers(arguments)
        if told is not arguments:
            arguments = f"an integer has too many digits: {json.dumps(told, ensure_ascii=False, default=str)}"
    if id_ is call.id and name is call.name and arguments is call.arguments:
        return call
    return ToolCall(id_, name, arguments)


# Python writes integers of any length up to this one, whatever its limit is set to (sys.int_info).
_BITS_ALWAYS_WRITTEN = 2_000


def _without_long_integers(value: Any) -> Any:
    """``value`` with "…" for each integer that Python does not write; the same object where none is."""
    if isinstance(value, int):
        return value if value.bit_length() <= _BITS_ALWAYS_WRITTEN or _is_written(value) else "…"
    if isinstance(value, Mapping):
        items = {key: _without_long_integers(of) for key, of in value.items()}
        return value if all(items[key] is of for key, of in value.items()) else items
    if isinstance(value, (list, tuple)):
        members = [_without_long_integers(member) for member in value]
        return value if all(a is b for a, b in zip(value, members, strict=True)) else members
    return value


def _is_written(number: int) -> bool:
    try:
        str(number)
    except ValueError:
        return False
    return True
