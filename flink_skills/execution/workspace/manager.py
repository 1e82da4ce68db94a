"""Workspaces of a job: created for keys, removed when they are old and when the job ends."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import threading
import time
import weakref
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from flink_skills.errors import ConfigError, ExecutionError
from flink_skills.execution.command_variables import base_environment
from flink_skills.execution.request import CommandUser
from flink_skills.execution.workspace.interpreter import command_python
from flink_skills.execution.workspace.job_folder import (
    NAMES_FILE,
    SHARED_SKILLS,
    JobFolder,
    is_workspace,
)
from flink_skills.execution.workspace.metadata import Metadata
from flink_skills.execution.workspace.safe_files import (
    DOOMED,
    Rights,
    is_own_folder,
    pinned,
    remove_tree,
    restore_folder,
    set_aside,
)
from flink_skills.execution.workspace.workspace import Workspace
from flink_skills.execution.workspace.workspace_inputs import name_inputs
from flink_skills.sources.locking import unleased

_SWEEPS_PER_TTL = 4
_MIN_PAUSE = 0.5
_MAX_PAUSE = 60.0
_MIN_JUMP_SECONDS = 1.0
_log = logging.getLogger("flink_skills.workspace")


class ClockAges:
    """Ages of times (seconds since 1970) on a machine whose clock may be set. Jumps are detected at each update.

    A clock that is set forward makes nothing older. One that is set back makes what was used before younger, so that
    nothing is removed too early. Jumps are forgotten after ``max_age`` seconds.
    """

    def __init__(self, max_age: float) -> None:
        self._max_age = max_age
        self._wall, self._steady = time.time(), time.monotonic()
        self._latest = self._wall
        # The latest time before the clock was set forward, by how much, and when that was by the monotonic clock.
        self._jumps: list[tuple[float, float, float]] = []

    def update(self) -> None:
        """Detect whether the clock was set since the last update."""
        wall, steady = time.time(), time.monotonic()
        expected = self._wall + (steady - self._steady)
        self._wall, self._steady = wall, steady
        # This includes uses before the clock was set back, whose times are in the future.
        self._latest = max(self._latest, expected)
        if wall - expected > _MIN_JUMP_SECONDS:
            self._jumps.append((self._latest, wall - expected, steady))
        # Earlier uses are old by any clock.
        self._jumps = [jump for jump in self._jumps if steady - jump[2] < self._max_age]

    def age(self, moment: float) -> float:
        """Return the seconds since ``moment``, negative if it is in the future."""
        return time.time() - moment - sum(by for at, by, _ in self._jumps if moment <= at)


class LastUses:
    """Times of last use (seconds since 1970), by the workspace folder names.

    They are read from ``metadata.json``, because below
    :attr:`~flink_skills.execution.IsolationLevel.NAMESPACE` a command with the worker's user can change the times and
    modes of any file whose path it has. A time that was read is stored, so a young workspace is not read at each sweep.
    ``closed`` are a workspace folder's rights.
    """

    def __init__(self, closed: Rights) -> None:
        self._closed = closed
        self._stored: dict[str, float] = {}

    def stored(self, workspace: Path) -> float | None:
        """Return the time that the last :meth:`read` found. Return None if there was none."""
        return self._stored.get(workspace.name)

    def read(self, workspace: Path) -> float:
        """Read the time again, after the modes of the folder and of the file are restored.

        A workspace without a readable file counts as used when this object first saw it. One whose file a command
        closes repeatedly counts as used now. Raises :class:`FileNotFoundError` for one that was removed.
        """
        try:
            with pinned(workspace) as folder:
                if os.fstat(folder).st_uid == os.geteuid():
                    self._closed.apply(folder)
                found = Metadata.last_use(folder)
        except PermissionError:
            return time.time()
        moment = self._stored.get(workspace.name, time.time()) if found is None else found
        self._stored[workspace.name] = moment
        return moment

    def keep(self, names: Collection[str]) -> None:
        """Forget all workspaces except ``names``."""
        self._stored = {name: moment for name, moment in self._stored.items() if name in names}


class WorkspaceManager:
    """The workspaces below one folder, which the workers of a job on a machine share.

    Args:
        root: Absolute path; raises :class:`ConfigError` for another.
        user: The user that commands run as, where it is not the worker's own; None: the same.
        share_files: Stage skills as views of one copy per job and machine. Only where commands are kept from
            writing to what they may only read; may be set later, before skills are staged.
        inputs: Files and folders of the machine that are linked into ``work/inputs``.
        ttl: Seconds after its last use from which on :meth:`sweep` removes a workspace; 0: never.
        base_env: What all commands have in their environment; by default the worker's path, language and time zone.
        top: The first folder above ``root``, from the root of the file system, that belongs to the job.
        passages: Folders above ``top`` that belong to the job too and that others remove.

    >>> workspace = WorkspaceManager("/tmp/job-7").for_key('"sensor-1"')
    >>> workspace.write_event(b'{"value": 3}').name
    'event.json'
    """

    def __init__(
        self,
        root: str | Path,
        *,
        user: CommandUser | None = None,
        share_files: bool = False,
        inputs: tuple[str, ...] = (),
        ttl: float = 0.0,
        base_env: Mapping[str, str] | None = None,
        top: Path | None = None,
        passages: tuple[Path, ...] = (),
    ) -> None:
        if not Path(root).is_absolute():
            raise ConfigError(
                f"option skills.workspace.dir: {str(root)!r} is relative: write {str(Path.cwd() / root)!r}"
            )
        # Real from the start: commands see their folder by this path, and it is compared with real paths.
        self.root = _real(root)
        self._job = JobFolder(
            self.root,
            user,
            share_files=share_files,
            top=_real(top) if top is not None else None,
            passages=tuple(map(_real, passages)),
        )
        self._inputs = name_inputs(inputs)
        self.input_names = frozenset(one.name for one in self._inputs)
        """Names in ``work/inputs`` that belong to the job."""
        self._ttl = ttl
        self._ages = ClockAges(ttl)
        self._uses = LastUses(self._job.ownership.closed)
        self._base_env = base_environment(os.environ, sys.executable) if base_env is None else dict(base_env)
        self.remarks: tuple[str, ...] = ()
        """Warnings for an operator about the interpreter of commands."""
        if base_env is None:
            python = command_python(self._base_env["PATH"], sys.executable, user)
            self._base_env["PATH"] = python.path
            self._job.programs, self._job.interpreters = python.programs, python.interpreters
            self.remarks = (python.remark,) if python.remark else ()
        self._live: weakref.WeakValueDictionary[str, Workspace] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def user(self) -> CommandUser | None:
        """The user that commands run as, where it is not the worker's own."""
        return self._job.user

    @property
    def share_files(self) -> bool:
        """Whether skills are staged as views of one copy."""
        return self._job.share_files

    @share_files.setter
    def share_files(self, share: bool) -> None:
        self._job.share_files = share

    def for_key(self, key_text: str) -> Workspace:
        """Return the workspace of a key. Any string is a key.

        The folder's name reveals nothing about the key, and no command can compute it. The first call creates the
        folder of all workspaces. Raises :class:`ExecutionError` if that is not possible.
        """
        with self._lock:
            name = self._job.workspace_name(key_text)
            found = self._live.get(name)
            if found is None:
                found = self._live[name] = Workspace(self.root / name, self._job, self._base_env, self._inputs)
        return found

    def start(self) -> None:
        """Sweep now and then in the running loop, until :meth:`aclose`. Does nothing without a ``ttl``."""
        if self._ttl and self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().create_task(self._sweep_periodically())

    def sweep(self) -> int:
        """Remove workspaces that nobody used for ``ttl`` seconds; returns how many. Call it from a thread.

        One that a turn holds is in use, in any worker of the job. Raises :class:`ExecutionError` for what cannot be
        removed.
        """
        if not self._ttl:
            return 0
        removed = 0
        problems = []
        self._ages.update()
        self._job.restore()
        entries = _entries(self.root)
        self._uses.keep({path.name for path in entries})
        for path in entries:
            try:
                if path.name.startswith(DOOMED):
                    remove_tree(path)
                elif is_workspace(path.name):
                    removed += self._remove_if_old(path)
            except OSError as error:
                problems.append(str(error))
        try:
            self._job.shared.sweep(self._ttl)
        except OSError as error:
            problems.append(str(error))
        if problems:
            raise ExecutionError(f"{len(problems)} old workspaces in {self.root} cannot be removed: {problems[0]}")
        return removed

    def _remove_if_old(self, path: Path) -> bool:
        stored = self._uses.stored(path)
        if stored is not None and self._ages.age(stored) < self._ttl:
            return False
        try:
            if self._ages.age(self._uses.read(path)) < self._ttl:
                return False
            with unleased(str(path)) as free:
                # Read again: no worker can start to use it now.
                old = free and self._ages.age(self._uses.read(path)) >= self._ttl
                doomed = set_aside(path) if old else None
        except FileNotFoundError:  # another worker sweeps too
            return False
        if doomed is None:
            return False
        remove_tree(doomed)
        return True

    async def _sweep_periodically(self) -> None:
        pause = min(max(self._ttl / _SWEEPS_PER_TTL, _MIN_PAUSE), _MAX_PAUSE)
        while True:
            await asyncio.sleep(pause * random.uniform(0.9, 1.1))
            try:
                removed = await asyncio.to_thread(self.sweep)
            except ExecutionError as error:
                _log.warning("%s", error)
            except Exception:
                _log.exception("removing old workspaces in %s failed; the next sweep retries it", self.root)
            else:
                if removed:
                    _log.info("removed %d workspaces in %s that were unused for %g s", removed, self.root, self._ttl)

    async def aclose(self) -> None:
        """End what :meth:`start` began, then :meth:`close` in a thread."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
            self._sweeper = None
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Remove all workspaces below the root, those of earlier workers too, and the root if it is empty.

        Where another worker of the job still has them, that one does it. Raises :class:`ExecutionError` for what is
        left.
        """
        with self._lock:
            live = list(self._live.values())
        for workspace in live:
            workspace.release()
        self._job.release()
        with suppress(OSError):  # has gone
            self._job.restore()
        with unleased(str(self.root), without_locks=True) as free:
            if free:
                _remove_all(self.root)
        if free:
            self._job.remove_folders()


def remove_abandoned(folder: Path) -> bool:
    """Remove a folder of workspaces whose workers are dead. Return False if one is alive, or another user owns it."""
    try:
        if not is_own_folder(folder):
            return False
        restore_folder(folder)
    except FileNotFoundError:
        return False
    with unleased(str(folder), without_locks=True) as free:
        if free:
            _remove_all(folder)
            with suppress(OSError):  # something in it is not ours
                folder.rmdir()
    return free


def _remove_all(root: Path) -> None:
    problems = []
    for path in _entries(root):
        if is_workspace(path.name) or path.name.startswith((DOOMED, NAMES_FILE)) or path.name == SHARED_SKILLS:
            try:
                remove_tree(path)
            except OSError as error:
                problems.append(str(error))
    if problems:
        raise ExecutionError(f"{len(problems)} workspaces below {root} cannot be removed: {problems[0]}")


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def _real(path: str | Path) -> Path:
    return Path(os.path.realpath(path))
