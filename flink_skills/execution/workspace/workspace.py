"""The workspace of one key.

    <root>/ws_<hash of the key and of a secret of the job>/
        skills/<name>/      the loaded skills, read-only, each with a writable .venv/
        work/               working directory for commands without a skill
        work/inputs/        inputs from the turn and the job; event.json is the event
        out/                results from commands
        runs/run_<…>/       one folder per command
        tmp/, home/         temporary files; files that programs store for their user
        bin/                python, python3 and pip, if the path of commands does not have the worker's
        metadata.json       its content

The worker accesses everything that commands cannot write by its path. In folders that commands can write, it uses only
open descriptors and follows no links, because a command can put anything anywhere.
"""

from __future__ import annotations

import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from flink_skills.errors import ExecutionError
from flink_skills.execution.request import CommandUser
from flink_skills.execution.workspace.collecting import Collected, FilePart, collect_files, read_part
from flink_skills.execution.workspace.globs import Globs
from flink_skills.execution.workspace.interpreter import PROGRAMS, make_programs
from flink_skills.execution.workspace.job_folder import JobFolder
from flink_skills.execution.workspace.metadata import Metadata, StagedSkill, now
from flink_skills.execution.workspace.safe_files import (
    Reach,
    closing,
    folder_in,
    folders_in,
    is_own_folder,
    pinned,
    put_link,
    remove_tree,
    replace_file,
)
from flink_skills.execution.workspace.staging import StageableSkill, copy_skill, finish_skill, seal_files
from flink_skills.execution.workspace.workspace_inputs import EVENT_FILE, CopySource, Destination, Input, Mode, Placed
from flink_skills.execution.workspace.workspace_paths import (
    FOLDER_VARIABLES,
    READABLE,
    VENV,
    WRITABLE,
    WorkspacePathError,
    folder_name,
)
from flink_skills.sources.locking import Lease

_TRIES = 20
_UNFINISHED = ".new-"


