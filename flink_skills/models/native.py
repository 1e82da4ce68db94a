"""Native tool calls, also from models that write them down as text."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from flink_skills.models.base import emit_calls
from flink_skills.models.endings import AnswerEnd, end_of
from flink_skills.models.messages import ModelRequest, ModelResponse, ToolCall
from flink_skills.models.results import MAX_CALLS
from flink_skills.models.wrapped import WrappedModel, answered
from flink_skills.telemetry import Delta, Discarded, OnDelta, TextDelta
from flink_skills.tools.arguments import MAX_VALUES, TooLargeError, check_text, model_json

_FENCES = ("```", "~~~")
_LABEL = re.compile(r"[ \t]*[\w.-]*")
_TAGS = ("tool_call", "tool_calls", "function_call")
_OPENINGS = ("{", "[", *_FENCES, *(f"<{tag}>" for tag in _TAGS))
_MAX_OPENING = max(map(len, _OPENINGS))
_BETWEEN = re.compile(r"\s*")
_BETWEEN_VALUES = re.compile(r"[ \t\r\n,;]*")
# Characters of a text that is looked at at all, and calls in it: more is no call that anybody meant.
_MAX_LENGTH = 1 << 20
_NAMES = ("name", "tool", "tool_name", "function", "function_name", "action")
# A name in the first characters of a call that was cut.
_CUT_NAME = re.compile(rf'"(?:{"|".join(_NAMES)})"\s*:\s*"([^"\\]{{1,200}})"')
_MAX_BEFORE_NAME = 1000
_ARGUMENTS = ("arguments", "parameters", "args", "input", "tool_input", "action_input", "params")


class NativeCalls(WrappedModel):
    """The strategies ``native`` and ``auto``: the model's own tool calls.

    A text that is nothing but JSON with calls of offered tools counts as these calls, because small models
    write them so. JSON inside of prose stays text: it may be an explanation or an example.
    """

    def sent(self, request: ModelRequest) -> ModelRequest:
        """Return the request that the wrapped model receives for ``request``, which is the same."""
        return request

    async def request(self, request: ModelRequest) -> ModelResponse:
        return _with_written_calls(answered(await self.model.request(request)), request)

    async def stream(self, request: ModelRequest, on_delta: OnDelta) -> ModelResponse:
        if not request.tools:
            return await self.ask_streaming(request, on_delta)
        buffered = _BufferedText(on_delta)
        answered = await self.ask_streaming(request, buffered)
        response = _with_written_calls(answered, request)
        if response is answered:
            buffered.release()
        else:
            if buffered.released:
                on_delta(Discarded())
            emit_calls(response.tool_calls, on_delta)
        return response


def _with_written_calls(response: ModelResponse, request: ModelRequest) -> ModelResponse:
    if response.tool_calls or not request.tools or not response.text:
        return response
    names, position, reason = {tool.name for tool in request.tools}, len(request.messages), "tool_calls"
    calls = calls_in_text(response.text, names, position=position)
    if end_of(response.finish_reason) is not AnswerEnd.COMPLETE:
        calls, reason = calls or _cut_calls(response.text, names, position), response.finish_reason
    if not calls:
        return response
    # In the provider's form these calls are text, to which no result can refer.
    return replace(response, text="", tool_calls=calls, finish_reason=reason, verbatim=None)


def _cut_calls(text: str, offered: Collection[str], position: int) -> tuple[ToolCall, ...]:
    """Return the call at the start of a cut answer. Return an empty tuple if it starts with prose."""
    if not text.lstrip().startswith(_OPENINGS):
        return ()
    names = (found for found in _CUT_NAME.finditer(text[:_MAX_BEFORE_NAME]) if found[1] in offered)
    return tuple(ToolCall(_call_id(position, 0, of[1], {}), of[1], text[of.end() :]) for of in names)[:1]


class _BufferedText:
    """Hands pieces on, but for a text that begins as written calls do: what it is shows at its end."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta = on_delta
        self._buffer: list[str] = []
        self._beginning = ""
        self.released = False

    def __call__(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta) and not self.released:
            self._buffer.append(delta.text)
            if len(self._beginning) < _MAX_OPENING:
                self._beginning = (self._beginning + delta.text).lstrip()[:_MAX_OPENING]
                if not any(map(self._may_be, _OPENINGS)):
                    self.release()
            return
        if isinstance(delta, Discarded):
            self._buffer, self._beginning, self.released = [], "", False
        else:
            self.release()
        self._on_delta(delta)

    def _may_be(self, opening: str) -> bool:
        return self._beginning.startswith(opening) or opening.startswith(self._beginning)

    def release(self) -> None:
        """Hand on what is buffered: it is text."""
        text = "".join(self._buffer)
        self._buffer, self.released = [], True
        if text:
            self._on_delta(TextDelta(text))


