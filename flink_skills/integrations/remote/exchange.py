"""Which files of the worker a command needs, and which of them a sandbox lacks."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flink_skills.errors import ExecutionError
from flink_skills.execution.request import CommandRequest
from flink_skills.integrations.remote.inside.folder_streams import Entry, pack, scan
from flink_skills.integrations.remote.inside.paths import inside, outermost

# Entries as they were on the worker when both sides had the same, by slot and path.
Known = dict[str, Entry]

_MAX_FILES = 100_000
_MAX_BYTES = 1 << 30
_WORKSPACE = "workspace"


class Folders:
    """The folders and files of a command: ``slots`` are what the sandbox has a folder for, by its name there.

    The workspace is one, and so is each readable folder outside of it, and the folder around each readable file
    outside of it, for that file alone.
    """

    def __init__(self, request: CommandRequest) -> None:
        self.request = request
        self.writable = [path for path in outermost(request.writable) if path != "/"]
        self._moved = [path for path in outermost([*request.writable, *request.readable]) if path != "/"]
        root = posixpath.normpath(request.root) if request.root else ""
        tops = [path if Path(path).is_dir() else posixpath.dirname(path) for path in self._moved]
        tops = outermost([top for top in tops if not root or not inside(top, root)])
        self.slots = {_slot(top): top for top in tops if top != "/"}
        if root:
            self.slots[_WORKSPACE] = root

    def scan(self) -> Known:
        """What is there now. Raises :class:`ExecutionError` for more than a sandbox is sent."""
        found: Known = {}
        for path in self._moved:
            try:
                found.update(self._scan(path))
            except OverflowError as error:
                raise ExecutionError(
                    f"the directory {path} has {error}, too many to send to a sandbox: remove files that the command "
                    "does not need"
                ) from error
        size = sum(entry.size for entry in found.values())
        if size > _MAX_BYTES:
            raise ExecutionError(
                f"the command's directories contain {size} bytes, and a sandbox receives at most {_MAX_BYTES}: remove "
                "files, or use smaller skills"
            )
        return found

    def _scan(self, path: str) -> Known:
        name = self._name(path)
        if not name:
            return {}
        if Path(path).is_dir():
            return {f"{name}/{below}": entry for below, entry in scan(path, _MAX_FILES).items()}
        try:
            entry = Entry.of(Path(path).lstat())
        except OSError:
            return {}
        return {name: entry} if entry is not None and entry.kind == "file" else {}

    @property
    def room(self) -> tuple[int, int]:
        """Bytes and files that the writable folders may hold on the worker."""
        limits = self.request.limits
        return limits.workspace_bytes or _MAX_BYTES, limits.workspace_files or _MAX_FILES

    def path(self, name: str) -> str:
        """The worker's path of an entry."""
        slot, _, rest = name.partition("/")
        return posixpath.join(self.slots[slot], rest)

    def covers(self, name: str) -> bool:
        """Whether :meth:`scan` would have found the entry, if it were there."""
        slot, _, rest = name.partition("/")
        path = posixpath.join(self.slots.get(slot, ""), rest)
        return slot in self.slots and any(inside(path, folder) for folder in self._moved)

    def is_writable(self, name: str) -> bool:
        slot, _, rest = name.partition("/")
        path = posixpath.join(self.slots.get(slot, ""), rest)
        return slot in self.slots and any(inside(path, folder) and path != folder for folder in self.writable)

    def _name(self, path: str) -> str:
        """What an entry at the worker's ``path`` is called; empty for one in the root folder of the machine."""
        around = [(len(top), slot) for slot, top in self.slots.items() if inside(path, top)]
        if not around:
            return ""
        length, slot = max(around)
        return f"{slot}/{path[length:].strip('/')}".rstrip("/")


def _slot(folder: str) -> str:
    return "folder-" + hashlib.sha256(folder.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class Parcel:
    """What a sandbox is sent with a command."""

    header: dict[str, Any]
    entries: dict[str, Entry]
    folders: Folders
    stdin: bytes

    @classmethod
    def make(cls, folders: Folders, now: Known, known: Known, more: Mapping[str, Any]) -> Parcel:
        """What of ``now`` is not yet ``known`` there, and the command itself, with ``more`` for the program there."""
        request = folders.request
        limits = request.limits
        header = {
            "argv": list(request.argv),
            "cwd": request.cwd,
            "env": dict(request.env),
            "limits": asdict(limits),
            "folders": folders.slots,
            "writable": folders.writable,
            "removed": [name for name in known if name not in now and folders.covers(name)],
            "stdin": len(request.stdin),
            "room": folders.room,
            **more,
        }
        changed = {name: entry for name, entry in now.items() if known.get(name) != entry}
        return cls(header, changed, folders, request.stdin)

    @property
    def moves(self) -> bool:
        """Whether it changes files, so that nothing may overtake it."""
        return bool(self.entries or self.header["removed"])

    def parts(self, size: int) -> Iterator[bytes]:
        """The stream in pieces of ``size`` bytes."""
        part = bytearray()
        for chunk in pack(self.header, self.entries, self.folders.path, self.stdin):
            part += chunk
            while len(part) >= size:
                yield bytes(part[:size])
                del part[:size]
        if part:
            yield bytes(part)
