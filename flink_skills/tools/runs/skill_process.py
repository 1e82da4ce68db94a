"""A process that a model started: its output, its input, its prompts and its result."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from flink_skills.errors import SkillsError
from flink_skills.execution import CommandResult
from flink_skills.execution.execution_backend import LiveProcess
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext
from flink_skills.tools.runs.process_output import START, OutputRing, Piece, Position, ShownText

if TYPE_CHECKING:
    from flink_skills.tools.runs.prepared_run import PreparedRun

_PROMPT = re.compile(r"press (?:enter|return|any key)|type your", re.IGNORECASE)
# Possible answers at the end: "[y/N]", "(yes/no)", "[Y,n,q]:".
_CHOICE = re.compile(r"[\[(]\s*(?:y|yes|n|no)(?:\s*[/|,]\s*[\w?]+)+\s*[\])]\s*[:?>]*$", re.IGNORECASE)
_NUMBER = re.compile(r"\b(?:enter|choose|select|pick)\b.{0,40}\bnumber\b", re.IGNORECASE)
_ITEM = re.compile(r"\s*[\[(]?\d{1,3}[.)\]](?!\d)\s*\S")
_MAX_HINT_LENGTH = 200


@dataclass(frozen=True)
class Interaction:
    """The input that a program probably waits for. ``hint`` is the line that asks for it."""

    kind: Literal["prompt", "selection"]
    hint: str

    def to_json(self) -> dict[str, object]:
        return {"needs_input": True, "kind": self.kind, "hint": self.hint}


def find_interaction(text: str) -> Interaction | None:
    """Return the input that a program waits for after the output ``text``. Return None if it waits for none.

    This is a guess. A line of a report can end with a colon as well.

    >>> find_interaction("1. red\\n2. blue\\nColour? ")
    Interaction(kind='selection', hint='Colour?')
    >>> find_interaction("done\\n") is None
    True
    """
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines:
        return None
    last = lines[-1].strip()
    hint = last if len(last) <= _MAX_HINT_LENGTH else "…" + last[-_MAX_HINT_LENGTH:]
    if _NUMBER.search(last) or sum(1 for line in lines if _ITEM.match(line)) >= 2:
        return Interaction("selection", hint)
    if last.endswith((":", "?")) or _PROMPT.search(last) or _CHOICE.search(hint):
        return Interaction("prompt", hint)
    return None


_log = logging.getLogger("flink_skills.shell")

# The output of a program comes in bursts: silence of this length ends a burst.
_SETTLE_SECONDS = 0.075
_GRACE_SECONDS = 2.0
_SEEN_FOR_INTERACTION = 4_096
_MAX_OF_RESULT = 16 << 10
# Output is read at about 10 MiB/s at most. A faster program waits.
_BURST_BYTES = 1 << 20
_REST_SECONDS = 0.1


Collect = Callable[[CommandResult, ToolContext], Awaitable[tuple[dict[str, Any], tuple[Mapping[str, Any], ...]]]]
"""Creates the result object of a process that has ended, and its effects.

