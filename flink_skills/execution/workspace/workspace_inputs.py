"""Inputs of a workspace: built aside, without links and within limits, then moved atomically."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from flink_skills.errors import ConfigError, ExecutionError
from flink_skills.execution.workspace.safe_files import Ownership, Rights, folder_in, remove_tree
from flink_skills.execution.workspace.staging import VENV
from flink_skills.execution.workspace.workspace_paths import (
    READABLE,
    Reach,
    WorkspacePathError,
    is_sealed,
    kind_of,
    parts_of,
)

__all__ = [
    "EVENT_FILE",
    "CopySource",
    "Destination",
    "Input",
    "Mode",
    "Placed",
    "default_place",
    "move_in",
    "name_inputs",
    "place_parts",
    "put_file",
    "put_link",
    "unfinished_name",
]

EVENT_FILE = "event.json"
_TRIES = 20
_IN_THE_WAY = frozenset({errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Input:
    """A file or folder of the machine that the job lets commands read, and its name in ``work/inputs``."""

    source: str
    name: str

    @property
    def resolved(self) -> str:
        """Where it really is at the moment: mounted configuration moves when it is updated."""
        return os.path.realpath(self.source)


def name_inputs(paths: tuple[str, ...]) -> tuple[Input, ...]:
    """Names for the paths of ``skills.workspace.inputs``: the last part, with a number where it is taken.

    Raises :class:`ConfigError` for one that does not exist on this machine.

    >>> [given.name for given in name_inputs(("/usr/lib", "/lib"))]
    ['lib', 'lib-2']
    """
    taken = {EVENT_FILE}
    named = []
    for path in paths:
        if not os.path.lexists(path) or not os.path.lexists(os.path.realpath(path)):
            raise ConfigError(
                f"option skills.workspace.inputs: {path!r} does not exist on this machine: create it on every "
                "TaskManager, or remove it from the list"
            )
        base = Path(path).name or "root"
        stem, dot, suffix = base.partition(".") if not base.startswith(".") else (base, "", "")
        name, number = base, 1
        while name in taken:
            number += 1
            name = f"{stem}-{number}{dot}{suffix}"
        taken.add(name)
        named.append(Input(path, name))
    return tuple(named)


def put_file(root: int, folder: int, name: str, data: bytes, rights: Rights) -> None:
    """Write ``name`` in the open ``folder``, at once or not at all; it is built in ``root``, where no command writes.

    Raises :class:`OSError`, and :class:`ExecutionError` where somebody keeps putting folders in its place.
    """
    building = unfinished_name()
    descriptor = os.open(building, _NEW, 0o600, dir_fd=root)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            rights.apply(descriptor)
        finally:
            os.close(descriptor)
        move_in(root, building, folder, name)
    except BaseException:
        with suppress(OSError):
            os.unlink(building, dir_fd=root)
        raise


def put_link(root: int, folder: int, name: str, target: str) -> bool:
    """Make ``name`` in the open ``folder`` a link to ``target``; False if it is one already. Raises as above."""
    with suppress(OSError):  # nothing there, or something else
        if os.readlink(name, dir_fd=folder) == target:
            return False
    building = unfinished_name()
    os.symlink(target, building, dir_fd=root)
    try:
        move_in(root, building, folder, name)
    except BaseException:
        with suppress(OSError):
            os.unlink(building, dir_fd=root)
        raise
    return True


def unfinished_name() -> str:
    """A name in the workspace's root for what is not complete yet."""
    return f".input-{secrets.token_hex(8)}"


def move_in(root: int, building: str, folder: int, name: str) -> None:
    """Move ``building`` in the open ``root`` to ``name`` in the open ``folder``, whatever is there. Raises as above."""
    for _ in range(_TRIES):
        try:
            os.rename(building, name, src_dir_fd=root, dst_dir_fd=folder)
        except OSError as error:
            if error.errno not in _IN_THE_WAY:
                raise
            remove_tree(name, dir_fd=folder)
        else:
            return
    raise ExecutionError(f"writing the input {name!r} failed: a command repeatedly creates a directory of this name")


