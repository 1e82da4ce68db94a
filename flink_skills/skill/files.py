"""The files of a skill: listed, read within limits, and digested."""

from __future__ import annotations

import hashlib
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import NamedTuple

from flink_skills.errors import ResourceError, near_misses
from flink_skills.skill.generated import is_generated
from flink_skills.skill.limits import Limits
from flink_skills.skill.paths import inside, is_foreign, resource_parts, walk_files

__all__ = ["Chunk", "FolderFiles", "MemoryFiles", "SkillFiles", "digest_of"]

_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Chunk(NamedTuple):
    """Part of a file: its bytes and the size of the whole file."""

    data: bytes
    total: int


def digest_of(manifest: Mapping[str, tuple[int, str]]) -> str:
    """Return the SHA-256 over the sorted paths, sizes and hashes of the files of a skill.

    >>> digest_of({})[:8]
    'e3b0c442'
    """
    total = hashlib.sha256()
    for path, (size, sha256) in sorted(manifest.items()):
        total.update(f"{path}\0{size}\0{sha256}\n".encode(errors="surrogateescape"))
    return total.hexdigest()


class SkillFiles(ABC):
    """The files of one skill, its skill file among them."""

    __slots__ = ()

    skill_file: str = "SKILL.md"

    @abstractmethod
    def paths(self) -> tuple[str, ...]:
        """Relative paths of all files, sorted."""

    @abstractmethod
    def read(self, path: str, offset: int, limit: int) -> Chunk:
        """Read at most ``limit`` bytes from ``offset``.

        Raises :class:`ResourceError` for a path that is refused, does not exist or has changed since the
        digest was taken.
        """

    @abstractmethod
    def manifest(self) -> Mapping[str, tuple[int, str]]:
        """Size and sha256 of each file by relative path; computed once."""

    def digest(self) -> str:
        """sha256 over the sorted (path, size, sha256) of the files, the same on every machine."""
        return digest_of(self.manifest())

    def missing(self, path: str) -> ResourceError:
        """The error for a file that is not there, with the files most like it."""
        near = near_misses(path, self.paths())
        hint = "did you mean " + " or ".join(repr(n) for n in near) + "?" if near else "there is no similar file name"
        return ResourceError(f"there is no file {path!r} in the skill: {hint}")


class MemoryFiles(SkillFiles):
    """Files of a skill that was made in memory."""

    def __init__(self, files: Mapping[str, bytes], skill_file: str = "SKILL.md") -> None:
        self._files = dict(files)
        self.skill_file = skill_file
        self._manifest: dict[str, tuple[int, str]] | None = None

    def paths(self) -> tuple[str, ...]:
        return tuple(sorted(self._files))

    def read(self, path: str, offset: int, limit: int) -> Chunk:
        data = self._files.get("/".join(_parts(path)))
        if data is None:
            raise self.missing(path)
        return Chunk(data[offset : offset + limit], len(data))

    def manifest(self) -> Mapping[str, tuple[int, str]]:
        if self._manifest is None:
            self._manifest = {path: (len(data), hashlib.sha256(data).hexdigest()) for path, data in self._files.items()}
        return self._manifest


