"""Streams of pydantic-ai as our pieces of answers."""

from __future__ import annotations

import json
from typing import Any

from pydantic_ai import messages as theirs
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import ModelHTTPError, UnexpectedModelBehavior
from pydantic_ai.models import Model

from flink_skills.telemetry import Delta, OnDelta, TextDelta, ToolCallDelta

__all__ = ["Told", "is_about_streaming", "read_stream"]

# What servers answer that do not know streams, or an option of them.
_REFUSALS = frozenset({400, 404, 405, 415, 422, 501})
# Id, name and number of each tool call, by the index of its part.
_Calls = dict[int, tuple[str, str, int]]


class Told:
    """Hands pieces on, and knows whether there were any."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta = on_delta
        self.anything = False

    def __call__(self, delta: Delta) -> None:
        self.anything = True
        self._on_delta(delta)


async def read_stream(model: Model[Any], on_delta: OnDelta, **exchange: Any) -> theirs.ModelResponse:
    """Ask ``model``, hand on its answer while it arrives, and return the whole."""
    calls: _Calls = {}
    async with model_request_stream(model, **exchange) as stream:
        async for event in stream:
            if isinstance(event, theirs.PartStartEvent):
                _start(event, calls, on_delta)
            elif isinstance(event, theirs.PartDeltaEvent):
                _go_on(event, calls, on_delta)
        return stream.get()


def is_about_streaming(error: Exception) -> bool:
    """Whether a request may have failed because it asked for a stream: it was refused, there is none in the client, or
    what came was none."""
    if isinstance(error, ModelHTTPError):
        return error.status_code in _REFUSALS
    return isinstance(error, (NotImplementedError, UnexpectedModelBehavior))


def _start(event: theirs.PartStartEvent, calls: _Calls, on_delta: OnDelta) -> None:
    part = event.part
    if isinstance(part, theirs.TextPart):
        if part.content:
            on_delta(TextDelta(part.content))
    elif isinstance(part, theirs.ToolCallPart):
        number = calls[event.index][2] if event.index in calls else len(calls)
        calls[event.index] = (part.tool_call_id, part.tool_name, number)
        on_delta(ToolCallDelta(part.tool_call_id, part.tool_name, _written(part.args), number))


def _go_on(event: theirs.PartDeltaEvent, calls: _Calls, on_delta: OnDelta) -> None:
    delta = event.delta
    if isinstance(delta, theirs.TextPartDelta):
        if delta.content_delta:
            on_delta(TextDelta(delta.content_delta))
    elif isinstance(delta, theirs.ToolCallPartDelta) and event.index in calls:
        call_id, name, number = calls[event.index]
        if delta.tool_name_delta:
            name += delta.tool_name_delta
            calls[event.index] = (call_id, name, number)
        if written := _written(delta.args_delta):
            on_delta(ToolCallDelta(call_id, name, written, number))


def _written(args: Any) -> str:
    """Arguments as the piece of a JSON text that they are; some providers give objects."""
    if args is None or isinstance(args, str):
        return args or ""
    return json.dumps(args, ensure_ascii=False) if args else ""
