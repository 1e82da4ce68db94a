"""Inputs in a workspace: built aside, without links and within limits, then moved atomically."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from flink_skills.errors import ConfigError
from flink_skills.execution.workspace.safe_files import (
    Ownership,
    Reach,
    closing,
    created,
    folders_in,
    move_in,
    put_link,
    replace_file,
    unfinished,
    write_all,
)
from flink_skills.execution.workspace.workspace_paths import (
    READABLE,
    VENV,
    WorkspacePathError,
    is_sealed,
    kind_of,
    parts_of,
    place_parts,
)

EVENT_FILE = "event.json"
Mode = Literal["copy", "link"]

_CHUNK = 1 << 20
_MAX_DEPTH = 48


@dataclass(frozen=True)
class Input:
    """A file or folder of the machine that the job lets commands read, and its name in ``work/inputs``."""

    source: str
    name: str

    @property
    def resolved(self) -> str:
        """The real path at this moment: mounted configuration moves when it is updated."""
        return os.path.realpath(self.source)


def name_inputs(paths: tuple[str, ...]) -> tuple[Input, ...]:
    """Return names for the paths of ``skills.workspace.inputs``: the last part, with a number if it is taken.

    Raises :class:`ConfigError` for a path that does not exist on this machine.

    >>> [one.name for one in name_inputs(("/usr/lib", "/lib"))]
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


class CopySource:
    """A file or folder in a workspace, or one of the machine that the job grants, to be copied or linked.

    A path of the machine must be real: no link on the way may choose what is read. After :meth:`copy`, ``files`` and
    ``size`` (bytes) count the copied files, and ``skipped`` the entries of a folder that are not copied, such as links
    and pipes. After :meth:`link_text`, ``size`` is the target's size, of a folder up to the limits of a copy.
    Raises :class:`WorkspacePathError` for a path in the workspace that may not be read.
    """

    def __init__(self, source: Path, workspace: Path, ownership: Ownership, *, max_files: int, max_bytes: int) -> None:
        self.files = self.size = self.skipped = 0
        self._source = source
        self._inside: tuple[str, ...] = ()
        if source.is_relative_to(workspace):
            self._inside = parts_of(source.relative_to(workspace).as_posix(), READABLE)
        self.is_inside = bool(self._inside)
        """Whether it is in the workspace."""
        self._shown = "/".join(self._inside) or str(source)
        self._sealed = not self._inside or is_sealed(self._inside)
        self._ownership = ownership
        self._reach = Reach(ownership.user if self._inside else None)
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._seen = 0

    def link_text(self, parts: Sequence[str], root: int) -> str:
        """Return the target of a link at ``parts`` that leads here.

        Raises :class:`WorkspacePathError` if the target does not exist.
        """
        with self._opened(root) as (name, parent):
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                self.size = found.st_size
            elif stat.S_ISDIR(found.st_mode):
                self._measure(name, parent)
            else:
                raise WorkspacePathError(
                    f"{self._shown!r} is {kind_of(found.st_mode)}, and only files are linked", "no-file"
                )
        return os.path.relpath("/".join(self._inside), "/".join(parts[:-1]))

    def copy(self, root: int, building: str) -> bool:
        """Copy it to the new ``building`` in the open ``root``, and return True if it is a directory.

        Raises :class:`WorkspacePathError`.
        """
        with self._opened(root) as (name, parent):
            is_folder = stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
            copy = self._copy_folder if is_folder else self._copy_file
            copy(name, parent, building, root, shown=self._shown)
        return is_folder

    def _measure(self, name: str, parent: int, depth: int = 0) -> None:
        """Add the sizes of the files in a folder, up to the limits of a copy. Unreadable files are not counted."""
        if depth > _MAX_DEPTH or self._seen > self._max_files:
            return
        with suppress(OSError, WorkspacePathError), self._reach.folder(name, parent) as folder:
            for entry, kind in self._listed(folder):
                if kind == "folder":
                    self._measure(entry, folder, depth + 1)
                elif kind == "file":
                    self.size += os.stat(entry, dir_fd=folder, follow_symlinks=False).st_size

    @contextmanager
    def _opened(self, root: int) -> Iterator[tuple[str, int]]:
        """Return its name and the open folder that contains it."""
        with _explained(self._shown), ExitStack() as stack:
            if self._inside:
                yield self._inside[-1], stack.enter_context(self._reach.below(root, self._inside[:-1]))
                return
            flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
            above = stack.enter_context(closing(os.open(self._source.parent, flags)))
            # Check what was opened: a link on the way can be new.
            if not self._source.name or os.readlink(f"/proc/self/fd/{above}") != str(self._source.parent):
                raise WorkspacePathError(f"{self._shown!r} is reached through a link: name its real path", "invalid")
            yield self._source.name, above

    def _copy_file(self, name: str, parent: int, to: str, into: int, *, shown: str) -> None:
        with _explained(shown), self._reach.file(name, parent, shown=repr(shown), trusted=self._sealed) as reading:
            self.files += 1
            found = os.fstat(reading)
            self._check(found.st_size)
            with created(to, into) as writing:
                while chunk := os.read(reading, _CHUNK):
                    self._check(len(chunk))
                    self.size += len(chunk)
                    write_all(writing, chunk)
                self._ownership.handed.as_program(found.st_mode).apply(writing)

    def _copy_folder(self, name: str, parent: int, to: str, into: int, *, shown: str, depth: int = 0) -> None:
        if depth > _MAX_DEPTH:
            raise WorkspacePathError(
                f"{self._shown!r} is more than {_MAX_DEPTH} folders deep: name a part of it", "too-large"
            )
        with _explained(shown), self._reach.folder(name, parent) as source:
            entries = self._listed(source)
            os.mkdir(to, 0o700, dir_fd=into)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            with closing(os.open(to, flags, dir_fd=into)) as target:
                for entry, kind in entries:
                    below = f"{shown}/{entry}"
                    if kind == "file":
                        self._copy_file(entry, source, entry, target, shown=below)
                    elif kind == "folder" and not (self._sealed and entry == VENV):
                        self._copy_folder(entry, source, entry, target, shown=below, depth=depth + 1)
                    else:
                        self.skipped += 1
                # At the end, because commands can enter it from then on.
                self._ownership.open.apply(target)

    def _listed(self, folder: int) -> list[tuple[str, str]]:
        """Return names and kinds (file, folder or other) in an open folder."""
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self._seen += 1
                if self._seen > self._max_files:
                    message = f"{self._shown!r} has more than {self._max_files} files and folders"
                    raise WorkspacePathError(f"{message}: name a part of it", "too-large")
                is_file = entry.is_file(follow_symlinks=False)
                kind = "folder" if entry.is_dir(follow_symlinks=False) else "file" if is_file else "other"
                found.append((entry.name, kind))
        return sorted(found)

    def _check(self, more: int) -> None:
        if self.size + more > self._max_bytes:
            raise WorkspacePathError(
                f"{self._shown!r} has more than {self._max_bytes} bytes: name a part of it", "too-large"
            )


