"""How files that a command changed in a sandbox come to the worker, without trust in what the sandbox sends."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from flink_skills.errors import ExecutionError
from flink_skills.execution.request import CommandUser
from flink_skills.integrations.remote.exchange import Folders, Known
from flink_skills.integrations.remote.inside.files import (
    Entry,
    FolderWriter,
    check_path,
    entries_of,
    read_header,
)
from flink_skills.integrations.remote.inside.paths import inside

__all__ = ["take_changes"]

_CHUNK = 1 << 20


def take_changes(folders: Folders, stream: IO[bytes], known: Known, user: CommandUser | None) -> list[str]:
    """Write what a sandbox changed to the worker's folders, and bring ``known`` up to date.

    Entries outside of the writable folders and links that lead out of the command's folders are left out, and
    returned. Raises :class:`ExecutionError` for a stream that is no such thing, or that holds too much.
    """
    try:
        header = read_header(stream)
        entries = entries_of(header)
        removed = list(_names(header.get("removed")))
    except (ValueError, RecursionError) as error:
        raise ExecutionError(f"the changes that the sandbox sent are not valid: {error}") from error
    _check_room(folders, entries, known)
    owner = (user.uid, user.gid) if user is not None and os.geteuid() == 0 else None
    writers = {
        # The worker goes on reading and writing what a command has closed to itself.
        slot: FolderWriter(top, least_mode=0o600, owner=owner, link_allowed=_LinkRule(folders, slot).allows)
        for slot, top in folders.slots.items()
    }
    removed = [name for name in removed if folders.is_writable(name)]
    for slot, writer in writers.items():
        writer.remove(name[len(slot) + 1 :] for name in removed if name.startswith(slot + "/"))
    for name in removed:
        known.pop(name, None)
    written, left = [], []
    try:
        for name, entry in entries:
            slot, _, path = name.partition("/")
            if _same(entry, known.get(name)):
                # Sent there for a command that ran beside this one, and no change of this one's.
                _skip(stream, entry.size)
            elif not folders.is_writable(name):
                _skip(stream, entry.size)
                left.append(name)
            elif writers[slot].write(path, entry, stream):
                written.append((name, entry))
            else:
                left.append(name)
    except (EOFError, OSError) as error:
        raise ExecutionError(f"writing the changes of the sandbox failed: {error}") from error
    finally:
        for writer in writers.values():
            writer.finish()
    known.update(_as_written(folders, written))
    return left


def _names(listed: object) -> Iterator[str]:
    for name in listed if isinstance(listed, list) else []:
        if not isinstance(name, str):
            raise ValueError("the name of a removed file is malformed")
        check_path(name)
        yield name


def _check_room(folders: Folders, entries: list[tuple[str, Entry]], known: Known) -> None:
    most_bytes, most_files = folders.room
    coming = {name for name, _ in entries}
    staying = [entry.size for name, entry in known.items() if name not in coming and folders.is_writable(name)]
    size = sum(entry.size for _, entry in entries) + sum(staying)
    # The sandbox keeps to the limits. Twice as much is none that another command's files could explain.
    if size > 2 * most_bytes or len(entries) + len(staying) > 2 * most_files:
        raise ExecutionError(
            f"the sandbox returned {len(entries)} files, with which the workspace would contain {size} bytes. This "
            "exceeds workspace_bytes or workspace_files, so the worker discarded the files"
        )


def _same(theirs: Entry, ours: Entry | None) -> bool:
    if ours is None or theirs.kind != ours.kind:
        return False
    if theirs.kind == "folder":
        return True
    # Only the right to execute: the worker's copy may be read and written where the sandbox's may not.
    mine, other = ours[2:5], theirs[2:5]
    return mine == other and (ours.mode ^ theirs.mode) & 0o111 == 0


def _skip(stream: IO[bytes], size: int) -> None:
    while size and (chunk := stream.read(min(_CHUNK, size))):
        size -= len(chunk)


def _as_written(folders: Folders, written: list[tuple[str, Entry]]) -> Known:
    found = {}
    for name, sent in written:
        try:
            entry = Entry.of(Path(folders.path(name)).lstat(), sent.target)
        except OSError:
            continue  # replaced by a later entry of the same stream, or removed here meanwhile
        if entry is not None:
            found[name] = entry
    return found


class _LinkRule:
    """Which links may be made: those that cannot lead out of the command's folders, whatever else is linked."""

    def __init__(self, folders: Folders, slot: str) -> None:
        self._tops = list(folders.slots.values())
        self._top = folders.slots[slot]

    def allows(self, path: str, target: str) -> bool:
        parts = [part for part in target.split("/") if part not in {"", "."}]
        climbs = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
        # ``..`` behind a name leads wherever that name, which may be a link, has led.
        if ".." in parts[climbs:]:
            return False
        if target.startswith("/"):
            return not climbs and any(inside("/" + "/".join(parts), top) for top in self._tops)
        reached = posixpath.normpath(posixpath.join(self._top, posixpath.dirname(path), *parts))
        return bool(target) and inside(reached, self._top)