class FolderFiles(SkillFiles):
    """Files of a skill in a folder. ``root`` is the real path of its source, which links must not leave.

    ``known`` gives the manifest where somebody has it already (the store's index): then no tree is read for
    it, and each file is compared with it when it is first read, later when its stamp has changed.
    """

    __slots__ = ("_known", "_limits", "_manifest", "_stamps", "folder", "root", "skill_file")

    def __init__(
        self,
        folder: str,
        root: str,
        skill_file: str,
        limits: Limits,
        known: Callable[[], Mapping[str, tuple[int, str]]] | None = None,
    ) -> None:
        self.folder = folder
        self.root = root
        self.skill_file = skill_file
        self._limits = limits
        self._known = known
        self._manifest: Mapping[str, tuple[int, str]] | None = None
        self._stamps: dict[str, tuple[int, ...]] = {}

    def paths(self) -> tuple[str, ...]:
        if self._manifest is not None or self._known is not None:
            return tuple(sorted(self.manifest()))
        return tuple(sorted(path for path, _ in walk_files(self.folder, self.root, self._limits.skill_files, [])))

    def read(self, path: str, offset: int, limit: int) -> Chunk:
        parts = _parts(path)
        descriptor = self._open(path, parts)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ResourceError(f"{path!r} is not a regular file and cannot be read")
            self._check_unchanged("/".join(parts), descriptor, status)
            data = os.pread(descriptor, limit, offset) if limit else b""
        finally:
            os.close(descriptor)
        return Chunk(data, status.st_size)

    def manifest(self) -> Mapping[str, tuple[int, str]]:
        if self._manifest is None and self._known is not None:
            self._manifest = self._known()
        if self._manifest is None:
            self._manifest, self._stamps = self._read_manifest()
        return self._manifest

    def _read_manifest(
        self, *, with_generated: bool = False
    ) -> tuple[dict[str, tuple[int, str]], dict[str, tuple[int, ...]]]:
        manifest: dict[str, tuple[int, str]] = {}
        stamps: dict[str, tuple[int, ...]] = {}
        limit = self._limits.skill_files
        for path, real in walk_files(self.folder, self.root, limit, [], with_generated=with_generated):
            try:
                descriptor = os.open(real, _READ_FLAGS)
            except OSError as error:
                raise ResourceError(f"{real}: cannot be read ({error.strerror})") from None
            try:
                status = os.fstat(descriptor)
                if stat.S_ISREG(status.st_mode):
                    manifest[path] = _size_and_sha256(descriptor)
                    stamps[path] = _stamp(status)
            finally:
                os.close(descriptor)
        return manifest, stamps

    def digest_with_generated(self) -> str | None:
        """Return the digest with generated files, as an earlier release took it. Return None without such files.

        Raises :class:`ResourceError`.
        """
        generated: list[str] = []
        for _ in walk_files(self.folder, self.root, self._limits.skill_files, [], generated):
            pass
        if not generated:
            return None
        return digest_of(self._read_manifest(with_generated=True)[0])

    def skill_file_stamp(self) -> tuple[int, ...]:
        """What changes when the skill file is written; cheap enough for each activation."""
        try:
            return _stamp(os.stat(os.path.join(self.folder, self.skill_file)))
        except OSError:
            return ()

    def _open(self, path: str, parts: tuple[str, ...]) -> int:
        real = os.path.realpath(os.path.join(self.folder, *parts))
        if not inside(real, self.root):
            raise ResourceError(f"{path!r} leaves the skill's source and is not read")
        if generated := next(filter(is_generated, parts), None):
            raise ResourceError(f"{path!r} is not part of the skill: {generated!r} is the name of a generated file")
        below = self.folder
        for part in parts[:-1]:
            below = os.path.join(below, part)
            if os.path.isdir(below) and is_foreign(os.listdir(below)):
                raise self.missing(path)  # a nested skill is read by its own name
        try:
            return os.open(real, _READ_FLAGS)
        except (FileNotFoundError, NotADirectoryError):
            if self._manifest is not None and "/".join(parts) in self._manifest:
                raise ResourceError(f"{path!r} was removed since the skill was loaded") from None
            raise self.missing(path) from None
        except OSError as error:
            raise ResourceError(f"{path!r} cannot be read: {error.strerror}") from None

    def _check_unchanged(self, path: str, descriptor: int, status: os.stat_result) -> None:
        """What is read is what the digest was taken of (format rule S08)."""
        if self._manifest is None and self._known is None:
            return
        known = self.manifest().get(path)
        if known is None:
            raise ResourceError(f"{path!r} did not exist when the skill was loaded")
        if self._stamps.get(path) != _stamp(status):
            if status.st_size != known[0] or _size_and_sha256(descriptor) != known:
                raise ResourceError(f"{path!r} has changed since the skill was loaded")
            self._stamps[path] = _stamp(status)


def _parts(path: str) -> tuple[str, ...]:
    try:
        return resource_parts(path)
    except ValueError as error:
        raise ResourceError(f"cannot read {path!r}: {error}") from None


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev)


def _size_and_sha256(descriptor: int) -> tuple[int, str]:
    digest = hashlib.sha256()
    size = 0
    while data := os.pread(descriptor, 1 << 18, size):
        digest.update(data)
        size += len(data)
    return size, digest.hexdigest()