class Workspace:
    """The folder of one key. :class:`WorkspaceManager` creates the object, and the first use creates the folder.

    The folder is in use from the first use until :meth:`release`, or until this object is freed, and while it is held
    (:meth:`hold`). A folder in use is not removed for its age.
    """

    def __init__(self, root: Path, job: JobFolder, base_env: Mapping[str, str], inputs: tuple[Input, ...]) -> None:
        self.root = root
        self.variables = {name: root.joinpath(*parts) for name, parts in FOLDER_VARIABLES.items()}
        """The folders that commands have variables for, by the names of these."""
        self.skills_dir = self.variables["SKILLS_DIR"]
        self.work_dir = self.variables["WORK_DIR"]
        self.inputs_dir = self.work_dir / "inputs"
        self.out_dir = self.variables["OUTPUT_DIR"]
        self.runs_dir = root / "runs"
        self.tmp_dir = self.variables["TMPDIR"]
        self.home_dir = self.variables["HOME"]
        self._job = job
        self._ownership = job.ownership
        self._base_env = base_env
        self._inputs = inputs
        self._lock = threading.RLock()
        self.file_tools = threading.Lock()
        """Held by calls of file tools that change files."""
        self._lease: Lease | None = None
        self._holds = 0
        self._released = False
        self._metadata = Metadata()

    @property
    def user(self) -> CommandUser | None:
        """The user for commands. None: the worker's own."""
        return self._job.user

    @property
    def interpreters(self) -> Mapping[str, str]:
        """The scripts in ``bin/`` that start an interpreter: their names, each with the path to the interpreter."""
        return self._job.interpreters

    @property
    def writable(self) -> tuple[str, ...]:
        """The folders that commands can write. Their contents count against the quota."""
        folders = (self.work_dir, self.out_dir, self.runs_dir, self.tmp_dir, self.home_dir)
        with self._lock:
            venvs = [self.root / skill.rel_path / VENV for skill in self._metadata.skills.values() if skill.venv]
        return (*map(str, folders), *(str(venv) for venv in venvs if _is_folder(venv)))

    def writable_for(self, skill_name: str | None) -> tuple[str, ...]:
        """Return the folders that one skill's commands can write. Other skills' virtual environments are excluded.

        All folders in :attr:`writable` count against the quota.
        """
        own = folder_name(skill_name) if skill_name else ""
        with self._lock:
            names = [Path(skill.rel_path).name for skill in self._metadata.skills.values()]
        venvs = {str(self.skills_dir / name / VENV): name for name in names}
        return tuple(path for path in self.writable if venvs.get(path, own) == own)

    @property
    def readable(self) -> tuple[str, ...]:
        """The paths that commands can read: the workspace and the inputs of the job."""
        return (str(self.root), *(one.resolved for one in self._inputs))

    def ensure(self) -> None:
        """Create missing directories and restore what a command damaged. Raises :class:`ExecutionError`."""
        with self._opened(f"workspace {self.root} cannot be created"):
            return

    def stage(self, skill: StageableSkill) -> Path:
        """Copy ``skill`` to ``skills/<name>``, read-only, unless it exists with the same digest. Return its folder.

        Changes to shared files by other keys' commands are undone. Blocks: call it from a thread. Raises
        :class:`ExecutionError`.
        """
        with self._lock:
            self._released = False
            target = self.skills_dir / folder_name(skill.name)
            if self._lease is None or not self._is_staged(skill, target):
                self._stage(skill, target)
            return target

    def staged_digest(self, name: str) -> str:
        """Return the digest of the staged skill ``name``, an empty string if it is not staged."""
        # Without the lock: staging holds it during a copy, and this method runs on the event loop.
        known = self._metadata.skills.get(name)
        return known.digest if known is not None else ""

    def make_folder(self, path: Path) -> None:
        """Create the folder ``path``, which commands can write. A link on the way is removed.

        Raises :class:`ExecutionError`.
        """
        parts = path.relative_to(self.root).parts
        with (
            self._opened(f"folder {path} cannot be created") as (root, _),
            folders_in(root, parts, self._ownership.open),
        ):
            return

    def new_run(self) -> Path:
        """Create a folder for one command."""
        name = f"run_{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}_{secrets.token_hex(8)}"
        with (
            self._opened(f"workspace {self.root} cannot be used") as (root, _),
            folders_in(root, ("runs", name), self._ownership.open),
        ):
            return self.runs_dir / name

    def end_run(self, folder: Path) -> None:
        """Remove a command's folder if it is empty."""
        # The command may have left files, or removed the folder.
        with suppress(OSError), pinned(self.runs_dir) as runs:
            os.rmdir(folder.name, dir_fd=runs)

    def env(self, skill_name: str | None, call_id: str, run_dir: str | Path) -> dict[str, str]:
        """Return the complete environment for a command: an allowlist, and nothing else from the worker.

        A virtual environment in the skill's ``.venv`` is active. The skill's ``bin/`` is the last entry of ``PATH``.
        """
        env = {
            **self._base_env,
            **{name: str(folder) for name, folder in self.variables.items()},
            "RUN_DIR": str(run_dir),
            "SKILL_NAME": skill_name or "",
            "FLINK_SKILLS_CALL_ID": call_id,
        }
        if self._job.programs:
            env["PATH"] = f"{self.root / PROGRAMS}{os.pathsep}{env.get('PATH') or os.defpath}"
        if skill_name:
            skill = self.skills_dir / folder_name(skill_name)
            path = [env["PATH"]] if env.get("PATH") else [os.defpath]
            if os.path.lexists(skill / VENV / "bin" / "python"):
                env["VIRTUAL_ENV"] = str(skill / VENV)
                path.insert(0, str(skill / VENV / "bin"))
            if _is_folder(skill / "bin"):
                path.append(str(skill / "bin"))
            env["PATH"] = os.pathsep.join(path)
        return env

    def write_event(self, data: bytes) -> Path:
        """Write ``work/inputs/event.json`` atomically. Raises :class:`ExecutionError`."""
        target = self.inputs_dir / EVENT_FILE
        with self._opened(f"the event cannot be written to {target}") as (root, inputs):
            replace_file(root, inputs, EVENT_FILE, data, self._ownership.handed, force=True)
        return target

    def hold(self) -> Callable[[], None]:
        """Keep the folder in use beyond :meth:`release`, for a process that runs in it. Call the result to end this.

        Several processes can hold it. Raises :class:`ExecutionError` if it cannot be used.
        """
        with self._lock, self._job.failing(f"workspace {self.root} cannot be used"):
            with self._root_in_use():
                self._holds += 1
            released = False

        def release() -> None:
            nonlocal released
            with self._lock:
                if released:
                    return
                released = True
                self._holds -= 1
                if not self._holds and self._released:
                    self.release()

        return release

    @property
    def input_names(self) -> frozenset[str]:
        """The reserved names in ``work/inputs``: the event's file, and the inputs that the job grants."""
        return frozenset((EVENT_FILE, *(one.name for one in self._inputs)))

    def collect(
        self,
        patterns: Iterable[str],
        *,
        max_files: int = 100,
        max_file_bytes: int = 4 << 20,
        max_total_bytes: int = 64 << 20,
        roots: Collection[str] = WRITABLE,
    ) -> Collected:
        """Return the files that match patterns relative to the workspace, such as ``out/**/*.csv``, sorted by path.

        Links are not followed, and only regular files are read. ``problems`` names all other entries and unreadable
        files. Blocks: call it from a thread. Raises :class:`WorkspacePathError` for a pattern that cannot match, and
        :class:`ExecutionError`.
        """
        globs = Globs(patterns, roots)
        limits = {"max_files": max_files, "max_file_bytes": max_file_bytes, "max_total_bytes": max_total_bytes}
        with self._job.failing(f"files of workspace {self.root} cannot be collected"), self._read_root() as root:
            return collect_files(root, globs, roots, Reach(self.user), **limits)

    def read(self, path: str, limit: int, *, roots: Collection[str] = READABLE) -> bytes:
        """Return the content of one file with at most ``limit`` bytes. Raises like :meth:`read_part`."""
        part = self.read_part(path, 0, limit, roots=roots)
        if part.total > limit:
            raise WorkspacePathError(
                f"{path!r} has {part.total} bytes; the limit is {limit}: make it smaller", "too-large"
            )
        return part.data

    def read_part(self, path: str, offset: int, limit: int, *, roots: Collection[str] = READABLE) -> FilePart:
        """Return at most ``limit`` bytes from ``offset`` of one file, by its path in the workspace.

        ``inputs/x`` is ``work/inputs/x``. Blocks. Raises :class:`WorkspacePathError` with the ``reason``.
        """
        with self._job.failing(f"{path!r} of workspace {self.root} cannot be read"), self._read_root() as root:
            return read_part(root, path, roots, Reach(self.user), offset=offset, limit=limit)

    def place(
        self,
        to: str,
        *,
        data: bytes | None = None,
        source: Path | None = None,
        mode: Mode = "copy",
        record: Mapping[str, Any],
        replace: bool = False,
        max_files: int = 10_000,
        max_bytes: int = 1 << 30,
    ) -> Placed:
        """Write bytes, a file or a folder to the path ``to`` below ``work/`` atomically. Blocks.

        Args:
            to: A path in the workspace. An existing file is replaced, a folder only if an earlier call created it.
            data: The content, or None for ``source``.
            source: An absolute path: in the workspace (links are omitted), or the real path of a granted input.
            mode: ``link`` creates a link to a ``source`` in the workspace. Everything else is copied.
            record: ``from``, ``resolved`` and ``version`` for ``metadata.json``.
            replace: True to replace any existing folder.
            max_files: Maximum number of copied files and folders.
            max_bytes: Maximum number of copied bytes.

        Raises:
            WorkspacePathError: The path or the source cannot be used.
            ExecutionError: The workspace cannot be used.
        """
        if (data is None) == (source is None):
            raise ValueError("place() accepts either data or a source")
        target = Destination(to, self.root, self._ownership, self.input_names)
        with self._opened(f"{target.shown} of workspace {self.root} cannot be written") as (root, _):
            again = replace or self._metadata.has_input(target.shown)
            if source is None:
                placed = target.put_data(root, data or b"", replace=again)
            else:
                original = CopySource(source, self.root, self._ownership, max_files=max_files, max_bytes=max_bytes)
                placed = target.put(root, original, mode, replace=again)
            self._metadata.add_input({**record, "to": placed.to, "mode": placed.mode})
            self._metadata.write(root, self._ownership.data)
        return placed

    def note_outputs(self, record: Mapping[str, Any]) -> None:
        """Add a record about collected files to ``metadata.json``: globs, names, versions, limits."""
        with self._lock, self._job.failing(f"workspace {self.root} cannot be used"), self._root_in_use() as root:
            self._metadata.add_output(record)
            self._metadata.write(root, self._ownership.data)

    @contextmanager
    def _opened(self, failure: str) -> Iterator[tuple[int, int]]:
        """Lock the workspace, take it into use, and restore its folders. Return descriptors: root, ``work/inputs``.

        Raises :class:`ExecutionError` with the message ``failure``.
        """
        with self._lock, self._job.failing(failure), self._root_in_use() as root, self._made_folders(root) as inputs:
            yield root, inputs

    @contextmanager
    def _read_root(self) -> Iterator[int]:
        """Return a root descriptor for long operations, which do not hold the lock."""
        with self._lock, self._root_in_use() as root, self._made_folders(root):
            descriptor = os.dup(root)
        with closing(descriptor):
            yield descriptor

    def release(self) -> None:
        """End the use by a turn. The time until it may be removed starts now, or when the last hold ends."""
        with self._lock:
            self._released = True
            if self._lease is not None and not self._holds:
                # Without the record it appears older than it is, which must not fail a turn.
                with suppress(OSError), pinned(self.root) as root:
                    self._metadata.write(root, self._ownership.data)
                self._lease.close()
                self._lease = None

    def remove(self) -> None:
        """Remove the workspace with everything in it. Raises :class:`ExecutionError`."""
        with self._lock:
            if self._lease is not None:
                self._lease.close()
                self._lease = None
            self._metadata = Metadata()
            with self._job.failing(f"workspace {self.root} cannot be removed"):
                self._job.restore()
                remove_tree(self.root)

    @contextmanager
    def _root_in_use(self) -> Iterator[int]:
        """Return a root descriptor, and take the root into use. Create the root if it is missing."""
        self._released = False
        with ExitStack() as stack:
            for _ in range(_TRIES):
                is_new_use = self._lease is None
                try:
                    self._job.ensure()
                    if is_new_use:
                        with suppress(FileExistsError):
                            self.root.mkdir(mode=0o700)
                        self._check_owner()
                    root = stack.enter_context(pinned(self.root))
                    # Each time, because commands of the worker's own user can close it: Landlock does not cover modes.
                    self._ownership.closed.apply(root)
                    if is_new_use:
                        self._lease = Lease.take(str(self.root))
                    if self._lease is not None:
                        break
                except FileNotFoundError:  # another process removes it, or has removed it
                    self._lease = None
            else:
                raise ExecutionError(f"creating workspace {self.root} failed: it was removed repeatedly")
            if is_new_use:
                self._metadata = Metadata.read(root)
                self._metadata.write(root, self._ownership.data)
                make_programs(root, self._job.programs, self._ownership)
            yield root

    def _check_owner(self) -> None:
        # Another user who created the folder before could read it.
        if not is_own_folder(self.root):
            raise ExecutionError(
                f"workspace {self.root} is not a folder of this user: remove it, or set "
                "skills.workspace.dir to another folder"
            )

    @contextmanager
    def _made_folders(self, root: int) -> Iterator[int]:
        """Create and restore the folders in ``root`` and the job's inputs. Return a ``work/inputs`` descriptor."""
        for name in ("out", "runs", "tmp", "home"):
            with folder_in(root, name, self._ownership.open):
                continue
        with (
            folder_in(root, "skills", self._ownership.closed),
            folder_in(root, "work", self._ownership.open) as work,
            folder_in(work, "inputs", self._ownership.open) as inputs,
        ):
            self._link_inputs(root, inputs)
            yield inputs

    def _link_inputs(self, root: int, inputs: int) -> None:
        resolved = {one.name: one.resolved for one in self._inputs}
        for name, target in resolved.items():
            put_link(root, inputs, name, target)
        if self._metadata.granted != list(resolved.values()):
            self._metadata.set_granted(
                {
                    "from": f"host://{one.source}",
                    "to": f"work/inputs/{one.name}",
                    "resolved": resolved[one.name],
                    "version": None,
                    "mode": "link",
                    "ts": now(),
                }
                for one in self._inputs
            )
            self._metadata.write(root, self._ownership.data)

    def _stage(self, skill: StageableSkill, target: Path) -> None:
        with self._opened(f"skill {skill.name!r} cannot be copied from {skill.path or 'memory'} to {target}") as (
            root,
            _,
        ):
            if self._is_staged(skill, target):
                return  # by an earlier worker, or before a pause
            # A killed worker left them: turns of a key never overlap.
            for entry in self.skills_dir.iterdir():
                if entry.name.startswith(_UNFINISHED):
                    remove_tree(entry)
            known = self._metadata.skills.get(skill.name)
            building = self.skills_dir / f"{_UNFINISHED}{secrets.token_hex(8)}"
            try:
                shared = self._build(skill, building)
                venv = finish_skill(building, self._ownership, target if known is not None and known.venv else None)
                # After a crash from here on it is staged again, because the digest is written last.
                remove_tree(target)
                building.rename(target)
            except BaseException:
                remove_tree(building)
                raise
            self._metadata.add_skill(
                StagedSkill(skill.name, f"skills/{target.name}", skill.digest, shared, now(), venv)
            )
            self._metadata.write(root, self._ownership.data)

    def _is_staged(self, skill: StageableSkill, target: Path) -> bool:
        known = self._metadata.skills.get(skill.name)
        if known is None or known.digest != skill.digest or not _is_folder(target):
            return False
        return not known.mounted or (self._job.share_files and self._job.shared.fix(skill, target))

    def _build(self, skill: StageableSkill, building: Path) -> bool:
        """Make the new folder ``building`` a copy or a view of ``skill``; whether it shares files with other keys."""
        if self._job.share_files:
            return self._job.shared.view(skill, building)
        copy_skill(skill, building)
        seal_files(building, self._ownership)
        return False


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False
