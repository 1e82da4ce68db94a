"""The files of a skill: listed, read within limits, and digested."""

from __future__ import annotations

import hashlib
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from flink_skills.errors import ResourceError, near_misses
from flink_skills.skill.file_rules import Role, inside, is_excluded, is_foreign, resource_parts, role_of, walk_files
from flink_skills.skill.skill_limits import Limits

_ROLES = {
    "generated": "a generated file",
    "test": "a test of the skill, which models do not read",
    "proof": "a signature or a checksum, which models do not read",
}
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

    @property
    def on_demand(self) -> bool:
        """Return True if reading a file can contact a server, so that no file is read before it is needed."""
        return False

    def fetch(self) -> None:
        """Make all files available in the skill's folder. Raises :class:`ResourceError`."""
        return

    def excluded(self) -> tuple[str, ...]:
        """Return known paths of files and folders that are not part of the skill."""
        return ()

    def pins(self) -> Mapping[str, Any]:
        """Return more values of the skill's entry in a lock file."""
        return {}

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

    def earlier_digests(self) -> tuple[str, ...]:
        """Return the digests by the rules of earlier releases, which included more files. Empty if there are none.

        Raises :class:`ResourceError`.
        """
        return ()

    def missing(self, path: str) -> ResourceError:
        """The error for a file that is not there, with the files most like it."""
        near = near_misses(path, self.paths())
        hint = "did you mean " + " or ".join(repr(n) for n in near) + "?" if near else "there is no similar file name"
        return ResourceError(f"there is no file {path!r} in the skill: {hint}")


class MemoryFiles(SkillFiles):
    """Files of a skill that was made in memory."""

    def __init__(self, files: Mapping[str, bytes], skill_file: str = "SKILL.md") -> None:
        self._files = {path: data for path, data in files.items() if not is_excluded(path)}
        self._excluded = {path: data for path, data in files.items() if path not in self._files}
        self.skill_file = skill_file
        self._manifest: dict[str, tuple[int, str]] | None = None

    def paths(self) -> tuple[str, ...]:
        return tuple(sorted(self._files))

    def read(self, path: str, offset: int, limit: int) -> Chunk:
        plain = "/".join(_parts(path))
        data = self._files.get(plain)
        if data is None:
            raise excluded_error(path, plain) or self.missing(path)
        return Chunk(data[offset : offset + limit], len(data))

    def manifest(self) -> Mapping[str, tuple[int, str]]:
        if self._manifest is None:
            self._manifest = _manifest_of(self._files)
        return self._manifest

    def earlier_digests(self) -> tuple[str, ...]:
        return (digest_of(_manifest_of(self._files | self._excluded)),) if self._excluded else ()


class FolderFiles(SkillFiles):
    """Files of a skill in a folder. ``root`` is the real path of its source, which links must not leave.

    ``known`` returns the manifest in the store's index. The folder is then not read for it. Each file is compared with
    the manifest at its first read, and later if its stamp has changed.
    """

    __slots__ = ("_earlier", "_known", "_limits", "_manifest", "_stamps", "folder", "root", "skill_file")

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
        self._earlier: tuple[str, ...] | None = None
        self._manifest: Mapping[str, tuple[int, str]] | None = None
        self._stamps: dict[str, tuple[int, ...]] = {}

    def paths(self) -> tuple[str, ...]:
        if self._manifest is not None or self._known is not None:
            return tuple(sorted(self.manifest()))
        return tuple(sorted(path for path, *_ in walk_files(self.folder, self.root, self._limits.skill_files, [])))

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
        self, also: Collection[Role] = ()
    ) -> tuple[dict[str, tuple[int, str]], dict[str, tuple[int, ...]]]:
        manifest: dict[str, tuple[int, str]] = {}
        stamps: dict[str, tuple[int, ...]] = {}
        limit = self._limits.skill_files
        for path, real, _ in walk_files(self.folder, self.root, limit, [], also=also):
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

    def earlier_digests(self) -> tuple[str, ...]:
        if self._earlier is None:
            excluded: list[str] = []
            for _ in walk_files(self.folder, self.root, self._limits.skill_files, [], excluded):
                pass
            rules: list[tuple[Role, ...]] = [("test", "proof"), ("test", "proof", "generated")] if excluded else []
            self._earlier = tuple(dict.fromkeys(digest_of(self._read_manifest(also)[0]) for also in rules))
        return self._earlier

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
        folder = os.path.realpath(self.folder)
        for plain in ("/".join(parts), real[len(folder) + 1 :] if inside(real, folder) else ""):
            if error := excluded_error(path, plain):
                raise error
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


def _manifest_of(files: Mapping[str, bytes]) -> dict[str, tuple[int, str]]:
    return {path: (len(data), hashlib.sha256(data).hexdigest()) for path, data in files.items()}


def excluded_error(path: str, plain: str) -> ResourceError | None:
    """Return the error for a file whose role excludes it from a skill. ``plain`` is its path in the skill's folder."""
    if not is_excluded(plain):
        return None
    return ResourceError(f"{path!r} is not part of the skill: {plain!r} is {_ROLES[role_of(plain)]}")


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
