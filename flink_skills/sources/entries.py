"""What every archive must keep to, whatever its format (format.md, section 4): names, kinds, sizes."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from typing import BinaryIO, Protocol

from flink_skills.skill import Limits
from flink_skills.skill.file_rules import comparison_key, is_generated, name_problem

_DRIVE = re.compile(r"[A-Za-z]:")
_MAX_DEPTH = 32
_MAX_PATH = 1024
_SHOWN = 100
_CHUNK = 1 << 18
# Below this, no ratio is suspicious: a few kilobytes of one character are no bomb.
_RATIO_FLOOR = 256 << 10


class Readable(Protocol):
    """Object with ``read(size)``."""

    def read(self, size: int = -1, /) -> bytes: ...


class ArchiveRefusedError(Exception):
    """The archive breaks a rule; the message says which and where."""


class Extraction:
    """Writes the entries of one archive below ``target``, an empty private folder, and counts.

    Folders are only ever made here and links never, so a path that was checked by name cannot lead out.
    ``files`` has size and sha256 of each file that was written, by its relative path.
    """

    def __init__(self, target: str, archive_size: int, limits: Limits) -> None:
        self._target = target
        self._limits = limits
        self.files: dict[str, tuple[int, str]] = {}
        self._budget = min(limits.total, max(archive_size * limits.ratio, _RATIO_FLOOR))
        self._ratio_first = self._budget < limits.total
        self._entries = 0
        self._written = 0
        self._names: dict[str, tuple[str, bool]] = {}
        self._folders: set[str] = set()
        self._made: set[str] = set()

    def entry(self, name: str, *, is_folder: bool, size: int) -> tuple[str, ...] | None:
        """Admit an entry before anything of it is read; its path, or None for one that is left out."""
        self._entries += 1
        if self._entries > self._limits.entries:
            raise ArchiveRefusedError(f"there are more than {self._limits.entries} entries")
        parts = checked_parts(name)
        if size < 0 or size > self._limits.file:
            raise ArchiveRefusedError(f"{shown(name)} has {size} bytes; the limit for a file is {self._limits.file}")
        self._check_total(self._written + size)
        if not parts or self.is_left_out(parts, is_folder=is_folder):
            return None
        for depth in range(1, len(parts)):
            self._claim(parts[:depth], is_folder=True, declared=False)
        self._claim(parts, is_folder=is_folder, declared=True)
        return parts

    def is_left_out(self, parts: tuple[str, ...], *, is_folder: bool) -> bool:
        """Return True for an entry that is not written."""
        return any(map(is_generated, parts))

    def special(self, name: str) -> None:
        """Handle a link, a device or a sparse file. Raises :class:`ArchiveRefusedError`."""
        raise ArchiveRefusedError(f"{shown(name)} is a link, a device or a sparse file")

    def write_folder(self, parts: tuple[str, ...]) -> None:
        self._make_folder(parts)

    def write_file(self, parts: tuple[str, ...], read: Callable[[int], bytes], size: int, *, executable: bool) -> None:
        """Write a file of exactly ``size`` bytes; more or fewer is a refusal."""
        folder = self._make_folder(parts[:-1])
        path = os.path.join(folder, parts[-1])
        name = "/".join(parts)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            written, sha256 = self._copy(name, read, file, size)
            os.fchmod(file.fileno(), 0o555 if executable else 0o444)
        if written != size:
            raise ArchiveRefusedError(f"{shown(name)} has {written} bytes; its header declares {size}")
        self.files[name] = (size, sha256)

    def _copy(self, name: str, read: Callable[[int], bytes], file: BinaryIO, size: int) -> tuple[int, str]:
        written = 0
        digest = hashlib.sha256()
        while data := read(min(_CHUNK, size + 1 - written)):
            written += len(data)
            self._written += len(data)
            if written > size:
                raise ArchiveRefusedError(f"{shown(name)} is larger than the {size} bytes that its header declares")
            self._check_total(self._written)
            digest.update(data)
            file.write(data)
        return written, digest.hexdigest()

    def _check_total(self, total: int) -> None:
        if total > self._budget:
            if self._ratio_first:
                raise ArchiveRefusedError(f"the content is larger than {self._limits.ratio} times the archive")
            raise ArchiveRefusedError(f"the content is larger than {self._limits.total} bytes")

    def _claim(self, parts: tuple[str, ...], *, is_folder: bool, declared: bool) -> None:
        """One path, one entry, also where file systems take upper and lower case for the same."""
        name = "/".join(parts)
        key = comparison_key(name)
        known = self._names.get(key)
        if known is None:
            # Folders that are only named in the paths of others count too, for the disk and for memory.
            if len(self._names) >= 2 * self._limits.entries:
                raise ArchiveRefusedError(f"there are more than {2 * self._limits.entries} files and directories")
            self._names[key] = (name, is_folder)
            if declared:
                self._folders.add(name)
            return
        if known[0] != name:
            raise ArchiveRefusedError(
                f"{shown(known[0])} and {shown(name)} differ in upper and lower case or Unicode form only"
            )
        if not (known[1] and is_folder):
            raise ArchiveRefusedError(f"{shown(name)} is duplicated")
        if declared:
            if name in self._folders:
                raise ArchiveRefusedError(f"{shown(name)} is duplicated")
            self._folders.add(name)

    def _make_folder(self, parts: tuple[str, ...]) -> str:
        path = os.path.join(self._target, *parts)
        if parts and path not in self._made:
            self._make_folder(parts[:-1])
            os.mkdir(path, 0o755)
            self._made.add(path)
        return path


def checked_parts(name: str) -> tuple[str, ...]:
    """Return the parts of the name of an entry. Raises :class:`ArchiveRefusedError`."""
    plain = name.replace("\\", "/")  # zips made on Windows
    if len(plain) > _MAX_PATH:
        raise ArchiveRefusedError(f"the name {shown(name)} is too long or too deep")
    if plain.startswith("/") or _DRIVE.match(plain):
        raise ArchiveRefusedError(f"the name {shown(name)} is absolute")
    parts = tuple(part for part in plain.split("/") if part not in ("", "."))
    if ".." in parts:
        raise ArchiveRefusedError(f"the name {shown(name)} leaves the archive")
    for part in parts:
        if problem := name_problem(part):
            raise ArchiveRefusedError(f"the name {shown(name)} is not allowed: {problem}")
    if len(parts) > _MAX_DEPTH or sum(len(part.encode()) + 1 for part in parts) > _MAX_PATH:
        raise ArchiveRefusedError(f"the name {shown(name)} is too long or too deep")
    return parts


def shown(name: str) -> str:
    """A name from an archive as messages show it: quoted, escaped and not at any length."""
    return repr(name) if len(name) <= _SHOWN else f"{name[:_SHOWN]!r}…"
