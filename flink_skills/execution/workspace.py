"""Workspaces: one private folder per key, kept between the turns of the key.

    <root>/ws_<hash of the key>/
        skills/<name>/      copies of the loaded skills, read-only
        work/               where commands work when no skill is loaded
        work/inputs/        what the turn hands to commands; event.json is the event
        out/                what commands hand back
        runs/run_<id>/      one folder per command
        tmp/                temporary files

The layout is that of rows H1 to H5 of the feature list.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import sys
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path

from flink_skills.errors import ConfigError, ExecutionError
from flink_skills.execution.environment import base_environment
from flink_skills.execution.removal import remove_tree
from flink_skills.execution.staging import StageableSkill, stage_skill

__all__ = ["Workspace", "WorkspaceManager"]

_PREFIX = "ws_"


class Workspace:
    """The folder of one key. Nothing is on disk before it is used."""

    def __init__(self, root: Path, base_env: Mapping[str, str]) -> None:
        self.root = root
        self.skills_dir = root / "skills"
        self.work_dir = root / "work"
        self.inputs_dir = root / "work" / "inputs"
        self.out_dir = root / "out"
        self.runs_dir = root / "runs"
        self.tmp_dir = root / "tmp"
        self._marks_dir = root / ".staged"
        self._base_env = base_env
        self._lock = threading.Lock()

    def ensure(self) -> None:
        """Make the folders that are missing. Raises :class:`ExecutionError`."""
        try:
            self.root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                self.root.mkdir(mode=0o700)
            found = self.root.lstat()
            # Somebody else's folder of that name, made before ours, would be theirs to read.
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                raise ExecutionError(
                    f"workspace {self.root} is not a folder of this user: remove it, or set "
                    "skills.workspace.dir to another folder"
                )
            for folder in (
                self.skills_dir,
                self.work_dir,
                self.inputs_dir,
                self.out_dir,
                self.runs_dir,
                self.tmp_dir,
                self._marks_dir,
            ):
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise ExecutionError(f"workspace {self.root} cannot be made: {error}") from error

    def stage(self, skill: StageableSkill) -> Path:
        """Copy ``skill`` to ``skills/<name>``, read-only, unless it is there with the same digest.

        Takes as long as the copy: call it from a thread. Raises :class:`ExecutionError`.
        """
        with self._lock:
            self.ensure()
            return stage_skill(skill, self.skills_dir, self._marks_dir)

    def new_run(self) -> Path:
        """Make a folder of its own for one command."""
        self.ensure()
        folder = self.runs_dir / f"run_{secrets.token_hex(8)}"
        folder.mkdir(mode=0o700)
        return folder

    def end_run(self, folder: Path) -> None:
        """Remove the folder of a command that left nothing in it."""
        # Not empty, or removed by the command itself: both are its business.
        with contextlib.suppress(OSError):
            folder.rmdir()

    def env(self, skill_name: str | None, call_id: str, run_dir: str | Path) -> dict[str, str]:
        """The whole environment of a command: an allowlist, nothing else of the worker's."""
        return {
            **self._base_env,
            "HOME": str(self.root),
            "TMPDIR": str(self.tmp_dir),
            "WORKSPACE_DIR": str(self.root),
            "SKILLS_DIR": str(self.skills_dir),
            "WORK_DIR": str(self.work_dir),
            "OUTPUT_DIR": str(self.out_dir),
            "RUN_DIR": str(run_dir),
            "SKILL_NAME": skill_name or "",
            "FLINK_SKILLS_CALL_ID": call_id,
        }

    def write_event(self, data: bytes) -> Path:
        """Write ``work/inputs/event.json``, at once or not at all."""
        self.ensure()
        target = self.inputs_dir / "event.json"
        building = self._marks_dir / f".event-{secrets.token_hex(8)}"
        try:
            building.write_bytes(data)
            building.replace(target)
        except OSError as error:
            building.unlink(missing_ok=True)
            raise ExecutionError(f"the event cannot be written to {target}: {error}") from error
        return target

    def remove(self) -> None:
        """Remove the workspace with everything in it. Raises :class:`ExecutionError`."""
        with self._lock:
            try:
                remove_tree(self.root)
            except OSError as error:
                raise ExecutionError(f"workspace {self.root} cannot be removed: {error}") from error


class WorkspaceManager:
    """The workspaces below one folder, which the workers of a job on a machine share.

    ``root`` is an absolute path; raises :class:`ConfigError` for another.

    >>> workspace = WorkspaceManager("/tmp/job-7").for_key('"sensor-1"')
    >>> workspace.write_event(b'{"value": 3}').name
    'event.json'
    """

    def __init__(self, root: str | Path) -> None:
        if not Path(root).is_absolute():
            raise ConfigError(
                f"option skills.workspace.dir: {str(root)!r} is relative: write {str(Path.cwd() / root)!r}"
            )
        # Real from the start: commands see their folder by this path, and it is compared with real paths.
        self.root = Path(os.path.realpath(root))
        self._base_env = base_environment(os.environ, sys.executable)
        self._live: weakref.WeakValueDictionary[str, Workspace] = weakref.WeakValueDictionary()

    def for_key(self, key_text: str) -> Workspace:
        """The workspace of a key. The folder's name is a hash: it tells nothing, and any text will do."""
        name = _PREFIX + hashlib.sha256(key_text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        found = self._live.get(name)
        if found is None:
            found = self._live[name] = Workspace(self.root / name, self._base_env)
        return found

    def close(self) -> None:
        """Remove all workspaces below the root, those of earlier workers too, and the root if it is empty.

        Raises :class:`ExecutionError` for what is left.
        """
        problems = []
        try:
            names = [path.name for path in self.root.iterdir()]
        except FileNotFoundError:
            return
        for name in names:
            if name.startswith((_PREFIX, ".gone-")):
                try:
                    remove_tree(self.root / name)
                except OSError as error:
                    problems.append(str(error))
        if problems:
            raise ExecutionError(f"{len(problems)} workspaces below {self.root} cannot be removed: {problems[0]}")
        with contextlib.suppress(OSError):  # another job's folder, or a file that is not ours
            self.root.rmdir()