@contextmanager
def _explained(shown: str) -> Iterator[None]:
    """Turn errors into messages that a model can act on. Those of files below have their messages already."""
    try:
        yield
    except FileNotFoundError:
        raise WorkspacePathError(f"{shown!r} does not exist: list the files first", "missing") from None
    except NotADirectoryError:
        raise WorkspacePathError(f"{shown!r} has a file or a link above it: name the file itself", "missing") from None
    except PermissionError:
        message = f"{shown!r} cannot be read: its mode denies access to the worker. Make it readable (chmod)."
        raise WorkspacePathError(message, "unreadable") from None


@dataclass(frozen=True)
class Placed:
    """An input that was written. ``to`` is relative to the workspace, ``path`` the same in the file system.

    ``files`` counts copied files, ``size_bytes`` what was copied or linked, ``skipped`` the entries of a folder that
    were not copied, such as links and pipes. ``mode`` is what was done: what is outside the workspace is copied.
    """

    to: str
    path: Path
    size_bytes: int
    files: int = 1
    skipped: int = 0
    mode: Mode = "copy"


class Destination:
    """The path ``to`` below ``work`` in the workspace ``workspace``.

    ``taken`` are reserved names in ``work/inputs``. Raises :class:`WorkspacePathError` if the path cannot be used.
    """

    def __init__(self, to: str, workspace: Path, ownership: Ownership, taken: Collection[str]) -> None:
        self._parts = place_parts(to)
        self._ownership = ownership
        self.shown = "/".join(self._parts)
        self.path = workspace.joinpath(*self._parts)
        if self._parts[:2] == ("work", "inputs") and self._parts[2] in taken:
            raise WorkspacePathError(f"{to!r} is the event or an input of the job: choose another name", "taken")

    def put_data(self, root: int, data: bytes, *, replace: bool) -> Placed:
        """Make it a file with this content. ``replace``: even if it is a folder. Raises as :meth:`put`."""
        with self._folder(root) as folder:
            self._check_free(folder, replace=replace)
            replace_file(root, folder, self._parts[-1], data, self._ownership.handed, force=True)
        return Placed(self.shown, self.path, len(data))

    def put(self, root: int, source: CopySource, mode: Mode, *, replace: bool) -> Placed:
        """Make it a copy of ``source``, or a link to it. ``replace``: a folder even replaces a folder.

        Raises :class:`OSError` and :class:`WorkspacePathError`.
        """
        with self._folder(root) as folder:
            if mode == "link" and source.is_inside:
                text = source.link_text(self._parts, root)
                self._check_free(folder, replace=False)
                put_link(root, folder, self._parts[-1], text)
                return Placed(self.shown, self.path, source.size, 0, mode="link")
            with unfinished(root) as building:
                is_folder = source.copy(root, building)
                self._check_free(folder, replace=replace and is_folder)
                move_in(root, building, folder, self._parts[-1])
        return Placed(self.shown, self.path, source.size, source.files, source.skipped)

    @contextmanager
    def _folder(self, root: int) -> Iterator[int]:
        """Return the open folder that contains the path, created with those above it."""

        def taken(part: str, kind: str) -> str:
            return f"{self.shown!r}: {part!r} is {kind} there: choose another place"

        rights = self._ownership.open
        with folders_in(root, ("work",), rights) as work, folders_in(work, self._parts[1:-1], rights, taken) as folder:
            yield folder

    def _check_free(self, folder: int, *, replace: bool) -> None:
        """Raise :class:`WorkspacePathError` if a folder would be replaced that may not be."""
        with suppress(FileNotFoundError):
            found = os.stat(self._parts[-1], dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode) and not replace:
                message = f"{self.shown!r} is a folder that already exists: choose another place"
                raise WorkspacePathError(message, "taken")
