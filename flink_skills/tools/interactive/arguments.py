"""The arguments of the tools for processes, in the names of both source systems."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

from flink_skills.options import SkillOptions
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.given import Also, Given
from flink_skills.tools.interactive.sessions import ProcessSessions
from flink_skills.tools.services import ToolServices

__all__ = [
    "PollLines",
    "SessionArguments",
    "SessionId",
    "TimeMs",
    "WriteArguments",
    "deadline",
    "only",
    "sessions_of",
]

_MAX_WAIT_MS = 300_000.0


def _not_negative(value: Any) -> Any:
    return None if isinstance(value, int | float) and value < 0 else value


def _positive(value: Any) -> Any:
    return None if isinstance(value, int | float) and value <= 0 else value


TimeMs = Annotated[float | None, BeforeValidator(_not_negative)]
PollLines = Annotated[int | None, BeforeValidator(_positive)]
SessionId = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value)]


def only(*names: str) -> Any:
    """For ``json_schema_extra``: the schema shows these arguments, in short; others are taken all the same.

    Every request pays for a schema, and what is wrong with a value is told when it is given.
    """

    def trim(schema: dict[str, Any]) -> None:
        kept = {name: schema["properties"][name] for name in names}
        for described in kept.values():
            for word in ("default", "minLength", "exclusiveMinimum", "additionalProperties"):
                described.pop(word, None)
            if any(choice == {"type": "null"} for choice in described.get("anyOf", ())):
                described.update(described.pop("anyOf")[0])
                described.pop("exclusiveMinimum", None)
            if described.get("type") == "number":
                described["type"] = "integer"
        schema["properties"] = kept

    return trim


class SessionArguments(Given):
    """Which process, and how long to wait for what it prints."""

    model_config = ConfigDict(json_schema_extra=only("session_id"))

    session_id: SessionId = Field(min_length=1)
    yield_ms: Annotated[TimeMs, Also("yield_time_ms")] = None
    poll_lines: PollLines = None


class WriteArguments(SessionArguments):
    """What to write to a process."""

    chars: Annotated[str, Also(blank=True)] = ""
    newline: Annotated[bool, Also("append_newline")] = Field(False, alias="submit")


def sessions_of(services: ToolServices) -> ProcessSessions:
    """The processes of the worker; raises :class:`ArgumentError` where there can be none."""
    if services.sessions is None:
        raise ArgumentError(f"This job has no processes: {SkillOptions.SHELL_ENABLED.key} is false.")
    return services.sessions


def deadline(yield_ms: float | None, default: float) -> float:
    """When to answer, in seconds of the loop's clock."""
    wanted = default if yield_ms is None else yield_ms
    return asyncio.get_running_loop().time() + min(wanted, _MAX_WAIT_MS) / 1000
