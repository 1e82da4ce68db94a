"""Text that every encoding takes: JSON can write half of a surrogate pair (``"\\ud800"``), and UTF-8 cannot.

What a model or an event says that way would be kept in a conversation, and each later request of it would fail. The
same is true of integers of thousands of digits, which some clients read and Python's JSON does not write. A message is
made so once, when it comes into a conversation: a request must not cost more the longer its history is.

A message in its provider's form is checked and never changed: one that does not qualify is omitted, and the message
goes back as its text and its calls.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from flink_skills.agents.state.messages import AssistantMessage, Message, ModelResponse, ToolCall, ToolMessage, Verbatim

__all__ = ["MAX_VERBATIM", "well_formed", "well_formed_calls", "well_formed_message", "well_formed_response"]

#: Characters of a message in its provider's form: longer ones would fill journals and sessions.
MAX_VERBATIM = 256 * 1024

_log = logging.getLogger("flink_skills.model")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

T = TypeVar("T")


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
