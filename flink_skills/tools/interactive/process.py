"""One process of a model's: what it printed, what is written to it, how it ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from flink_skills.errors import SkillsError
from flink_skills.execution import CommandResult
from flink_skills.execution.live import LiveProcess
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext
from flink_skills.tools.commands.hidden import HiddenValues
from flink_skills.tools.interactive.interaction import Interaction, find_interaction
from flink_skills.tools.interactive.ring import START, OutputRing, Piece, Position
from flink_skills.tools.interactive.shown_text import ShownText

__all__ = ["Outcome", "Process"]

_log = logging.getLogger("flink_skills.shell")

# The output of a program comes in bursts: silence of this length ends a burst.
_SETTLE_SECONDS = 0.075
_GRACE_SECONDS = 2.0
_SEEN_FOR_INTERACTION = 4_096
_MAX_OF_RESULT = 16 << 10
# A program that floods its output is read no faster than this, about 10 MiB/s, and waits meanwhile.
_BURST_BYTES = 1 << 20
_REST_SECONDS = 0.1


class Outcome(Protocol):
    """What is to be done when a process has ended, besides giving its output."""

    async def finish(
        self, result: CommandResult, context: ToolContext
    ) -> tuple[dict[str, Any], tuple[Mapping[str, Any], ...]] | None:
        """The result object for the model, and effects; None for a process that has no result besides its output.

        Called again if it was cancelled or raised an error that is ``retryable``.
        """

    def started(self) -> None:
        """Record that the process is permitted and about to start."""

    def ended(self) -> None:
        """The process has ended just now; called once, before anything else."""

    async def close(self) -> None:
        """Nobody will ask for the result any more."""


class Process:
    """A process that was started by a call and is used by others. Made by :class:`ProcessSessions`.

    Attributes:
        id: What the model calls it.
        command: Its command line, for texts.
        tty: Whether it has a terminal.
        result: How it ended, without its output; None while it runs.
        ended_at: When it ended, in seconds of the loop's clock.
        used_at: When a call used it last.
        agent: The agent whose model started it.
        skill: The skill that it was started for; None for a command outside of skills.
        answered: Whether the call that started it has been answered.
        answering: How many calls that started it wait for their answer: one, and more if it is made again meanwhile.
        ended_because: Why it was ended by somebody other than the model; empty if it was not.
        killed: Whether the model had it ended.
    """

    def __init__(
        self,
        session_id: str,
        command: str,
        hidden: HiddenValues,
        *,
        tty: bool,
        agent: str = "",
        skill: str | None = None,
        outcome: Outcome | None = None,
    ) -> None:
        self.id = session_id
        self.command = command
        self.tty = tty
        self.result: CommandResult | None = None
        self.ended_at = 0.0
        self.agent = agent
        self.skill = skill
        self.answered = False
        self.answering = 0
        self.ended_because = ""
        self.killed = False
        self._hidden = hidden
        self._outcome = outcome
        self._loop = asyncio.get_running_loop()
        self.used_at = self._loop.time()
        self._live: LiveProcess | None = None
        self._watching: asyncio.Task[None] | None = None
        self._ring = OutputRing()
        self._texts: dict[int, ShownText] = {}
        self._seen: Position = START
        self._input_at: Position = START
        self._printed_at = 0.0
        self._printed = asyncio.Event()
        self._ended = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self._unanswered_writes: set[str] = set()
        self._burst = 0
        self._burst_began = 0.0
        self._resting: asyncio.TimerHandle | None = None
        self._finishing = asyncio.Lock()
        self._finished: tuple[dict[str, Any], tuple[Mapping[str, Any], ...]] | None = None
        self._delivered = False

    def attach(self, live: LiveProcess, on_end: Callable[[], None]) -> None:
        """It is ``live`` from now on; ``on_end`` is called when it has ended."""
        self._live = live
        self._watching = self._loop.create_task(self._watch(live, on_end))

    def take(self, stream: int, data: bytes) -> None:
        """Take output as it comes."""
        text = self._texts.get(stream)
        if text is None:
            text = self._texts[stream] = ShownText(self._hidden)
        self._print(text.add(data))
        self._slow_down(len(data))

    async def _watch(self, live: LiveProcess, on_end: Callable[[], None]) -> None:
        try:
            result = await live.wait()
        except Exception as error:  # a process of which nothing is known any more must not look as if it ran
            _log.exception("waiting for the end of process %s (%s) failed", self.id, self.command)
            result = CommandResult(error=f"the end of the process is unknown: {type(error).__name__}: {error}")
        if self._outcome is not None:
            self._outcome.ended()
        if self._resting is not None:
            self._resting.cancel()
        if self._writing is not None:
            self._writing.cancel()
        for text in self._texts.values():
            self._print(text.end())
        self.result = result
        self.ended_at = self._loop.time()
        self._ended.set()
        self._printed.set()
        on_end()

    @property
    def ended(self) -> bool:
        return self.result is not None

    @property
    def left_alone(self) -> bool:
        """Whether the call that started it was interrupted before a model was told of it."""
        return not (self.answered or self.answering)

    async def kill(self) -> str:
        """End it, with SIGTERM first; how it is with it now: ``exited`` if it had ended before, or ``killed``."""
        if self.result is None and self._live is not None:
            self.killed = True
            await self._live.terminate(_GRACE_SECONDS)
            await self._ended.wait()
        return "killed" if self.killed else "exited"

    async def stop(self, because: str) -> None:
        """End it as :meth:`kill` does, for a reason that the model is told."""
        if self.result is None and self._live is not None:
            self.ended_because = self.ended_because or because
            await self._live.terminate(_GRACE_SECONDS)
            await self._ended.wait()

    async def close(self) -> None:
        """End it at once and forget about its result."""
        if self._live is not None:
            self._live.close()
            await self._ended.wait()
        if self._outcome is not None:
            outcome, self._outcome = self._outcome, None
            with suppress(SkillsError):  # what cannot be tidied up is in a workspace that goes, too
                await outcome.close()

    def _print(self, text: str) -> None:
        if text:
            self._ring.add(text)
            self._printed_at = self._loop.time()
            self._printed.set()

    def _slow_down(self, size: int) -> None:
        now = self._loop.time()
        if now - self._burst_began > _REST_SECONDS:
            self._burst, self._burst_began = 0, now
        self._burst += size
        if self._burst > _BURST_BYTES and self._resting is None and self._live is not None:
            self._live.pause_output()
            self._resting = self._loop.call_later(_REST_SECONDS, self._go_on)

    def _go_on(self) -> None:
        self._resting = None
        if self._live is not None:
            self._live.resume_output()

    async def wait_for_output(self, deadline: float, *, after_input: bool = False) -> None:
        """Wait until it has printed something new and then paused, or has ended; to ``deadline`` at most.

        ``after_input`` counts only what it prints after what was written last.
        """
        while self.result is None:
            new = self._ring.end.char > (self._input_at if after_input else self._seen).char
            now = self._loop.time()
            # While its output rests, it is not silent.
            paused_at = self._printed_at if self._resting is None else now
            until = min(deadline, paused_at + _SETTLE_SECONDS) if new else deadline
            if until <= now:
                return
            event = self._ended if new else self._printed
            if not new:
                event.clear()
            await _wait(event, until - now)

    async def wait_for_end(self, deadline: float) -> None:
        """Wait until it has ended; to ``deadline`` at most."""
        if self.result is None:
            await _wait(self._ended, deadline - self._loop.time())

    def read(self, *, lines: int | None, chars: int) -> Piece:
        """What was printed and not read yet, at most so much of it."""
        piece = self._ring.read(self._seen, lines=lines, chars=chars)
        self._seen = piece.end
        # A value may have become known since it was printed.
        return replace(piece, text=self._hidden.in_text(piece.text))

    @property
    def is_read(self) -> bool:
        """Whether all that was printed has been read."""
        return self._seen == self._ring.end

    def interaction(self) -> Interaction | None:
        """What it seems to wait for."""
        if self.result is not None:
            return None
        return find_interaction(self._ring.tail(self._input_at, _SEEN_FOR_INTERACTION))

    async def write(self, data: bytes, call_id: str, deadline: float, *, ends: bool = False) -> None:
        """Write ``data`` to its input, and end that if it ``ends``; waits to ``deadline`` at most.

        What the call ``call_id`` has written is not written again before that call is answered. Raises
        :class:`ArgumentError` where it takes no input; one that has ended is no error.
        """
        live = self._live
        if live is None or self.result is not None or call_id in self._unanswered_writes:
            return
        if self.reads_slowly:
            raise ArgumentError(
                f"Process {self.id} has not read what was written to it before, so nothing was written now: poll it, "
                "and write again after it has read."
            )
        self._input_at = self._ring.end
        if call_id:
            self._unanswered_writes.add(call_id)
        # A task of its own: a call that is cancelled must not leave half a line behind.
        self._writing = self._loop.create_task(_write(live, data, ends))
        self._writing.add_done_callback(_note_failure)
        await asyncio.wait([self._writing], timeout=max(0.0, deadline - self._loop.time()))
        if self._writing.done() and not self._writing.cancelled():
            error = self._writing.exception()
            if error is not None and not live.ended:
                self._unanswered_writes.discard(call_id)
                raise ArgumentError(f"Process {self.id} takes no input: {error}") from error

    @property
    def reads_slowly(self) -> bool:
        """Whether it has not yet read all that was written to it."""
        return self.result is None and self._writing is not None and not self._writing.done()

    async def finish(self, context: ToolContext) -> None:
        """Have the result object made, if it has ended; :meth:`deliver` gives it."""
        async with self._finishing:
            if self.result is not None and self._outcome is not None and self._finished is None:
                try:
                    self._finished = await self._outcome.finish(self._with_output(self.result), context)
                except SkillsError as error:
                    if error.retryable:
                        raise
                    self._finished = ({"error": str(error)}, ())
                outcome, self._outcome = self._outcome, None
                await outcome.close()

    def _with_output(self, result: CommandResult) -> CommandResult:
        """``result`` with the end of what was printed as its stdout: the streams came as one."""
        printed = self._ring.end.char
        kept = self._ring.tail(START, _MAX_OF_RESULT)
        # Not a character that needs more bytes than it is wide may make it longer than a result can show.
        encoded = self._hidden.in_text(kept).encode("utf-8", "replace")
        data = encoded[-_MAX_OF_RESULT:]
        return replace(result, stdout=data, stdout_dropped=printed - len(kept) + len(encoded) - len(data))

    def deliver(self, call_id: str) -> tuple[dict[str, Any] | None, tuple[Mapping[str, Any], ...]]:
        """The result object and its effects: the first time there are any, and then never again.

        The call ``call_id`` is answered with it.
        """
        self.used_at = self._loop.time()
        self._unanswered_writes.discard(call_id)
        if self._finished is None or self._delivered:
            return None, ()
        self._delivered = True
        return self._finished


async def _write(live: LiveProcess, data: bytes, ends: bool) -> None:
    if data:
        await live.write(data)
    if ends:
        live.close_stdin()


def _note_failure(writing: asyncio.Task[None]) -> None:
    # What waited for the program to read on may fail long after the call that wrote it.
    if not writing.cancelled() and writing.exception() is not None:
        _log.debug("what was written to a process was not read: %s", writing.exception())


async def _wait(event: asyncio.Event, seconds: float) -> None:
    waiting = asyncio.ensure_future(event.wait())
    try:
        # Not wait_for(), which before Python 3.12 loses a cancellation that comes together with the event.
        await asyncio.wait([waiting], timeout=max(0.0, seconds))
    finally:
        waiting.cancel()
