"""Tool ``Write``, and how file tools change files: atomically, within the limits, and one time for each call."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Annotated, Any

from pydantic import Field

from flink_skills.execution.launcher.usage import folder_use
from flink_skills.execution.workspace.safe_files import (
    Ownership,
    Rights,
    folders_in,
    read_restored,
    replace_file,
    write_all,
)
from flink_skills.execution.workspace.workspace_paths import WorkspacePathError, kind_of
from flink_skills.sources.locking import MACHINE_FULL
from flink_skills.tools.argument_model import Also, ArgumentModel
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext
from flink_skills.tools.files.file_tool import Area, StoredTool, Target
from flink_skills.tools.files.text_files import Encoding, detect

_LOG_FILE = ".file-tools.json"
_MAX_LOGGED = 64
_MAX_LOG_BYTES = 1 << 20
_HEAD_BYTES = 64 << 10


class FileChanges:
    """Changes files of ``area``, whose workspace is open as ``root``. Blocks; raises :class:`ArgumentError`.

    Calls hold :attr:`lock`, so that no call undoes a change of another one. It is in memory, because turns of a key
    never overlap in two workers. A command could hold a lock on a file, and block threads that other keys need.
    """

    def __init__(self, area: Area, root: int) -> None:
        self.lock = area.workspace.file_tools
        self._area = area
        self._root = root
        self._ownership = Ownership(area.workspace.user)

    def replace(self, target: Target, data: bytes) -> None:
        """Write the file's content atomically. Missing folders above it are created."""
        with self._folder(target) as folder:
            found = self._stat(folder, target)
            old = found.st_size if found is not None else 0
            self._check_limits(target, len(data), len(data) - old, is_new=found is None)
            rights = self._ownership.handed
            if found is not None:  # a script stays one
                rights = rights.as_program(found.st_mode)
            replace_file(self._root, folder, target.parts[-1], data, rights)

    def size(self, target: Target) -> int:
        """Return the file's bytes, 0 if it does not exist."""
        with self._folder(target) as folder:
            found = self._stat(folder, target)
            return found.st_size if found is not None else 0

    def part(self, target: Target, offset: int, size: int) -> bytes:
        """Return at most ``size`` bytes of the file from ``offset``."""
        with self._area.file(self._root, target) as descriptor:
            return os.pread(descriptor, size, offset)

    def append(self, target: Target, data: bytes) -> None:
        """Write ``data`` at the file's end. It is created if it is missing, and restored after a failure."""
        with self._folder(target) as folder:
            found = self._stat(folder, target)
            size = found.st_size if found is not None else 0
            self._check_limits(target, size + len(data), len(data), is_new=found is None)
            if found is None:
                replace_file(self._root, folder, target.parts[-1], data, self._ownership.handed)
                return
            shown = self._area.quoted(target)
            with self._area.reach.file(target.parts[-1], folder, shown=shown, append=True) as descriptor:
                size = os.fstat(descriptor).st_size
                try:
                    write_all(descriptor, data)
                except OSError:
                    with suppress(OSError):
                        os.ftruncate(descriptor, size)
                    raise

    def _stat(self, folder: int, target: Target) -> os.stat_result | None:
        """Return the file's status. Return None if it does not exist."""
        try:
            found = os.stat(target.parts[-1], dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode):
            kind = kind_of(found.st_mode)
            message = f"{self._area.quoted(target)} is {kind} instead of a file. Choose another name."
            raise WorkspacePathError(message, "taken")
        return found

    @contextmanager
    def _folder(self, target: Target) -> Iterator[int]:
        """Return the open folder of the file, created with those above it."""
        shown = self._area.quoted(target)

        def taken(part: str, kind: str) -> str:
            return f"{shown} cannot be created: {part!r} is {kind} instead of a folder"

        rights = self._ownership.open
        with self._area.explained(target.requested):
            try:
                with folders_in(self._root, target.parts[:-1], rights, taken) as folder:
                    yield folder
            except OSError as error:
                if error.errno not in MACHINE_FULL:
                    raise
                raise ArgumentError(
                    f"{shown} was not written: the machine has no space left ({error.strerror}). "
                    "Remove files that are no longer needed, and try again."
                ) from None

    def _check_limits(self, target: Target, size: int, more: int, *, is_new: bool) -> None:
        """Raise :class:`WorkspacePathError` for a file of ``size`` bytes, ``more`` than now, above the limits."""
        limits, shown = self._area.limits, self._area.quoted(target)
        message = ""
        if limits.file_size and size > limits.file_size:
            message = f"{shown} was not written: it would have {size} bytes, and the maximum is {limits.file_size}"
        elif more > 0 or is_new:
            use = folder_use(self._area.workspace.writable, limits.workspace_files)
            if limits.workspace_bytes and use.size + more > limits.workspace_bytes:
                message = (
                    f"{shown} was not written: the workspace contains {use.size} of at most {limits.workspace_bytes} "
                    "bytes. Remove files from $WORK_DIR that are no longer needed."
                )
            elif limits.workspace_files and use.files + is_new > limits.workspace_files:
                message = (
                    f"{shown} was not written: the workspace contains its maximum of {limits.workspace_files} files "
                    "and folders. Remove some from $WORK_DIR."
                )
        if message:
            raise WorkspacePathError(message, "too-large")


