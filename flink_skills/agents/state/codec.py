"""The byte form of what goes into Flink state: a version byte and JSON.

Everything in keyed state starts with a version byte, so that a later release can read what an earlier one
wrote. JSON, because a person must be able to read a savepoint and no class of ours may ever be unpickled from it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter
from pydantic_core import PydanticSerializationError

from flink_skills.errors import TurnError, WorkerError
from flink_skills.hints import type_hints
from flink_skills.models.messages import (
    AssistantMessage,
    Media,
    Message,
    ModelResponse,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    Verbatim,
)
from flink_skills.tools.base import ArgumentChange, Repeat, ToolResult
from flink_skills.tools.media import media_from_json, media_to_json

STATE_VERSION = 1
#: The version of journal entries of waits. An earlier release rejects them.
WAIT_VERSION = 2
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
_STRICT = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


_PREFIXES = {version: bytes([version]) for version in (STATE_VERSION, WAIT_VERSION)}


def encode(value: Any, version: int = STATE_VERSION) -> bytes:
    """``value`` (JSON-like) as versioned bytes."""
    try:
        data = orjson.dumps(value, option=_STRICT)
    except orjson.JSONEncodeError:
        data = b"null"
    # orjson rejects lone surrogates, long integers, keys that are not strings, and subclasses. It writes null for NaN.
    if b"null" in data:
        data = _dumps(value).encode("utf-8", "surrogatepass")
    return _PREFIXES[version] + data


def decode(data: bytes) -> Any:
    """The value of versioned bytes. Raises :class:`WorkerError` for a version that this release does not know."""
    return json.loads(_text(data))


def decode_all(chunks: Sequence[bytes]) -> list[Any]:
    """The value of each, as :func:`decode` gives it; read at once, because a call of the parser costs more than what
    stands in a small chunk."""
    return list(json.loads(f"[{','.join(map(_text, chunks))}]"))


def _text(data: bytes) -> str:
    if not data or data[0] not in _PREFIXES:
        found = data[0] if data else "none"
        raise WorkerError(
            f"state of version {found} cannot be read by this release (it reads {STATE_VERSION} and {WAIT_VERSION}): "
            "restore with the release that wrote it, or a newer one"
        )
    return data[1:].decode("utf-8", "surrogatepass")


def message_to_json(message: Message) -> dict[str, Any]:
    """The state form of a message."""
    if isinstance(message, UserMessage):
        return {"u": message.content, **_with_media(message)}
    if isinstance(message, AssistantMessage):
        said: dict[str, Any] = {"a": message.content, "c": [_call_to_json(call) for call in message.tool_calls]}
        if message.verbatim is not None:
            said["v"] = [message.verbatim.model, message.verbatim.raw]
        return said
    found = {"t": message.content, "i": message.call_id, "n": message.name, "e": message.is_error}
    if message.skill:
        found["k"] = [message.skill, message.stub, message.holds]
    return {**found, **_with_media(message)} if message.media else found


def message_from_json(data: Mapping[str, Any]) -> Message:
    """The message of its state form."""
    if "u" in data:
        return UserMessage(data["u"], _media(data))
    if "a" in data:
        calls = data["c"]
        return AssistantMessage(data["a"], tuple(map(_call_from_json, calls)) if calls else (), _verbatim(data))
    skill, stub, holds = data.get("k", ("", False, ""))
    return ToolMessage(data["i"], data["n"], data["t"], data["e"], skill, stub, holds, _media(data))


def response_to_json(response: ModelResponse) -> dict[str, Any]:
    """The journal form of a model response."""
    found = {
        "x": response.text,
        "c": [_call_to_json(call) for call in response.tool_calls],
        "u": usage_to_json(response.usage),
        "f": response.finish_reason,
    }
    if response.verbatim is not None:
        found["v"] = [response.verbatim.model, response.verbatim.raw]
    if response.instead:
        found["i"] = response.instead
    return found


def response_from_json(data: Mapping[str, Any]) -> ModelResponse:
    """The model response of its journal form."""
    calls = tuple(_call_from_json(call) for call in data["c"])
    return ModelResponse(data["x"], calls, Usage(*data["u"]), data["f"], _verbatim(data), data.get("i", ""))


def usage_to_json(usage: Usage) -> list[int]:
    """Return the journal form of a usage: tokens in, tokens out and requests, and details only if there are any."""
    found = [usage.input_tokens, usage.output_tokens, usage.requests]
    details = [usage.cache_read_tokens, usage.cache_write_tokens, usage.reasoning_tokens]
    return [*found, *details] if any(details) else found


def result_to_json(
    result: ToolResult, *, ran: ArgumentChange | None = None, repeat: Repeat | None = None
) -> dict[str, Any]:
    """Return the journal form of a tool result.

    ``ran`` and ``repeat`` are what :attr:`ToolResult.ran` and :attr:`ToolResult.repeat` are in the result that is read.
    """
    return {
        "x": result.content,
        "e": result.is_error,
        "v": result.value,
        "s": [dict(effect) for effect in result.effects],
        **_with_media(result),
        **({} if ran is None else {"ran": [*ran]}),
        **({} if repeat is None else {"same": [*repeat]}),
    }


def result_from_json(data: Mapping[str, Any]) -> ToolResult:
    """The tool result of its journal form."""
    return ToolResult(
        data["x"],
        data["e"],
        data["v"],
        tuple(data["s"]),
        media=_media(data),
        ran=ArgumentChange(*data["ran"]) if "ran" in data else None,
        repeat=Repeat(*data["same"]) if "same" in data else None,
    )


def _with_media(of: UserMessage | ToolMessage | ToolResult) -> dict[str, Any]:
    return {"media": media_to_json(of.media)} if of.media else {}


def _media(data: Mapping[str, Any]) -> tuple[Media, ...]:
    return media_from_json(data["media"]) if "media" in data else ()


def _verbatim(data: Mapping[str, Any]) -> Verbatim | None:
    return Verbatim(*data["v"]) if "v" in data else None


def _call_to_json(call: ToolCall) -> list[Any]:
    arguments = call.arguments
    return [call.id, call.name, arguments if isinstance(arguments, str) else dict(arguments)]


def _call_from_json(data: list[Any]) -> ToolCall:
    return ToolCall(*data)


@dataclass(frozen=True)
class StepCodec:
    """Writes and reads results of one type; without a type, JSON-like data only.

    A fresh result goes the same way as a replayed one, so that a step cannot return one thing the first time and
    another after a restart (a tuple, say, that comes back as a list).
    """

    name: str
    adapter: TypeAdapter[Any] | None

    @classmethod
    def of(cls, fn: Callable[..., Any], result_type: Any, name: str) -> StepCodec:
        declared = result_type if result_type is not None else _return_type(fn)
        if declared is None or declared is Any:
            return cls(name, None)
        adapter = adapter_of(declared)
        if adapter is None and result_type is not None:
            raise TurnError(f"step {name!r}: pydantic cannot read result_type {result_type!r}")
        return cls(name, adapter)

    def dump(self, value: Any) -> Any:
        """``value`` as JSON-like data."""
        try:
            if self.adapter is not None:
                return self.adapter.dump_python(value, mode="json", warnings="error")
            return json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError, PydanticSerializationError) as error:
            raise TurnError(
                f"step {self.name!r} returned {type(value).__name__}, which the journal cannot keep ({error}): return "
                "JSON-like data, or give result_type="
            ) from error

    def load(self, kept: Any) -> Any:
        return kept if self.adapter is None else self.adapter.validate_python(kept)


def _return_type(fn: Callable[..., Any]) -> Any:
    try:
        return type_hints(fn).get("return")
    except (NameError, TypeError, AttributeError):
        # The annotation names something that only a type checker sees: treat it as missing.
        return None


@functools.lru_cache(maxsize=256)
def adapter_of(declared: Any) -> TypeAdapter[Any] | None:
    """Return the adapter of a type, None if pydantic cannot read it."""
    try:
        return TypeAdapter(declared)
    except (PydanticSchemaGenerationError, PydanticUserError):
        return None