_CHUNK = 1 << 20
_MAX_DEPTH = 48
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class CopySource:
    """A file or folder of a workspace, or one of the machine that the job grants, to be copied or linked.

    A path of the machine must be real: nobody may choose, by a link on the way, what is read. After :meth:`copy`,
    ``files`` and ``size`` (bytes) count what was copied, and ``skipped`` what was left out of a folder: links, pipes
    and the like. After :meth:`link_text`, ``size`` counts what the link leads to, in a folder up to the limits of a
    copy. Raises :class:`WorkspacePathError` for a path of the workspace that may not be read.
    """

    def __init__(self, source: Path, workspace: Path, ownership: Ownership, *, max_files: int, max_bytes: int) -> None:
        self.files = self.size = self.skipped = 0
        self._source = source
        self._inside: tuple[str, ...] = ()
        if source.is_relative_to(workspace):
            self._inside = parts_of(source.relative_to(workspace).as_posix(), READABLE)
        self._sealed = not self._inside or is_sealed(self._inside)
        self._ownership = ownership
        self._reach = Reach(ownership.user if self._inside else None)
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._seen = 0

    @property
    def is_inside(self) -> bool:
        """Whether it lies in the workspace."""
        return bool(self._inside)

    def link_text(self, parts: Sequence[str], root: int) -> str:
        """Return the target of a link at ``parts`` that leads here.

        Raises :class:`WorkspacePathError` if the target does not exist.
        """
        with self._opened(root) as (name, parent):
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                raise WorkspacePathError(
                    f"{self._shown!r} is {kind_of(found.st_mode)}, and only files are linked", "no-file"
                )
            if stat.S_ISREG(found.st_mode):
                self.size = found.st_size
            else:
                self._measure(name, parent)
        return os.path.relpath("/".join(self._inside), "/".join(parts[:-1]))

    def copy(self, root: int, building: str) -> bool:
        """Copy it to the new ``building`` in the open ``root``, and return True if it is a directory.

        Raises :class:`WorkspacePathError`.
        """
        with self._opened(root) as (name, parent):
            is_folder = stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
            if is_folder:
                self._copy_folder(name, parent, building, root, shown=self._shown)
            else:
                self._copy_file(name, parent, building, root, shown=self._shown)
        return is_folder

    def _measure(self, name: str, parent: int, depth: int = 0) -> None:
        """Add the sizes of the files in a folder, up to the limits of a copy. Unreadable files are not counted."""
        if depth > _MAX_DEPTH or self._seen > self._max_files:
            return
        with suppress(OSError, WorkspacePathError), ExitStack() as held:
            folder = held.enter_context(self._reach.folder(name, parent))
            for entry, kind in self._listed(folder):
                if kind == "folder":
                    self._measure(entry, folder, depth + 1)
                elif kind == "file":
                    self.size += os.stat(entry, dir_fd=folder, follow_symlinks=False).st_size

    @property
    def _shown(self) -> str:
        return "/".join(self._inside) or str(self._source)

    @contextmanager
    def _opened(self, root: int) -> Iterator[tuple[str, int]]:
        """Its name and the open folder that it is in."""
        with self._told(self._shown), ExitStack() as held:
            if self._inside:
                yield self._inside[-1], held.enter_context(self._reach.below(root, self._inside[:-1]))
                return
            above = os.open(self._source.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            held.callback(os.close, above)
            # What was opened counts: a link on the way may have come a moment ago.
            if not self._source.name or os.readlink(f"/proc/self/fd/{above}") != str(self._source.parent):
                raise WorkspacePathError(f"{self._shown!r} is reached through a link: name its real path", "invalid")
            yield self._source.name, above

    @contextmanager
    def _told(self, shown: str) -> Iterator[None]:
        """Errors in words that a model can act on. Those of what lies below have their words already."""
        try:
            yield
        except FileNotFoundError:
            raise WorkspacePathError(f"{shown!r} does not exist: list the files first", "missing") from None
        except NotADirectoryError:
            raise WorkspacePathError(
                f"{shown!r} has a file or a link above it: name the file itself", "missing"
            ) from None
        except PermissionError:
            message = f"{shown!r} cannot be read: its mode denies access to the worker. Make it readable (chmod)."
            raise WorkspacePathError(message, "unreadable") from None

    def _copy_file(self, name: str, parent: int, to: str, into: int, *, shown: str) -> None:
        with self._told(shown), ExitStack() as held:
            reading = held.enter_context(self._reach.file(name, parent, shown=repr(shown), trusted=self._sealed))
            self.files += 1
            found = os.fstat(reading)
            self._check(found.st_size)
            writing = os.open(to, _NEW, 0o600, dir_fd=into)
            held.callback(os.close, writing)
            while piece := os.read(reading, _CHUNK):
                self._check(len(piece))
                self.size += len(piece)
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(writing, rest) :]
            rights = self._ownership.handed
            if found.st_mode & 0o111:
                rights = Rights(rights.uid, rights.gid, rights.mode | (rights.mode & 0o440) >> 2)
            rights.apply(writing)

    def _copy_folder(self, name: str, parent: int, to: str, into: int, *, shown: str, depth: int = 0) -> None:
        if depth > _MAX_DEPTH:
            raise WorkspacePathError(
                f"{self._shown!r} is more than {_MAX_DEPTH} folders deep: name a part of it", "too-large"
            )
        with self._told(shown), ExitStack() as held:
            source = held.enter_context(self._reach.folder(name, parent))
            entries = self._listed(source)
            os.mkdir(to, 0o700, dir_fd=into)
            target = os.open(to, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=into)
            held.callback(os.close, target)
            for entry, kind in entries:
                below = f"{shown}/{entry}"
                if kind == "file":
                    self._copy_file(entry, source, entry, target, shown=below)
                elif kind == "folder" and not (self._sealed and entry == VENV):
                    self._copy_folder(entry, source, entry, target, shown=below, depth=depth + 1)
                else:
                    self.skipped += 1
            # At last: until then nobody but the worker gets in there.
            self._ownership.open.apply(target)

    def _listed(self, folder: int) -> list[tuple[str, str]]:
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self._seen += 1
                if self._seen > self._max_files:
                    message = f"{self._shown!r} has more than {self._max_files} files and folders"
                    raise WorkspacePathError(f"{message}: name a part of it", "too-large")
                found.append((entry.name, _kind(entry)))
        return sorted(found)

    def _check(self, more: int) -> None:
        if self.size + more > self._max_bytes:
            raise WorkspacePathError(
                f"{self._shown!r} has more than {self._max_bytes} bytes: name a part of it", "too-large"
            )


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


