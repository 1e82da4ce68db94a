"""The running processes of a worker, each under the stream key whose call started it (row G6)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flink_skills.errors import ExecutionError
from flink_skills.execution import Workspace
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.interactive.process import Outcome, Process

if TYPE_CHECKING:
    from flink_skills.tools.commands.runner import ShellRunner

__all__ = ["ProcessSessions", "key_text"]

_SHOWN_COMMAND = 60
_ID_CHARS = 10
# Where the options say 0; what a process is given has to be a time.
_NO_LIMIT_SECONDS = 366 * 86_400.0


def key_text(key: Any) -> str:
    """A stream key as the text under which its processes are kept."""
    return json.dumps(key, sort_keys=True, default=repr)


class ProcessSessions:
    """Starts processes, finds them again for later calls of the same key, and ends those that nobody uses.

    A process that is not used for ``skills.exec.ttl`` is ended; what it printed is kept as long after its end. Belongs
    to one event loop, and needs no task while nothing happens. :meth:`close` ends all processes; do that before the
    shell is closed.

    >>> sessions = ProcessSessions(shell, SkillConfig())
    >>> process = await sessions.start("python3 -i", key_text='"k"', call_id="c1", workspace=workspace, tty=True)
    >>> sessions.get('"k"', process.id) is process
    True
    """

    def __init__(self, shell: ShellRunner, config: SkillConfig) -> None:
        self._shell = shell
        self._ttl = config.get(SkillOptions.EXEC_TTL) or _NO_LIMIT_SECONDS
        self._max_time = config.get(SkillOptions.EXEC_MAX_TIME) or _NO_LIMIT_SECONDS
        self._most = config.get(SkillOptions.EXEC_MAX_SESSIONS)
        self._most_per_key = config.get(SkillOptions.EXEC_MAX_SESSIONS_PER_KEY)
        self._keys: dict[str, dict[str, Process]] = {}
        # Those that are about to be started count, too: calls of one response come at once.
        self._starting: dict[str, int] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[Any]] = set()
        self._closed = False

    @property
    def longest(self) -> float:
        """The longest life of a process, in seconds."""
        return self._max_time

    async def start(
        self,
        command: str,
        *,
        key_text: str,
        call_id: str,
        workspace: Workspace,
        cwd: Path | None = None,
        run_dir: Path | None = None,
        skill_name: str | None = None,
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
        session_id = self._new_id(key_text, call_id, command)
        known = self._keys.get(key_text, {}).get(session_id)
        if known is not None:
            if outcome is not None:
                await outcome.close()
            return known
        self._check_room(key_text)
        process = Process(session_id, command, self._shell.hidden, tty=tty, outcome=outcome)
        self._starting[key_text] = self._starting.get(key_text, 0) + 1
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
            )
        finally:
            self._starting[key_text] -= 1
            if not self._starting[key_text]:
                del self._starting[key_text]
        if stdin_ends:
            live.close_stdin()
        process.attach(live, self._on_end)
        if self._closed:
            await process.close()
            raise ExecutionError("the worker ends, so no process can be started any more")
        self._keys.setdefault(key_text, {})[session_id] = process
        self._plan_sweep()
        return process

    def get(self, key_text: str, session_id: str) -> Process:
        """The process ``session_id`` of a key; raises :class:`ArgumentError` where the key has none of this id."""
        processes = self._keys.get(key_text, {})
        process = processes.get(session_id.strip())
        if process is None:
            running = [_shown(one) for one in processes.values() if not one.ended]
            there = f" Running: {', '.join(running)}." if running else ""
            raise ArgumentError(
                f"unknown session_id {session_id[:_SHOWN_COMMAND]!r}: the process ended long ago, or its worker was "
                f"restarted since: start it again.{there}"
            )
        process.used_at = asyncio.get_running_loop().time()
        return process

    def forget(self, key_text: str, process: Process) -> None:
        """Drop a process that has ended and of which everything was told."""
        self._keys.get(key_text, {}).pop(process.id, None)
        self._end(process)
        self._drop_empty()

    async def close(self) -> None:
        """End all processes and wait for that. Calling it again does nothing."""
        self._closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        processes = [process for processes in self._keys.values() for process in processes.values()]
        self._keys.clear()
        for process in processes:
            self._end(process)
        while self._ending:
            await asyncio.wait(self._ending)

    # -- room ------------------------------------------------------------------------------

    def _new_id(self, key_text: str, call_id: str, command: str) -> str:
        """An id that a retry of the same call finds again, and that no other process of the key has."""
        processes = self._keys.get(key_text, {})
        for number in range(len(processes) + 1):
            seed = f"{key_text}\0{call_id or secrets.token_hex(16)}\0{command}\0{number}"
            session_id = hashlib.sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()[:_ID_CHARS]
            found = processes.get(session_id)
            if found is None or not found.answered:
                break
        return session_id

    def _check_room(self, key_text: str) -> None:
        if self._closed:
            raise ExecutionError("the worker ends, so no process can be started any more")
        mine = [process for process in self._keys.get(key_text, {}).values() if not process.ended]
        if len(mine) + self._starting.get(key_text, 0) >= self._most_per_key:
            option = SkillOptions.EXEC_MAX_SESSIONS_PER_KEY.key
            raise ArgumentError(
                f"{self._most_per_key} processes are running, the most that this job permits ({option}). End one, then "
                f"start this one again: {', '.join(map(_shown, mine))}."
            )
        running = sum(not process.ended for processes in self._keys.values() for process in processes.values())
        if running + sum(self._starting.values()) >= self._most:
            others = f" Or end one of yours: {', '.join(map(_shown, mine))}." if mine else ""
            raise ArgumentError(
                f"This worker runs {self._most} processes for all its keys, the most that this job permits "
                f"({SkillOptions.EXEC_MAX_SESSIONS.key}). Run the command to its end, without a session, or try again "
                f"later.{others}"
            )

    # -- age -------------------------------------------------------------------------------

    def _on_end(self) -> None:
        """Of the processes that have ended only so many are kept as there may be running ones."""
        if self._closed:
            return
        for processes in self._keys.values():
            self._drop_oldest(processes, [one for one in processes.values() if one.ended], self._most_per_key)
        ended = [one for processes in self._keys.values() for one in processes.values() if one.ended]
        for processes in self._keys.values():
            self._drop_oldest(processes, ended, self._most)
        self._drop_empty()
        self._plan_sweep()

    def _drop_oldest(self, processes: dict[str, Process], ended: list[Process], most: int) -> None:
        # A call that waits for its process comes first: it will ask in a moment.
        spare = sorted((one for one in ended if one.answered), key=lambda one: one.ended_at)[
            : max(0, len(ended) - most)
        ]
        for process in spare:
            if processes.get(process.id) is process:
                del processes[process.id]
                self._end(process)

    def _sweep(self) -> None:
        self._sweep_timer = None
        now = asyncio.get_running_loop().time()
        for processes in self._keys.values():
            for process in list(processes.values()):
                if self._due(process) > now:
                    continue
                if process.ended:
                    del processes[process.id]
                    self._end(process)
                elif not process.ended_because:
                    self._in_background(process.stop(f"it was not used for {self._ttl:g} s"))
        self._drop_empty()
        self._plan_sweep()

    def _due(self, process: Process) -> float:
        """When something is to be done about ``process``."""
        return (max(process.ended_at, process.used_at) if process.ended else process.used_at) + self._ttl

    def _plan_sweep(self) -> None:
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        due = [
            self._due(process)
            for processes in self._keys.values()
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

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _drop_empty(self) -> None:
        for key in [key for key, processes in self._keys.items() if not processes]:
            del self._keys[key]


def _shown(process: Process) -> str:
    line = " ".join(process.command.split())
    return f"{process.id} ({line if len(line) <= _SHOWN_COMMAND else line[:_SHOWN_COMMAND] + '…'})"