It is called again if it was cancelled or raised an error that is ``retryable``.
"""


class Process:
    """A process that one call starts and later calls use. :class:`ProcessSessions` creates it.

    Attributes:
        id: Its id for the model.
        run: The prepared run that it executes.
        tty: True if it has a terminal.
        owner: The owner of the call that started it.
        result: Its result without its output. None while it runs.
        ended_at: The time of its end, in seconds of the event loop's clock.
        used_at: The time of the last call that used it.
        agent: The agent of the model that started it.
        answered: True if the call that started it has its result.
        answering: Number of calls that started it and wait for their result. It is above 1 if the call is repeated.
        ended_because: The reason if the runtime ended it, else empty.
        killed: True if the model ended it.
    """

    def __init__(
        self, session_id: str, run: PreparedRun, collect: Collect, *, owner: str, agent: str, tty: bool
    ) -> None:
        self.id = session_id
        self.run = run
        self.tty = tty
        self.result: CommandResult | None = None
        self.ended_at = 0.0
        self.owner = owner
        self.agent = agent
        self.answered = False
        self.answering = 0
        self.ended_because = ""
        self.killed = False
        self._collect = collect
        self._hidden = run.shell.hidden
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
        """Use the running process ``live``. Call ``on_end`` when it has ended."""
        self._live = live
        self._watching = self._loop.create_task(self._watch(live, on_end))

    def take(self, stream: int, data: bytes) -> None:
        """Receive output."""
        text = self._texts.get(stream)
        if text is None:
            text = self._texts[stream] = ShownText(self._hidden)
        self._print(text.add(data))
        self._slow_down(len(data))

    async def _watch(self, live: LiveProcess, on_end: Callable[[], None]) -> None:
        try:
            result = await live.wait()
        except Exception as error:  # an unknown process must not appear to run
            _log.exception("waiting for the end of process %s (%s) failed", self.id, self.run.command)
            result = CommandResult(error=f"the end of the process is unknown: {type(error).__name__}: {error}")
        self.run.span.end()
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
    def is_abandoned(self) -> bool:
        """True if the call that started it was interrupted before a model got the result."""
        return not (self.answered or self.answering)

    async def kill(self) -> str:
        """End it, first with SIGTERM. Return ``killed``, or ``exited`` if it had ended before."""
        if self.result is None and self._live is not None:
            self.killed = True
            await self._live.terminate(_GRACE_SECONDS)
            await self._ended.wait()
        return "killed" if self.killed else "exited"

    async def stop(self, because: str) -> None:
        """End it as :meth:`kill` does. The model gets the reason."""
        if self.result is None and self._live is not None:
            self.ended_because = self.ended_because or because
            await self._live.terminate(_GRACE_SECONDS)
            await self._ended.wait()

    async def close(self) -> None:
        """End it immediately and drop its result."""
        if self._live is not None:
            self._live.close()
            await self._ended.wait()
        with suppress(SkillsError):  # the workspace with the remaining files is removed as well
            await self.run.close()

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
            self._resting = self._loop.call_later(_REST_SECONDS, self._resume_output)

    def _resume_output(self) -> None:
        self._resting = None
        if self._live is not None:
            self._live.resume_output()

    async def wait_for_output(self, deadline: float, *, after_input: bool = False) -> None:
        """Wait until it has printed something new and then paused, until it has ended, or until ``deadline``.

        ``after_input`` ignores output before the last input.
        """
        while self.result is None:
            new = self._ring.end.char > (self._input_at if after_input else self._seen).char
            now = self._loop.time()
            # While reading is suspended, the process is not silent.
            paused_at = self._printed_at if self._resting is None else now
            until = min(deadline, paused_at + _SETTLE_SECONDS) if new else deadline
            if until <= now:
                return
            event = self._ended if new else self._printed
            if not new:
                event.clear()
            await _wait(event, until - now)

    def read(self, *, lines: int, chars: int) -> Piece:
        """Return unread output, at most ``lines`` lines and ``chars`` characters."""
        piece = self._ring.read(self._seen, lines=lines, chars=chars)
        self._seen = piece.end
        # A value may have become hidden after it was printed.
        return replace(piece, text=self._hidden.in_text(piece.text))

    def interaction(self) -> Interaction | None:
        """Return the interaction that it probably waits for, None for none."""
        if self.result is not None:
            return None
        return find_interaction(self._ring.tail(self._input_at, _SEEN_FOR_INTERACTION))

    async def write(self, data: bytes, call_id: str, deadline: float, *, ends: bool = False) -> None:
        """Write ``data`` to its input, and close the input if it ``ends``. Wait until ``deadline`` at most.

        A repeated call with the same ``call_id`` does not write again before its result was delivered. Raises
        :class:`ArgumentError` if the process accepts no input. A process that has ended is not an error.
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
        # In a separate task: a cancelled call must not leave half a line.
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
        """True if it has not yet read all input."""
        return self.result is None and self._writing is not None and not self._writing.done()

    async def finish(self, context: ToolContext) -> None:
        """Create the result object if it has ended. :meth:`deliver` returns it."""
        async with self._finishing:
            if self.result is not None and self._finished is None:
                try:
                    self._finished = await self._collect(self._with_output(self.result), context)
                except SkillsError as error:
                    if error.retryable:
                        raise
                    self._finished = ({"error": str(error)}, ())
                await self.run.close()

    def _with_output(self, result: CommandResult) -> CommandResult:
        """Return ``result`` with the end of the output as stdout, because the streams are merged."""
        printed = self._ring.end.char
        kept = self._ring.tail(START, _MAX_OF_RESULT)
        # Characters with several bytes must not exceed the maximum size of a result.
        encoded = self._hidden.in_text(kept).encode("utf-8", "replace")
        data = encoded[-_MAX_OF_RESULT:]
        return replace(result, stdout=data, stdout_dropped=printed - len(kept) + len(encoded) - len(data))

    def deliver(self, call_id: str) -> tuple[dict[str, Any] | None, tuple[Mapping[str, Any], ...]]:
        """Return the result object and its effects for the call ``call_id``. They are returned only once."""
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
    # Input that waits for the program to read can fail long after the call that wrote it.
    if not writing.cancelled() and writing.exception() is not None:
        _log.debug("what was written to a process was not read: %s", writing.exception())


async def _wait(event: asyncio.Event, seconds: float) -> None:
    waiting = asyncio.ensure_future(event.wait())
    try:
        # Not wait_for(), which before Python 3.12 loses a cancellation that comes together with the event.
        await asyncio.wait([waiting], timeout=max(0.0, seconds))
    finally:
        waiting.cancel()