class OperationLog:
    """Log of one call's changes that must not happen twice, in a file in the workspace that no command writes.

    A call that was running when its worker crashed is repeated with the same call id. To append or to replace text
    again would do harm. The call therefore logs the change before, and its repetition reads the log. Another machine
    has no log, and no changed file either. Use it while :attr:`FileChanges.lock` is held. ``root`` is the open
    workspace.
    """

    def __init__(self, root: int, context: ToolContext) -> None:
        self._root = root
        self._call_id = context.call_id
        self._is_repeated = context.attempt > 1

    def earlier(self) -> Mapping[str, Any] | None:
        """Return the entry of an earlier attempt of this call. Return None if there is none."""
        if not self._is_repeated or not self._call_id:
            return None
        return next((entry for entry in self._entries() if entry.get("call_id") == self._call_id), None)

    def add(self, **operation: Any) -> None:
        """Log what the call is about to do. Raises :class:`OSError`."""
        if not self._call_id:
            return
        others = [entry for entry in self._entries() if entry.get("call_id") != self._call_id]
        entries = [*others[1 - _MAX_LOGGED :], {"call_id": self._call_id, **operation}]
        replace_file(self._root, self._root, _LOG_FILE, json.dumps(entries).encode(), Rights(-1, -1, 0o600))

    def _entries(self) -> list[dict[str, Any]]:
        # Without isolation of files, a command can write anything there.
        try:
            entries = json.loads(read_restored(_LOG_FILE, self._root, _MAX_LOG_BYTES))
        except (OSError, ValueError, RecursionError):
            return []
        return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


class _WriteArguments(ArgumentModel):
    path: Annotated[str, Also("file_path", "file", "filename")]
    content: Annotated[str, Also("text", "contents")]
    append: bool = Field(False, description="Add to the end instead of replacing the file.")


class Write(StoredTool[_WriteArguments]):
    """Writes a file atomically, with the folders above it, or adds to its end.

    ``{success, message, path}``. New files are UTF-8. Added text has the encoding of the file. A call that is repeated
    after a crash adds nothing a second time, and completes an interrupted write.
    """

    tool_name = "Write"
    description = (
        "Write a text file. Replaces an existing file, or adds to its end with append=true. Creates missing folders. "
        "To change part of a file, use Edit."
    )
    model = _WriteArguments

    def _work(
        self, request: _WriteArguments, area: Area, root: int, context: ToolContext, stop: threading.Event
    ) -> dict[str, Any]:
        target = area.locate(root, request.path)
        area.check_writable(target, request.path)
        changes = FileChanges(area, root)
        with changes.lock:
            if request.append:
                size = _append(request.content, area, target, changes, OperationLog(root, context))
            else:
                data = Encoding().encode(request.content)
                size = len(data)
                changes.replace(target, data)
        shown = area.shown(target.parts)
        return {
            "success": True,
            "message": f"SUCCESS: file {shown} written to successfully ({size} bytes)",
            "path": shown,
        }


def _append(text: str, area: Area, target: Target, changes: FileChanges, log: OperationLog) -> int:
    """Add ``text`` to the file, and return its size in bytes."""
    at = changes.size(target)
    head = changes.part(target, 0, _HEAD_BYTES) if at else b""
    encoding = (detect(head, whole=at <= _HEAD_BYTES) if head else None) or Encoding()
    data = encoding.encode(text)
    operation = {"op": "append", "path": "/".join(target.parts), "sha256": hashlib.sha256(data).hexdigest()}
    earlier = log.earlier()
    rest = data
    if earlier is not None and all(earlier.get(name) == value for name, value in operation.items()):
        rest = _missing(data, earlier.get("at"), target, changes, at)
    else:
        with area.explained(target.requested):
            log.add(**operation, at=at)
    if rest:
        changes.append(target, rest)
    return len(data)


def _missing(data: bytes, start: Any, target: Target, changes: FileChanges, size: int) -> bytes:
    """Return the part of ``data`` that an earlier attempt, which started at ``start`` bytes, has not written."""
    if not isinstance(start, int) or not 0 <= start < size:
        return data
    written = changes.part(target, start, len(data))
    if written == data:
        return b""
    # A crash interrupted the write. Other content was written by another call.
    return data[len(written) :] if data.startswith(written) and start + len(written) == size else data
