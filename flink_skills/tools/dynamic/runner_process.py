"""The worker's side of a program that runs the tools of a skill: one request, one answer."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flink_skills.errors import ExecutionError
from flink_skills.execution import CommandResult
from flink_skills.execution.execution_backend import LiveProcess, OnOutput
from flink_skills.tools.dynamic.runner_output import RunnerOutput

__all__ = ["Reply", "RunnerProcess"]

# What was printed comes through another pipe than the answer, and a tool may have closed that one.
_PRINTED_WITHIN_SECONDS = 0.5
_GRACE_SECONDS = 0.5


@dataclass(frozen=True)
class Reply:
    """What came of a request: the ``line`` of the answer, or None and why.

    ``timed_out``, and ``too_long`` for an answer or for what was printed, say why it was ended; ``ended`` is how it
    ended, where it did. ``printed`` is the beginning and the end of what the tool printed, with ``dropped`` bytes
    missing between them.
    """

    line: bytes | None = None
    printed: bytes = b""
    dropped: int = 0
    timed_out: bool = False
    too_long: bool = False
    ended: CommandResult | None = None


class RunnerProcess:
    """A running program. Takes one request at a time; belongs to one event loop.

    It is of no use any more once it has ended, ran into a limit, or said what nobody had asked it for.
    """

    def __init__(self, process: LiveProcess, output: RunnerOutput) -> None:
        self._process = process
        self._output = output
        self._life = asyncio.ensure_future(process.wait())
        output.on_broken = process.close

    @classmethod
    async def start(cls, start: Callable[[OnOutput], Awaitable[LiveProcess]]) -> RunnerProcess:
        """Start the program by ``start``; raises what that raises."""
        output = RunnerOutput()
        return cls(await start(output.add), output)

    @property
    def usable(self) -> bool:
        """Whether it can be asked again."""
        return not (self._output.broken or self._process.ended or self._life.done())

    async def ask(self, request: Mapping[str, Any], *, room: int, timeout: float) -> Reply:
        """Ask for an answer of at most ``room`` bytes within ``timeout`` seconds.

        Whatever goes wrong is said by the reply, and ends the program. So does to cancel the caller.
        """
        mark = secrets.token_hex(8)
        # Named after the request: what a tool wrote in place of the program's answer may come before that one.
        data = json.dumps({**request, "id": mark, "room": room, "mark": mark}).encode() + b"\n"
        output = self._output
        output.expect(room, f"\0{mark}\0\n".encode(), f'{{"id": "{mark}", '.encode())
        timed_out, ended = False, None
        try:
            await asyncio.wait_for(self._exchange(data), timeout)
        except asyncio.TimeoutError:
            timed_out = True
        except BaseException:
            await asyncio.shield(self.end())
            raise
        finally:
            output.expect_nothing()
        line = None if timed_out else output.line
        if line is None:
            ended = await self.end()
        printed, dropped = output.printed()
        return Reply(line, printed, dropped, timed_out, output.too_long, ended)

    async def end(self) -> CommandResult:
        """End the program with all that it started, and wait for that."""
        self._output.broken = True
        if not self._life.done():
            await self._process.terminate(_GRACE_SECONDS)
        return await self._life

    def close(self) -> None:
        """End it without waiting."""
        self._output.broken = True
        self._process.close()

    async def _exchange(self, data: bytes) -> None:
        """Send the request, and wait until the answer and what was printed are there, or will not come."""
        try:
            await self._process.write(data)
        except ExecutionError:
            return  # how it ended says why
        answered = asyncio.ensure_future(self._output.answered.wait())
        try:
            await asyncio.wait([answered, self._life], return_when=asyncio.FIRST_COMPLETED)
        finally:
            answered.cancel()
        if self._output.line is None:
            return
        printed = asyncio.ensure_future(self._output.all_printed.wait())
        try:
            await asyncio.wait([printed], timeout=_PRINTED_WITHIN_SECONDS)
        finally:
            printed.cancel()
