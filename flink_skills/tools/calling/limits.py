"""What a call of one tool may take, from the tool itself and from the options of the job."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TypeVar

from flink_skills.options import Option, OptionFamily, SkillConfig, SkillOptions
from flink_skills.tools.base import Tool

__all__ = ["CallLimits", "Place"]

T = TypeVar("T")


@dataclass(frozen=True)
class CallLimits:
    """Of one tool. ``timeout`` is in seconds, 0: that of the turn; ``max_output`` in characters; ``max_concurrent`` the
    calls that run at once in a worker, 0: any number; ``retries`` is how often a call is made again that failed in a
    way that passes; with ``repeats`` a call is made again that may have been made before a crash."""

    timeout: float = 0.0
    max_output: int = 0
    max_concurrent: int = 0
    retries: int = 0
    repeats: bool = True

    @classmethod
    def of(cls, name: str, tool: Tool, config: SkillConfig) -> CallLimits:
        """Those of ``tool``, which models know as ``name``: what an option says of it by name, else what the tool says,
        else what all tools have.

        >>> config = SkillConfig({"skills.tool.timeout.price": "5 s"})
        >>> CallLimits.of("price", FunctionTool(price), config).timeout
        5.0
        """

        def chosen(family: OptionFamily[T], own: T | None, of_all: Option[T]) -> T:
            named = config.family(family)
            if name in named:
                return named[name]
            return config.get(of_all) if own is None else own

        retries = chosen(SkillOptions.TOOL_RETRIES_OF, None, SkillOptions.TOOL_RETRIES) if tool.idempotent else 0
        lost = chosen(SkillOptions.TOOL_LOST_CALLS_OF, None, SkillOptions.TOOL_LOST_CALLS)
        return cls(
            timeout=chosen(SkillOptions.TOOL_TIMEOUT_OF, tool.timeout, SkillOptions.TOOL_TIMEOUT),
            max_output=chosen(SkillOptions.TOOL_MAX_OUTPUT_OF, tool.max_output, SkillOptions.TOOL_MAX_OUTPUT),
            max_concurrent=chosen(
                SkillOptions.TOOL_MAX_CONCURRENT_OF, tool.max_concurrent, SkillOptions.TOOL_MAX_CONCURRENT
            ),
            retries=retries,
            repeats=tool.idempotent or lost == "repeat",
        )


class Place:
    """A place of a call among the calls of its tool that run at the same time.

    The call has it in an ``async with`` block. A call that waits for an answer leaves the place, because the turn can
    stop only when no other call waits for one.

    Args:
        places: The places of the tool.
    """

    __slots__ = ("_is_taken", "_places")

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._is_taken = False

    async def __aenter__(self) -> Place:
        await self.take()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    async def take(self) -> None:
        """Wait for a place, if the call has none."""
        if not self._is_taken:
            await self._places.acquire()
            self._is_taken = True

    def leave(self) -> None:
        """Return the place to other calls."""
        if self._is_taken:
            self._is_taken = False
            self._places.release()