Mode = Literal["copy", "link"]


@dataclass(frozen=True)
class Placed:
    """What was put where. ``to`` is relative to the workspace, ``path`` the same in the file system.

    ``files`` counts what was copied, ``size_bytes`` what was copied or linked, ``skipped`` the links, pipes and the
    like in a folder, which were not copied. ``mode`` is what was done: what lies outside of the workspace is copied,
    never linked.
    """

    to: str
    path: Path
    size_bytes: int
    files: int = 1
    skipped: int = 0
    mode: Mode = "copy"


def default_place(name: str) -> str:
    r"""Return the place of an input that does not name one.

    >>> default_place("reports\\may.csv")
    'work/inputs/may.csv'
    """
    return f"work/inputs/{PurePosixPath(name.replace(chr(92), '/')).name or 'input'}"


def place_parts(to: str) -> tuple[str, ...]:
    """The parts of a place for inputs, which is below ``work/``. Raises :class:`WorkspacePathError`.

    >>> place_parts("inputs/may.csv")
    ('work', 'inputs', 'may.csv')
    """
    parts = parts_of(to, ("work",))
    if parts in (("work",), ("work", "inputs")):
        message = f"{to!r} is the whole folder: name the file in it, such as 'work/inputs/data.csv'"
        raise WorkspacePathError(message, "invalid")
    return parts


class Destination:
    """The place ``to`` below ``work`` in the workspace ``workspace``.

    ``taken`` are names in ``work/inputs`` that have their own use. Raises :class:`WorkspacePathError` if the path
    cannot be used.
    """

    def __init__(self, to: str, workspace: Path, ownership: Ownership, taken: Collection[str]) -> None:
        self._parts = place_parts(to)
        self._ownership = ownership
        self.shown = "/".join(self._parts)
        self.path = workspace.joinpath(*self._parts)
        if self._parts[:2] == ("work", "inputs") and self._parts[2] in taken:
            raise WorkspacePathError(f"{to!r} is the event or an input of the job: choose another name", "taken")

    def put_data(self, root: int, data: bytes, *, replace: bool) -> Placed:
        """Make it a file with this content. ``replace``: also where a folder is. Raises as :meth:`put`."""
        with self._folder(root) as folder:
            self._check_free(folder, replace=replace)
            put_file(root, folder, self._parts[-1], data, self._ownership.handed)
        return Placed(self.shown, self.path, len(data))

    def put(self, root: int, source: CopySource, mode: Mode, *, replace: bool) -> Placed:
        """Make it a copy of ``source``, or a link to it. ``replace``: also where a folder is, by another folder.

        Raises :class:`OSError` and :class:`WorkspacePathError`.
        """
        with self._folder(root) as folder:
            if mode == "link" and source.is_inside:
                text = source.link_text(self._parts, root)
                self._check_free(folder, replace=False)
                put_link(root, folder, self._parts[-1], text)
                return Placed(self.shown, self.path, source.size, 0, mode="link")
            building = unfinished_name()
            try:
                is_folder = source.copy(root, building)
                self._check_free(folder, replace=replace and is_folder)
                move_in(root, building, folder, self._parts[-1])
            finally:
                remove_tree(building, dir_fd=root)
        return Placed(self.shown, self.path, source.size, source.files, source.skipped)

    @contextmanager
    def _folder(self, root: int) -> Iterator[int]:
        """The open folder of the place, made with those above it."""
        with folder_in(root, "work", self._ownership.open) as work, self._below(work, self._parts[1:-1]) as folder:
            yield folder

    @contextmanager
    def _below(self, folder: int, parts: Sequence[str]) -> Iterator[int]:
        if not parts:
            yield folder
            return
        with suppress(FileNotFoundError):
            found = os.stat(parts[0], dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISDIR(found.st_mode):
                message = f"{self.shown!r}: {parts[0]!r} is {kind_of(found.st_mode)} there: choose another place"
                raise WorkspacePathError(message, "taken")
        with folder_in(folder, parts[0], self._ownership.open) as inner, self._below(inner, parts[1:]) as last:
            yield last

    def _check_free(self, folder: int, *, replace: bool) -> None:
        """Raise :class:`WorkspacePathError` where a folder would be replaced that may not be."""
        with suppress(FileNotFoundError):
            found = os.stat(self._parts[-1], dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode) and not replace:
                raise WorkspacePathError(
                    f"{self.shown!r} is a folder that already exists: choose another place", "taken"
                )
