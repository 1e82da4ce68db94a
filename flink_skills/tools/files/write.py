"""Tool ``Write``, and how file tools change files: atomically, within the limits, and one time for each call."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Any

from pydantic import Field

from flink_skills.execution.launcher.tree import folder_use
from flink_skills.execution.workspace.safe_files import Ownership, Rights, folder_in
from flink_skills.execution.workspace.workspace_inputs import unfinished_name
from flink_skills.execution.workspace.workspace_paths import WorkspacePathError, kind_of
from flink_skills.sources.os_errors import MACHINE_FULL
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext
from flink_skills.tools.files.file_paths import Area, Target
from flink_skills.tools.files.file_tool import StoredTool
from flink_skills.tools.files.text_files import Encoding, detect
from flink_skills.tools.given import Also, Given

__all__ = ["Ledger", "Storing", "Write", "replace_file", "write_all"]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Storing:
    """Changes files of ``area``, whose workspace is open as ``root``. Blocks; raises :class:`ArgumentError`."""

    def __init__(self, area: Area, root: int) -> None:
        self._area = area
        self._root = root
        self._ownership = Ownership(area.workspace.user)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other calls of file tools from changing files of this workspace: none undoes what another one did.

        The lock is in memory, because turns of a key never overlap in two workers. A lock on a file that commands can
        open is not possible: a command could hold it, and block threads of the worker that other keys need.
        """
        with self._area.workspace.file_tools:
            yield

    def replace(self, target: Target, data: bytes) -> None:
        """Make the file have this content, at once or not at all; folders above it are made."""
        with self._folder(target) as folder:
            found = self._there(folder, target)
            old = found.st_size if found is not None else 0
            self._check_room(target, len(data), len(data) - old, 0 if found is not None else 1)
            rights = self._ownership.handed
            if found is not None and found.st_mode & 0o111:  # a script stays one
                rights = Rights(rights.uid, rights.gid, rights.mode | (rights.mode & 0o440) >> 2)
            replace_file(self._root, folder, target.parts[-1], data, rights)

    def size(self, target: Target) -> int:
        """Bytes of the file; 0 where there is none yet."""
        with self._folder(target) as folder:
            found = self._there(folder, target)
            return found.st_size if found is not None else 0

    def part(self, target: Target, offset: int, size: int) -> bytes:
        """At most ``size`` bytes of the file from ``offset``."""
        with self._area.file(self._root, target) as descriptor:
            return os.pread(descriptor, size, offset)

    def append(self, target: Target, data: bytes) -> None:
        """Write ``data`` at the end of the file, which is made where there is none. What does not fit is taken back."""
        with self._folder(target) as folder:
            found = self._there(folder, target)
            size = found.st_size if found is not None else 0
            self._check_room(target, size + len(data), len(data), 0 if found is not None else 1)
            if found is None:
                replace_file(self._root, folder, target.parts[-1], data, self._ownership.handed)
                return
            with self._area.reach.file(target.parts[-1], folder, shown=self._shown(target), append=True) as descriptor:
                size = os.fstat(descriptor).st_size
                try:
                    write_all(descriptor, data)
                except OSError:
                    with suppress(OSError):
                        os.ftruncate(descriptor, size)
                    raise

    def _there(self, folder: int, target: Target) -> os.stat_result | None:
        try:
            found = os.stat(target.parts[-1], dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode):
            message = f"{self._shown(target)} is {kind_of(found.st_mode)} instead of a file. Choose another name."
            raise WorkspacePathError(message, "taken")
        return found

    @contextmanager
    def _folder(self, target: Target) -> Iterator[int]:
        """The open folder of the file, made with those above it."""
        with self._told(target), self._below(self._root, target.parts[:-1], self._shown(target)) as folder:
            yield folder

    @contextmanager
    def _below(self, folder: int, parts: Sequence[str], shown: str) -> Iterator[int]:
        if not parts:
            yield folder
            return
        with suppress(FileNotFoundError):
            found = os.stat(parts[0], dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISDIR(found.st_mode):
                message = f"{shown} cannot be created: {parts[0]!r} is {kind_of(found.st_mode)} instead of a folder"
                raise WorkspacePathError(message, "taken")
        with folder_in(folder, parts[0], self._ownership.open) as inner, self._below(inner, parts[1:], shown) as last:
            yield last

    @contextmanager
    def _told(self, target: Target) -> Iterator[None]:
        with self._area.told(target.asked):
            try:
                yield
            except OSError as error:
                if error.errno in MACHINE_FULL:
                    raise ArgumentError(
                        f"{self._shown(target)} was not written: the machine has no space left ({error.strerror}). "
                        "Remove files that are no longer needed, and try again."
                    ) from None
                raise

    def _shown(self, target: Target) -> str:
        return repr(self._area.names.shown(target.asked))

    def _check_room(self, target: Target, size: int, more: int, files: int) -> None:
        limits, workspace = self._area.limits, self._area.workspace
        shown = self._shown(target)
        if limits.file_size and size > limits.file_size:
            message = f"{shown} was not written: it would have {size} bytes, and the maximum is {limits.file_size}"
            raise WorkspacePathError(message, "too-large")
        if more <= 0 and not files:
            return
        use = folder_use(workspace.writable, limits.workspace_files)
        if limits.workspace_bytes and use.size + more > limits.workspace_bytes:
            raise WorkspacePathError(
                f"{shown} was not written: the workspace contains {use.size} of at most {limits.workspace_bytes} "
                "bytes. Remove files from $WORK_DIR that are no longer needed.",
                "too-large",
            )
        if limits.workspace_files and use.files + files > limits.workspace_files:
            raise WorkspacePathError(
                f"{shown} was not written: the workspace contains its maximum of {limits.workspace_files} files and "
                "folders. Remove some from $WORK_DIR.",
                "too-large",
            )


def replace_file(root: int, folder: int, name: str, data: bytes, rights: Rights) -> None:
    """Have the file ``name`` in ``folder``, built in ``root``, where no command writes. Raises :class:`OSError`.

    A folder that somebody puts there meanwhile stays, and is an error.
    """
    building = unfinished_name()
    descriptor = os.open(building, _NEW, 0o600, dir_fd=root)
    try:
        try:
            write_all(descriptor, data)
            rights.apply(descriptor)
        finally:
            os.close(descriptor)
        os.rename(building, name, src_dir_fd=root, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(building, dir_fd=root)
        raise


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``. Raises :class:`OSError`."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


_NAME = ".file-tools.json"
_KEPT = 64
_MAX_BYTES = 1 << 20


class Ledger:
    """The notes of the workspace that is open as ``root``, for one call. Used while
    :meth:`~flink_skills.tools.files.write.Storing.alone` is held."""

    def __init__(self, root: int, context: ToolContext) -> None:
        self._root = root
        self._call_id = context.call_id
        self._again = context.attempt > 1

    def begun(self) -> Mapping[str, Any] | None:
        """What an earlier attempt of this call noted; None where there was none."""
        if not self._again or not self._call_id:
            return None
        return next((note for note in self._notes() if note.get("call_id") == self._call_id), None)

    def note(self, **about: Any) -> None:
        """Note what the call is about to do. Raises :class:`OSError`."""
        if not self._call_id:
            return
        others = [note for note in self._notes() if note.get("call_id") != self._call_id]
        notes = [*others[1 - _KEPT :], {"call_id": self._call_id, **about}]
        replace_file(self._root, self._root, _NAME, json.dumps(notes).encode(), Rights(-1, -1, 0o600))

    def _notes(self) -> list[dict[str, Any]]:
        # Where no file is kept from commands, they may have written anything there.
        try:
            descriptor = os.open(_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._root)
        except OSError:
            return []
        try:
            notes = json.loads(os.read(descriptor, _MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            return []
        finally:
            os.close(descriptor)
        return [note for note in notes if isinstance(note, dict)] if isinstance(notes, list) else []


_HEAD = 64 << 10


class _WriteArguments(Given):
    path: Annotated[str, Also("file_path", "file", "filename")]
    content: Annotated[str, Also("text", "contents")]
    append: bool = Field(False, description="Add to the end instead of replacing the file.")


class Write(StoredTool[_WriteArguments]):
    """Writes a file, with the folders above it, at once or not at all; or adds to its end.

    ``{success, message, path}``. New files are UTF-8; what is added has the encoding that the file has. A call that is
    made again after a crash adds nothing a second time, and completes what was begun.
    """

    tool_name = "Write"
    description = (
        "Write a text file. Replaces an existing file, or adds to its end with append=true. Creates missing folders. "
        "To change part of a file, use Edit."
    )
    model = _WriteArguments

    def _work(
        self, asked: _WriteArguments, area: Area, root: int, context: ToolContext, stop: threading.Event
    ) -> dict[str, Any]:
        target = area.locate(root, asked.path)
        area.check_writable(target, asked.path)
        storing = Storing(area, root)
        with storing.alone():
            if asked.append:
                size = _append(asked.content, area, target, storing, Ledger(root, context))
            else:
                data = Encoding().encode(asked.content)
                size = len(data)
                storing.replace(target, data)
        shown = area.names.shown(target.parts)
        return {
            "success": True,
            "message": f"SUCCESS: file {shown} written to successfully ({size} bytes)",
            "path": shown,
        }


def _append(text: str, area: Area, target: Target, storing: Storing, ledger: Ledger) -> int:
    """Add ``text`` to the file; the bytes that it is."""
    at = storing.size(target)
    head = storing.part(target, 0, _HEAD) if at else b""
    encoding = (detect(head, whole=at <= _HEAD) if head else None) or Encoding()
    data = encoding.encode(text)
    about = {"op": "append", "path": "/".join(target.parts), "sha256": hashlib.sha256(data).hexdigest()}
    begun = ledger.begun()
    rest = data
    if begun is not None and all(begun.get(name) == value for name, value in about.items()):
        rest = _missing(data, begun.get("at"), target, storing, at)
    else:
        with area.told(target.asked):
            ledger.note(**about, at=at)
    if rest:
        storing.append(target, rest)
    return len(data)


def _missing(data: bytes, begun_at: Any, target: Target, storing: Storing, size: int) -> bytes:
    """What of ``data`` an earlier attempt, which began when the file had ``begun_at`` bytes, has not written."""
    if not isinstance(begun_at, int) or not 0 <= begun_at < size:
        return data
    there = storing.part(target, begun_at, len(data))
    if there == data:
        return b""
    # A write that the crash cut short; anything else is another's, and what was begun is not there.
    return data[len(there) :] if data.startswith(there) and begun_at + len(there) == size else data