def calls_in_text(text: str, offered: Collection[str], *, position: int = 0) -> tuple[ToolCall, ...]:
    """The calls that ``text`` consists of; empty when it holds anything else, more than 256 calls, or more than 1 MiB.

    ``position`` (the length of the conversation) goes into the call ids, so that the same call written
    twice in a conversation has two ids.

    >>> calls_in_text('{"name": "load_skill", "arguments": {"name": "x"}}', ["load_skill"])[0].name
    'load_skill'
    """
    if len(text) > _MAX_LENGTH or not text.lstrip().startswith(_OPENINGS):
        return ()
    try:
        check_text(text.encode(errors="surrogatepass"), MAX_VALUES)
        found = _calls(text.strip(), offered)
        return tuple(
            ToolCall(id=_call_id(position, number, name, arguments), name=name, arguments=arguments)
            for number, (name, arguments) in enumerate(found)
        )
    except (TooLargeError, RecursionError):
        return ()


def _calls(text: str, offered: Collection[str]) -> list[tuple[str, Mapping[str, Any]]]:
    found: list[tuple[str, Mapping[str, Any]]] = []
    for block in _blocks(text):
        values = _values(block)
        if values is None or len(found) + len(values) > MAX_CALLS:
            return []
        for value in values:
            call = _call(value, offered)
            if call is None:
                return []
            found.append(call)
    return found


# What a model writes may be meant to keep us busy. Each of these walks over the text once, without patterns that
# try their parts in more than one way.


def _blocks(text: str) -> list[str]:
    """The JSON texts that ``text`` consists of, without their fences or tags; none where anything else is in it."""
    if text.startswith(("{", "[")):
        return [text]
    blocks: list[str] = []
    at = 0
    while at < len(text):
        start, closing = (_tag if text.startswith("<") else _fence)(text, at)
        end = text.find(closing, start) if closing else -1
        if end < 0:
            return []
        blocks.append(text[start:end])
        at = _end(_BETWEEN, text, end + len(closing))
    return blocks


def _fence(text: str, at: int) -> tuple[int, str]:
    """Where the content of the fence at ``at`` begins and what ends it; "" where there is none."""
    mark = text[at : at + 3]
    return (_end(_LABEL, text, at + 3), mark) if mark in _FENCES else (at, "")


def _tag(text: str, at: int) -> tuple[int, str]:
    for name in _TAGS:
        if text.startswith(f"<{name}>", at):
            return at + len(name) + 2, f"</{name}>"
    return at, ""


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _values(text: str) -> list[Any] | None:
    """The JSON values that ``text`` consists of (one, or one after the other), lists taken apart; None if too many."""
    decoder = json.JSONDecoder(strict=False)
    values: list[Any] = []
    text = text.strip()
    at = 0
    while at < len(text):
        try:
            value, end = decoder.raw_decode(text, at)
        except ValueError:
            return None
        values.extend(value if isinstance(value, list) else [value])
        if len(values) > MAX_CALLS:
            return None
        at = _end(_BETWEEN_VALUES, text, end)
    return values or None


def _call(value: Any, offered: Collection[str]) -> tuple[str, Mapping[str, Any]] | None:
    """The call that a JSON value describes, in any of the usual spellings."""
    while True:
        if not isinstance(value, dict):
            return None
        inner = value.get("tool_calls", value.get("function"))
        if isinstance(inner, list) and len(inner) == 1:
            inner = inner[0]
        if not isinstance(inner, dict):
            break
        value = inner
    name = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), None)
    if name is None or name not in offered:
        return None
    if not set(value) <= {*_NAMES, *_ARGUMENTS, "id", "type", "call_id", "thought", "reason"}:
        return None
    for key in _ARGUMENTS:
        if key in value:
            arguments = value[key]
            if isinstance(arguments, str):
                arguments = _object(arguments)
            return (name, arguments) if isinstance(arguments, dict) else None
    # A name alone is a call only where it says so: {"name": …} may well be an answer.
    named_as_tool = any(key in value for key in ("tool", "tool_name", "function", "function_name"))
    return (name, {}) if named_as_tool else None


def _object(text: str) -> Any:
    try:
        return model_json(text, strict=False)
    except ValueError:
        return None


def _call_id(position: int, number: int, name: str, arguments: Mapping[str, Any]) -> str:
    written = json.dumps([name, arguments], sort_keys=True)
    return f"text-{position}-{number}-{hashlib.sha256(written.encode()).hexdigest()[:8]}"
