"""Whether the files of a skill may have changed, seen without reading them."""

from __future__ import annotations

import hashlib
import os

from flink_skills.skill.skill_paths import inside, is_excluded, is_foreign

__all__ = ["folder_signature"]


def folder_signature(folder: str, root: str, limit: int) -> bytes:
    """A value that changes when a file of the skill in ``folder`` is written, added, renamed or removed.

    Made of path, size, mtime, ctime and inode of every file (at most ``limit``); nothing is opened. It may
    change although the content is the same: only a digest says that. ``root`` is the real path that links
    must not leave.
    """
    found: list[tuple[str, int, int, int, int]] = []
    seen: set[str] = set()
    pending = [("", folder)]
    while pending and len(found) <= limit:
        prefix, current = pending.pop()
        try:
            with os.scandir(current) as scanned:
                entries = sorted(scanned, key=lambda entry: entry.name)
        except OSError:
            found.append((prefix, -1, 0, 0, 0))  # becomes readable, becomes another
            continue
        if prefix and is_foreign([entry.name for entry in entries]):
            continue
        for entry in entries:
            path = prefix + entry.name
            if is_excluded(path):
                continue
            if entry.is_dir(follow_symlinks=False):
                pending.append((path + "/", entry.path))
                continue
            status = _status(entry)
            if status is None:
                found.append((path, -1, 0, 0, 0))
                continue
            if entry.is_symlink() and os.path.isdir(entry.path):
                target = os.path.realpath(entry.path)
                if inside(target, root) and target not in seen:
                    seen.add(target)
                    pending.append((path + "/", entry.path))
            found.append((path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
    text = "\n".join(f"{path!r} {size} {mtime} {ctime} {inode}" for path, size, mtime, ctime, inode in found[:limit])
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=16).digest()


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Of what a link leads to; of the link where it leads nowhere, or to itself; None where a folder may only be
    listed."""
    try:
        return entry.stat()
    except OSError:
        try:
            return entry.stat(follow_symlinks=False)
        except OSError:
            return None
