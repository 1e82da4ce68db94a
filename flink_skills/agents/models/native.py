"""Native tool calls, also from models that write them down as text."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from flink_skills.agents.messages import ModelRequest, ModelResponse, ToolCall
from flink_skills.agents.models.base import ChatModel

__all__ = ["NativeCalls", "calls_in_text"]

_FENCE = re.compile(r"(?:```|~~~)[ \t]*[\w.-]*[ \t]*\n?(.*?)\n?[ \t]*(?:```|~~~)", re.DOTALL)
_TAG = re.compile(r"<(tool_call|tool_calls|function_call)>(.*?)</\1>", re.DOTALL)
_NAMES = ("name", "tool", "tool_name", "function", "function_name", "action")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "tool_input", "action_input", "params")


class NativeCalls(ChatModel):
    """The strategies ``native`` and ``auto``: the model's own tool calls.

    A text that is nothing but JSON with calls of offered tools counts as these calls, because small models
    write them so. JSON inside of prose stays text: it may be an explanation or an example.
    """

    def __init__(self, model: ChatModel) -> None:
        self.model = model
        self.name = model.name

    async def request(self, request: ModelRequest) -> ModelResponse:
        response = await self.model.request(request)
        if response.tool_calls or not request.tools or not response.text:
            return response
        calls = calls_in_text(response.text, {tool.name for tool in request.tools}, position=len(request.messages))
        if not calls:
            return response
        return replace(response, text="", tool_calls=calls, finish_reason="tool_calls")

    async def close(self) -> None:
        await self.model.close()


def calls_in_text(text: str, offered: Collection[str], *, position: int = 0) -> tuple[ToolCall, ...]:
    """The calls that ``text`` consists of; empty when it holds anything else.

    ``position`` (the length of the conversation) goes into the call ids, so that the same call written
    twice in a conversation has two ids.

    >>> calls_in_text('{"name": "load_skill", "arguments": {"name": "x"}}', ["load_skill"])[0].name
    'load_skill'
    """
    blocks = _blocks(text.strip())
    found: list[tuple[str, Mapping[str, Any]]] = []
    for block in blocks:
        values = _values(block)
        if values is None:
            return ()
        for value in values:
            call = _call(value, offered)
            if call is None:
                return ()
            found.append(call)
    return tuple(
        ToolCall(id=_call_id(position, number, name, arguments), name=name, arguments=arguments)
        for number, (name, arguments) in enumerate(found)
    )


def _blocks(text: str) -> list[str]:
    """The JSON texts that ``text`` consists of, without their fences or tags."""
    if text.startswith(("{", "[")):
        return [text]
    for pattern, group in ((_FENCE, 1), (_TAG, 2)):
        matches = list(pattern.finditer(text))
        if matches and not pattern.sub("", text).strip():
            return [match.group(group) for match in matches]
    return []


def _values(text: str) -> list[Any] | None:
    """The JSON values that ``text`` consists of (one, or one after the other), lists taken apart."""
    decoder = json.JSONDecoder(strict=False)
    values: list[Any] = []
    rest = text.strip()
    while rest:
        try:
            value, end = decoder.raw_decode(rest)
        except ValueError:
            return None
        values.extend(value if isinstance(value, list) else [value])
        rest = rest[end:].lstrip(" \t\r\n,;")
    return values or None


def _call(value: Any, offered: Collection[str]) -> tuple[str, Mapping[str, Any]] | None:
    """The call that a JSON value describes, in any of the usual spellings."""
    if not isinstance(value, dict):
        return None
    inner = value.get("tool_calls", value.get("function"))
    if isinstance(inner, list) and len(inner) == 1:
        inner = inner[0]
    if isinstance(inner, dict):
        return _call(inner, offered)
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
        return json.loads(text, strict=False)
    except ValueError:
        return None


def _call_id(position: int, number: int, name: str, arguments: Mapping[str, Any]) -> str:
    written = json.dumps([name, arguments], sort_keys=True)
    return f"text-{position}-{number}-{hashlib.sha256(written.encode()).hexdigest()[:8]}"
