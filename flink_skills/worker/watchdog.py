"""Thread that watches a worker for a blocked event loop and for memory over its limit, and the exit codes of workers.

A worker is one event loop, and all its turns wait while one of them computes, or waits, without ``await``. Nothing on
the loop can see that, so a thread does: it names the turn with its stack, and in the end ends the process, as a crash
would.
Where even threads stand still (a C function that keeps Python's lock, such as a regular expression), a timer of
:mod:`faulthandler` does without them.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import math
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn

from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.errors import counted
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.telemetry.metrics import resident_memory

# Exit codes of a worker. The bridge logs them, and docs/troubleshooting.md lists them.
#: A turn blocked the event loop.
BLOCKED = 81
#: The process was over ``skills.worker.max-memory``.
OUT_OF_MEMORY = 82
#: Hung threads, or code that ignores its cancellation, made the process useless.
REPLACED = 83
#: The TaskManager sent a frame that this release cannot read.
BROKEN_STREAM = 84
#: A turn raised what every turn must handle: a defect of flink_skills.
BROKEN_WORKER = 85


_log = logging.getLogger("flink_skills.worker")
_TICK = 0.25
_STACK_FRAMES = 25
# Seconds by which faulthandler terminates the process later than the thread, which can log more.
_TIMER_MARGIN = 5.0


class Watchdog:
    """Watches the running loop of the thread that makes it, from :meth:`watch` on.

    ``turns`` says how many turns run, and ``name_of`` whose turn a task is (empty: it is of none).
    """

    def __init__(self, turns: Callable[[], int], name_of: Callable[[asyncio.Task[object]], str]) -> None:
        self._turns = turns
        self._name_of = name_of
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._beats = 0
        self._warning = math.inf
        self._limit = 0.0
        self._memory = 0
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._armed = False

    def watch(self, plan: AgentPlan, memory: int = 0) -> int:
        """Apply the limits of an agent that was opened. The largest limit of several agents applies.

        ``memory`` is the limit in bytes for an agent that sets none; 0 means no limit. Return the limit of the process.
        """
        config = SkillConfig(plan.options)
        turn = config.get(SkillOptions.TURN_TIMEOUT)
        limit = config.get(SkillOptions.WORKER_MAX_BLOCK) or turn or math.inf
        memory = memory if (own := config.get(SkillOptions.WORKER_MAX_MEMORY)) is None else own
        first = self._thread is None
        self._warning = config.get(SkillOptions.WORKER_BLOCK_WARNING) or math.inf
        self._limit = max(self._limit, limit)
        self._memory = memory if first else max(self._memory, memory) if memory and self._memory else 0
        if first:
            self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
            self._beat()
            self._thread.start()
        return self._memory

    def stop(self) -> None:
        """Stop the thread, because the worker closes, which has a separate deadline."""
        self._stopped.set()
        self._disarm()

    def _beat(self) -> None:
        if self._stopped.is_set():
            return
        self._beats += 1
        if self._turns():
            self._arm()
        else:
            self._disarm()
        self._loop.call_later(1.0, self._beat)

    def turn_begins(self) -> None:
        """Start the timer, because a turn may block the loop before the next beat."""
        if not self._armed and not self._stopped.is_set():
            self._arm()

    def _arm(self) -> None:
        if math.isfinite(self._limit):
            # Each call restarts the timer.
            faulthandler.dump_traceback_later(self._limit + _TIMER_MARGIN, exit=True, file=2)
            self._armed = True

    def _disarm(self) -> None:
        if self._armed:
            faulthandler.cancel_dump_traceback_later()
            self._armed = False

    def _run(self) -> None:
        beats, blocked, is_logged = -1, 0.0, False
        while not self._stopped.wait(_TICK):
            if self._memory:
                self._check_memory()
            # Counted in ticks of this thread instead of a clock, because a process that was stopped, or got no CPU
            # time, is not blocked.
            blocked = blocked + _TICK if self._beats == beats else 0.0
            beats = self._beats
            # The loop itself beats once a second.
            is_logged = is_logged and blocked > 1.0
            if blocked >= self._warning + 1.0 and not is_logged:
                is_logged = True
                self._log_block(blocked - 1.0)
            if blocked >= self._limit + 1.0 and self._turns():
                self._log_block(blocked - 1.0)
                self._end(
                    BLOCKED,
                    f"the worker is ended, because its event loop was blocked for {self._limit:g} s "
                    f"({SkillOptions.WORKER_MAX_BLOCK.key}, else {SkillOptions.TURN_TIMEOUT.key}); its turns resume in "
                    "the next one",
                )

    def _log_block(self, seconds: float) -> None:
        task = asyncio.current_task(self._loop)
        whose = self._name_of(task) if task is not None else ""
        frame = sys._current_frames().get(self._loop_thread)
        stack = traceback.format_stack(frame)[-_STACK_FRAMES:] if frame is not None else []
        # The frames of the loop are in every stack.
        ours = next((i for i, text in enumerate(stack) if "asyncio/events.py" in text), -1) + 1
        del frame
        _log.error(
            "%s has blocked the worker's event loop for %.0f s, while this worker has %s; await what waits, "
            "and put what computes into ctx.step(name, function) or asyncio.to_thread. It is here:\n%s",
            whose or "something",
            seconds,
            counted(self._turns(), "turn"),
            "".join(stack[ours:]).rstrip(),
        )

    def _check_memory(self) -> None:
        # None outside of Linux. Without a free descriptor the check is repeated later.
        used = resident_memory()
        if used is not None and used > self._memory:
            turns = counted(self._turns(), "turn")
            self._end(
                OUT_OF_MEMORY,
                f"the worker is ended, because it holds {used >> 20} MiB of memory, more than "
                f"{SkillOptions.WORKER_MAX_MEMORY.key} = {self._memory >> 20} MiB; its {turns} will run in "
                "the next one",
            )

    @staticmethod
    def _end(code: int, why: str) -> NoReturn:
        _log.error("%s", why)
        logging.shutdown()
        os._exit(code)
