"""The running processes of a worker, each under its stream key."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Container, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flink_skills.errors import ExecutionError
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.runs.skill_process import Collect, Process

if TYPE_CHECKING:
    from flink_skills.tools.commands.runner import ShellRunner
    from flink_skills.tools.runs.prepared_run import PreparedRun

_SHOWN_COMMAND = 60
_ID_CHARS = 10
# The value of an option that is 0, which means no limit.
_NO_LIMIT_SECONDS = 366 * 86_400.0
# Time for the retry of an interrupted call. No model has the id of its process before.
_UNANSWERED_SECONDS = 60.0


@dataclass(frozen=True)
class Caller:
    """A model that calls, in a turn of a key.

    ``owner`` is the job's agent with the key. Its processes are counted together. ``agent`` is the agent of the
    model, which can be an agent that the job's agent called. ``skills`` are those that the model may use.
    """

    owner: str
    agent: str
    skills: Container[str]

    def sees(self, process: Process) -> bool:
        """Return True if a process exists for this model.

        A process has the values of ``skills.env`` for its skill, so it does not exist for models without that skill.
        """
        return process.owner == self.owner and process.agent == self.agent and process.run.skill_name in self.skills


class ProcessSessions:
    """Starts processes, finds them for later calls of the same key, and terminates unused ones.

    A process that no call uses for ``skills.exec.ttl`` is terminated. Its output is kept for the same time after its
    end. An instance belongs to one event loop, and has no task while nothing happens. :meth:`close` terminates all
    processes. Call it before the shell is closed.

    If the call that starts a process is interrupted before its result, the process is terminated after 60 s, or when
    its owner is at a limit and starts another process. A retry of the call before that uses the process.

    >>> sessions = ProcessSessions(shell, SkillConfig())
    >>> process = await sessions.start(prepared_run, collect, caller=caller, call_id="c1", tty=True)
    >>> sessions.get(caller, process.id) is process
    True
    """

    def __init__(self, shell: ShellRunner, config: SkillConfig) -> None:
        self._shell = shell
        self._ttl = config.get(SkillOptions.EXEC_TTL) or _NO_LIMIT_SECONDS
        #: Maximum duration of a process, in seconds.
        self.max_time: float = config.get(SkillOptions.EXEC_MAX_TIME) or _NO_LIMIT_SECONDS
        self._max_of_worker = config.get(SkillOptions.EXEC_MAX_SESSIONS)
        self._max_of_owner = config.get(SkillOptions.EXEC_MAX_SESSIONS_PER_KEY)
        self._processes: dict[tuple[str, str], Process] = {}
        # They count as running: the calls of one response start processes at the same time.
        self._starting: list[Process] = []
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def processes(self) -> list[Process]:
        """Return all processes, including those that have ended and can still be read."""
        return list(self._processes.values())

    async def start(self, run: PreparedRun, collect: Collect, *, caller: Caller, call_id: str, tty: bool) -> Process:
        """Start the command of ``run``, which is terminated after the timeout of the run.

        Its input starts with that of the run, and then stays open if the run has none or there is a terminal. If the
        same call was interrupted before its result, return the process that it started, and close ``run``.

        Raises:
            ArgumentError: There are too many processes, or the policy rejects the command.
            ExecutionError: The command cannot be started. As for all errors, the caller closes ``run``.
        """
        session_id = self._new_id(caller, call_id, run)
        known = self._processes.get((caller.owner, session_id))
        if known is not None:
            await run.close()
            return known
        await self._evict_abandoned(caller.owner)
        self._check_limits(caller)
        process = Process(session_id, run, collect, owner=caller.owner, agent=caller.agent, tty=tty)
        self._starting.append(process)
        try:
            live = await self._shell.start_process(
                run.command,
                workspace=run.workspace,
                cwd=run.cwd,
                run_dir=run.run_dir,
                skill_name=run.skill_name,
                call_id=call_id,
                env=run.env,
                stdin=run.stdin,
                tty=tty,
                timeout=run.timeout,
                on_output=process.take,
                on_start=run.span.start,
            )
        finally:
            self._starting.remove(process)
        if run.stdin and not tty:
            live.close_stdin()
        process.attach(live, self._on_end)
        if self._closed:
            await process.close()
            self._check_open()
        self._processes[caller.owner, session_id] = process
        self._schedule_sweep()
        return process

    @contextmanager
    def answering(self, process: Process) -> Iterator[None]:
        """Mark the call that started ``process`` as active until its result."""
        process.answering += 1
        try:
            yield
        finally:
            process.answering -= 1
            if not process.answered:
                process.used_at = self._now()
                self._schedule_sweep()

    def get(self, caller: Caller, session_id: str) -> Process:
        """Return the process ``session_id``. Raises :class:`ArgumentError` if it does not exist for the caller."""
        process = self._processes.get((caller.owner, session_id.strip()))
        if process is None or not caller.sees(process):
            running = [_shown(one) for one in self.processes() if not one.ended and caller.sees(one)]
            others = f" Running: {', '.join(running)}." if running else ""
            raise ArgumentError(
                f"unknown session_id {session_id[:_SHOWN_COMMAND]!r}: the process ended long ago, or its worker was "
                f"restarted since: start it again.{others}"
            )
        process.used_at = self._now()
        return process

    async def forget(self, owner: str) -> None:
        """Terminate the processes of an owner, drop their output, and wait for their end."""
        for process in self.processes():
            if process.owner == owner:
                self._drop(process)
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Terminate all processes, and wait for their end. A second call does nothing."""
        self._closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        for process in self.processes():
            self._drop(process)
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _new_id(self, caller: Caller, call_id: str, run: PreparedRun) -> str:
        """Return an id that a retry of the call has again, and that no other process of the owner has."""
        call = call_id or secrets.token_hex(16)
        for number in range(len(self._processes) + 1):
            # The representation has a separate text for each combination.
            seed = repr((caller.owner, caller.agent, run.skill_name, call, run.command, number))
            session_id = hashlib.sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()[:_ID_CHARS]
            found = self._processes.get((caller.owner, session_id))
            if found is None or not found.answered:
                break
        return session_id

    def _running(self) -> list[Process]:
        return [*(process for process in self._processes.values() if not process.ended), *self._starting]

    def _is_full(self, owner: str) -> bool:
        running = self._running()
        return len(running) >= self._max_of_worker or sum(one.owner == owner for one in running) >= self._max_of_owner

    async def _evict_abandoned(self, owner: str) -> None:
        """At a limit, terminate abandoned processes of the owner."""
        while self._is_full(owner) and not self._closed:
            abandoned = [one for one in self.processes() if one.owner == owner and one.is_abandoned and not one.ended]
            if not abandoned:
                return
            oldest = min(abandoned, key=lambda one: one.used_at)
            reason = "the call that started the process was interrupted, and another process needed its slot"
            # In a task, because this call can be cancelled.
            await asyncio.wait([self._in_background(oldest.stop(reason))])

    def _check_open(self) -> None:
        if self._closed:
            raise ExecutionError("the worker ends, so no process can be started any more")

    def _check_limits(self, caller: Caller) -> None:
        self._check_open()
        running = self._running()
        seen = ", ".join(_shown(process) for process in running if caller.sees(process))
        if sum(one.owner == caller.owner for one in running) >= self._max_of_owner:
            option = SkillOptions.EXEC_MAX_SESSIONS_PER_KEY.key
            raise ArgumentError(
                f"{self._max_of_owner} processes are running, the most that this job permits ({option}). "
                + (
                    f"End one, then start this one again: {seen}."
                    if seen
                    else "Run the command to its end, without a session, or try again later."
                )
            )
        if len(running) >= self._max_of_worker:
            others = f" Or end one of your processes: {seen}." if seen else ""
            raise ArgumentError(
                f"This worker runs {self._max_of_worker} processes for all its keys, the most that this job permits "
                f"({SkillOptions.EXEC_MAX_SESSIONS.key}). Run the command to its end, without a session, or try again "
                f"later.{others}"
            )

    def _on_end(self) -> None:
        """Keep only as many ended processes as there may be running ones."""
        if self._closed:
            return
        for owner in {process.owner for process in self._processes.values()}:
            self._drop_oldest([one for one in self.processes() if one.owner == owner], self._max_of_owner)
        self._drop_oldest(self.processes(), self._max_of_worker)
        self._schedule_sweep()

    def _drop_oldest(self, processes: list[Process], most: int) -> None:
        ended = [process for process in processes if process.ended]
        # A process is kept while the call that started it waits for the result.
        answered = sorted((one for one in ended if self._is_answered(one)), key=lambda one: one.ended_at)
        for process in answered[: max(0, len(ended) - most)]:
            self._drop(process)

    def _is_answered(self, process: Process) -> bool:
        """Return True if a model has a result of the process, or no retry of its call is expected any more."""
        left_at = max(process.ended_at, process.used_at)
        return process.answered or (process.is_abandoned and left_at + _UNANSWERED_SECONDS < self._now())

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _sweep(self) -> None:
        self._sweep_timer = None
        now = self._now()
        for process in self.processes():
            if self._due(process) > now:
                continue
            if process.ended:
                self._drop(process)
            elif not process.ended_because:
                self._in_background(process.stop(self._reason(process)))
        self._schedule_sweep()

    def _due(self, process: Process) -> float:
        """Return the time at which ``process`` is terminated, or removed if it has ended."""
        if process.ended:
            return max(process.ended_at, process.used_at) + self._ttl
        return process.used_at + (min(self._ttl, _UNANSWERED_SECONDS) if process.is_abandoned else self._ttl)

    def _reason(self, process: Process) -> str:
        if process.is_abandoned and self._ttl > _UNANSWERED_SECONDS:
            return (
                f"the call that started the process was interrupted, and not repeated within {_UNANSWERED_SECONDS:g} s"
            )
        return f"the process was not used for {self._ttl:g} s"

    def _schedule_sweep(self) -> None:
        if self._closed:
            return
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        due = [self._due(one) for one in self._processes.values() if one.ended or not one.ended_because]
        if due:
            self._sweep_timer = asyncio.get_running_loop().call_at(min(due) + 0.001, self._sweep)

    def _drop(self, process: Process) -> None:
        del self._processes[process.owner, process.id]
        self._in_background(process.close())

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _shown(process: Process) -> str:
    line = " ".join(process.run.command.split())
    return f"{process.id} ({line if len(line) <= _SHOWN_COMMAND else line[:_SHOWN_COMMAND] + '…'})"
