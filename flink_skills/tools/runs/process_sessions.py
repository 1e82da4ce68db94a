"""The running processes of a worker, each under the stream key whose call started it."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Container, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flink_skills.errors import ExecutionError
from flink_skills.execution import Workspace
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.runs.skill_process import Outcome, Process

if TYPE_CHECKING:
    from flink_skills.tools.commands.runner import ShellRunner
    from flink_skills.tools.runs.skill_process import Process

__all__ = ["Caller", "ProcessSessions"]


@dataclass(frozen=True)
class Caller:
    """A model that calls, in a turn of a key.

    ``owner`` stands for the job's agent and the key, whose processes count together. ``agent`` is the agent of the
    model, which may be one that the job's agent called, and ``skills`` are those the model may use.
    """

    owner: str
    agent: str
    skills: Container[str]

    def sees(self, process: Process) -> bool:
        """Whether ``process``, one of the same owner, exists for this model.

        A process of a skill has the values of ``skills.env`` for it, so it is not for models without that skill.
        """
        return process.agent == self.agent and process.skill in self.skills


_SHOWN_COMMAND = 60
_ID_CHARS = 10
# Where the options say 0; what a process is given has to be a time.
_NO_LIMIT_SECONDS = 366 * 86_400.0
# For the retry of a call that was interrupted: without its answer no model knows of the process.
_UNANSWERED_SECONDS = 60.0


class ProcessSessions:
    """Starts processes, finds them again for later calls of the same key, and ends those that nobody uses.

    A process that is not used for ``skills.exec.ttl`` is ended; what it printed is kept as long after its end. Belongs
    to one event loop, and needs no task while nothing happens. :meth:`close` ends all processes; do that before the
    shell is closed.

    One whose call was interrupted before it was answered is ended 60 s later, or as soon as its owner is at a limit and
    starts another one, unless the call has come again.

    >>> sessions = ProcessSessions(shell, SkillConfig())
    >>> process = await sessions.start("python3 -i", caller=caller, call_id="c1", workspace=workspace, tty=True)
    >>> sessions.get(caller, process.id) is process
    True
    """

    def __init__(self, shell: ShellRunner, config: SkillConfig) -> None:
        self._shell = shell
        self._ttl = config.get(SkillOptions.EXEC_TTL) or _NO_LIMIT_SECONDS
        self._max_time = config.get(SkillOptions.EXEC_MAX_TIME) or _NO_LIMIT_SECONDS
        self._most = config.get(SkillOptions.EXEC_MAX_SESSIONS)
        self._most_per_key = config.get(SkillOptions.EXEC_MAX_SESSIONS_PER_KEY)
        self._owners: dict[str, dict[str, Process]] = {}
        # Those that are about to be started count, too: calls of one response come at once.
        self._starting: dict[str, list[Process]] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[Any]] = set()
        self._closed = False

    @property
    def longest(self) -> float:
        """The longest life of a process, in seconds."""
        return self._max_time

    def processes(self) -> list[Process]:
        """Return all processes that are kept, those included that have ended and can still be read."""
        return [process for processes in self._owners.values() for process in processes.values()]

    async def start(
        self,
        command: str,
        *,
        caller: Caller,
        call_id: str,
        workspace: Workspace,
        cwd: Path | None = None,
        run_dir: Path | None = None,
        skill_name: str,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        stdin_ends: bool = False,
        tty: bool = False,
        timeout: float | None = None,
        outcome: Outcome | None = None,
    ) -> Process:
        """Start ``command``; it is ended after ``timeout`` seconds, ``skills.exec.max-time`` at most.

        Its input begins with ``stdin`` and then stays open, unless ``stdin_ends``.

        A call that was interrupted before it was answered gets the process that it had started, and ``outcome`` is
        closed. Raises :class:`ArgumentError` where there are too many or the policy refuses the command, and
        :class:`~flink_skills.errors.ExecutionError` where it cannot be started; ``outcome`` is the caller's then.
        """
        owner = caller.owner
        session_id = self._new_id(caller, call_id, skill_name, command)
        known = self._owners.get(owner, {}).get(session_id)
        if known is not None:
            if outcome is not None:
                await outcome.close()
            return known
        await self._make_room(owner)
        self._check_room(caller)
        process = Process(
            session_id,
            command,
            self._shell.hidden,
            tty=tty,
            agent=caller.agent,
            skill=skill_name,
            outcome=outcome,
        )
        self._starting.setdefault(owner, []).append(process)
        try:
            live = await self._shell.start_process(
                command,
                workspace=workspace,
                cwd=cwd,
                run_dir=run_dir,
                skill_name=skill_name,
                call_id=call_id,
                env=env or {},
                stdin=stdin,
                tty=tty,
                timeout=min(timeout or self._max_time, self._max_time),
                on_output=process.take,
                on_start=outcome.started if outcome is not None else None,
            )
        finally:
            self._starting[owner].remove(process)
            if not self._starting[owner]:
                del self._starting[owner]
        if stdin_ends:
            live.close_stdin()
        process.attach(live, self._on_end)
        if self._closed:
            await process.close()
            raise ExecutionError("the worker ends, so no process can be started any more")
        self._owners.setdefault(owner, {})[session_id] = process
        self._plan_sweep()
        return process

    @contextmanager
    def answering(self, process: Process) -> Iterator[None]:
        """For the call that started ``process``: from :meth:`start` to the answer it is not left alone."""
        process.answering += 1
        try:
            yield
        finally:
            process.answering -= 1
            if not process.answered:
                process.used_at = self._now()
                self._plan_sweep()

    def get(self, caller: Caller, session_id: str) -> Process:
        """The process ``session_id``; raises :class:`ArgumentError` where the caller sees none of this id."""
        processes = self._owners.get(caller.owner, {})
        process = processes.get(session_id.strip())
        if process is None or not caller.sees(process):
            running = [_shown(one) for one in processes.values() if not one.ended and caller.sees(one)]
            there = f" Running: {', '.join(running)}." if running else ""
            raise ArgumentError(
                f"unknown session_id {session_id[:_SHOWN_COMMAND]!r}: the process ended long ago, or its worker was "
                f"restarted since: start it again.{there}"
            )
        process.used_at = self._now()
        return process

    def forget(self, caller: Caller, process: Process) -> None:
        """Drop a process that has ended and of which everything was told."""
        self._owners.get(caller.owner, {}).pop(process.id, None)
        self._end(process)
        self._drop_empty()

    async def close(self) -> None:
        """End all processes and wait for that. Calling it again does nothing."""
        self._closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        processes = self.processes()
        self._owners.clear()
        for process in processes:
            self._end(process)
        while self._ending:
            await asyncio.wait(self._ending)

    def _new_id(self, caller: Caller, call_id: str, skill_name: str, command: str) -> str:
        """An id that a retry of the same call finds again, and that no other process of the owner has."""
        processes = self._owners.get(caller.owner, {})
        for number in range(len(processes) + 1):
            # No two of them alike, whatever characters are in the texts.
            seed = repr((caller.owner, caller.agent, skill_name, call_id or secrets.token_hex(16), command, number))
            session_id = hashlib.sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()[:_ID_CHARS]
            found = processes.get(session_id)
            if found is None or not found.answered:
                break
        return session_id

    async def _make_room(self, owner: str) -> None:
        """At a limit, an owner's processes of which no model knows make room for new ones."""
        while self._is_full(owner):
            left = [one for one in self._owners.get(owner, {}).values() if one.left_alone and not one.ended]
            if self._closed or not left:
                return
            oldest = min(left, key=lambda one: one.used_at)
            reason = "the call that started the process was interrupted, and another process needed its slot"
            # Not by this call itself, which may be cancelled.
            await asyncio.wait([self._in_background(oldest.stop(reason))])

    def _is_full(self, owner: str) -> bool:
        mine = sum(not process.ended for process in self._owners.get(owner, {}).values())
        return mine + len(self._starting.get(owner, ())) >= self._most_per_key or self._running() >= self._most

    def _running(self) -> int:
        running = sum(not process.ended for process in self.processes())
        return running + sum(map(len, self._starting.values()))

    def _check_room(self, caller: Caller) -> None:
        if self._closed:
            raise ExecutionError("the worker ends, so no process can be started any more")
        mine = [process for process in self._owners.get(caller.owner, {}).values() if not process.ended]
        mine += self._starting.get(caller.owner, [])
        seen = ", ".join(_shown(process) for process in mine if caller.sees(process))
        if len(mine) >= self._most_per_key:
            option = SkillOptions.EXEC_MAX_SESSIONS_PER_KEY.key
            raise ArgumentError(
                f"{self._most_per_key} processes are running, the most that this job permits ({option}). "
                + (
                    f"End one, then start this one again: {seen}."
                    if seen
                    else "Run the command to its end, without a session, or try again later."
                )
            )
        if self._running() >= self._most:
            others = f" Or end one of your processes: {seen}." if seen else ""
            raise ArgumentError(
                f"This worker runs {self._most} processes for all its keys, the most that this job permits "
                f"({SkillOptions.EXEC_MAX_SESSIONS.key}). Run the command to its end, without a session, or try again "
                f"later.{others}"
            )

    def _on_end(self) -> None:
        """Of the processes that have ended only so many are kept as there may be running ones."""
        if self._closed:
            return
        for processes in self._owners.values():
            self._drop_oldest(processes, [one for one in processes.values() if one.ended], self._most_per_key)
        ended = [one for one in self.processes() if one.ended]
        for processes in self._owners.values():
            self._drop_oldest(processes, ended, self._most)
        self._drop_empty()
        self._plan_sweep()

    def _drop_oldest(self, processes: dict[str, Process], ended: list[Process], most: int) -> None:
        # A call that waits for its process comes first: it will ask in a moment, or be made again soon.
        told = sorted((one for one in ended if self._is_told(one)), key=lambda one: one.ended_at)
        spare = told[: max(0, len(ended) - most)]
        for process in spare:
            if processes.get(process.id) is process:
                del processes[process.id]
                self._end(process)

    def _is_told(self, process: Process) -> bool:
        """Whether a model was told of it, or nobody will ask what to tell any more."""
        left_at = max(process.ended_at, process.used_at)
        return process.answered or (process.left_alone and left_at + _UNANSWERED_SECONDS < self._now())

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _sweep(self) -> None:
        self._sweep_timer = None
        now = self._now()
        for processes in self._owners.values():
            for process in list(processes.values()):
                if self._due(process) > now:
                    continue
                if process.ended:
                    del processes[process.id]
                    self._end(process)
                elif not process.ended_because:
                    self._in_background(process.stop(self._why_now(process)))
        self._drop_empty()
        self._plan_sweep()

    def _due(self, process: Process) -> float:
        """When something is to be done about ``process``."""
        if process.ended:
            return max(process.ended_at, process.used_at) + self._ttl
        return process.used_at + (min(self._ttl, _UNANSWERED_SECONDS) if process.left_alone else self._ttl)

    def _why_now(self, process: Process) -> str:
        if process.left_alone and self._ttl > _UNANSWERED_SECONDS:
            return (
                f"the call that started the process was interrupted, and not repeated within {_UNANSWERED_SECONDS:g} s"
            )
        return f"the process was not used for {self._ttl:g} s"

    def _plan_sweep(self) -> None:
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        due = [
            self._due(process)
            for processes in self._owners.values()
            for process in processes.values()
            if process.ended or not process.ended_because
        ]
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        if due:
            self._sweep_timer = loop.call_at(min(due) + 0.001, self._sweep)

    def _end(self, process: Process) -> None:
        self._in_background(process.close())

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    def _drop_empty(self) -> None:
        for owner in [owner for owner, processes in self._owners.items() if not processes]:
            del self._owners[owner]


def _shown(process: Process) -> str:
    line = " ".join(process.command.split())
    return f"{process.id} ({line if len(line) <= _SHOWN_COMMAND else line[:_SHOWN_COMMAND] + '…'})"
