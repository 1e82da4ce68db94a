"""Packs and trees of git repositories, which untrusted servers send, within the limits of archives.

Each object is inflated once into a scratch file, and is found by the hash of its content. A server therefore cannot
replace a file of a commit.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO, NamedTuple

from flink_skills.errors import SkillsError, near_misses
from flink_skills.options import SkillOptions
from flink_skills.skill import Limits
from flink_skills.sources.entries import ArchiveRefusedError, Extraction, shown
from flink_skills.sources.tar_archive import Member

_COMMIT, _TREE, _BLOB, _TAG, _OFFSET_DELTA = 1, 2, 3, 4, 6
_KINDS = {_COMMIT: b"commit", _TREE: b"tree", _BLOB: b"blob", _TAG: b"tag"}
_TYPE, _DIRECTORY, _LINK, _SUBMODULE = 0o170000, 0o040000, 0o120000, 0o160000
_CHUNK = 1 << 16
_MAX_NUMBER = 10  # bytes
_MAX_TAGS = 10
# Objects of a commit for each entry that an archive can have: trees, and files outside of the subdirectory.
_OBJECTS_PER_ENTRY = 4
_LFS = b"version https://git-lfs.github.com/spec/v1"
_LFS_SIZE = 1024
_TARGET = re.compile(rb"(?:tree|object) ([0-9a-f]{40}(?:[0-9a-f]{24})?)\n")


class Contents(NamedTuple):
    """Files of a commit, sorted by name. ``Member.real`` is the id of the content.

    ``lfs`` are the files that Git LFS stores outside of the repository, ``submodules`` the paths of other repositories.
    """

    files: list[Member]
    lfs: list[str]
    submodules: list[str]


class PackObjects:
    """Objects of a pack, by their id.

    Args:
        pack: The pack file.
        scratch: An empty file for the content of the objects.
        algorithm: The hash function of the ids, "sha1" or "sha256".
        limits: The limits of archives.
        check_time: A function that raises an error after the deadline.
    """

    def __init__(
        self, pack: BinaryIO, scratch: BinaryIO, algorithm: str, limits: Limits, check_time: Callable[[], None]
    ) -> None:
        self._pack = pack
        self._scratch = scratch
        self._hash = partial(hashlib.new, algorithm, usedforsecurity=False)
        self._limits = limits
        self._check_time = check_time
        self._inflated = 0
        self._objects: dict[str, tuple[int, int, int]] = {}  # type, position, size
        self._ids: dict[int | str, str] = {}

    def unpack(self) -> None:
        """Store all objects of the pack. Raises :class:`ArchiveRefusedError`."""
        from dulwich.pack import read_pack_header

        with _damage_refused("the pack"):
            count = read_pack_header(self._pack.read)[1]
        most = self._limits.entries * _OBJECTS_PER_ENTRY
        if count > most:
            key = SkillOptions.LIMIT_ENTRIES.key
            raise ArchiveRefusedError(f"the commit has {count} objects. The limit is {most}, 4 times {key}")
        later: list[tuple[int, int | str]] = []
        for _ in range(count):
            offset = self._pack.tell()
            kind, base, data = self._entry(offset)
            if base is None:
                self._add(offset, kind, data)
            elif base in self._ids:
                self._apply(offset, base, data)
            else:
                later.append((offset, base))
        while ready := [one for one in later if one[1] in self._ids]:  # bases can be behind their deltas
            later = [one for one in later if one[1] not in self._ids]
            for offset, base in ready:
                self._apply(offset, base, self._entry(offset)[2])

    def read(self, name: str, kind: int = _BLOB) -> bytes:
        """Return the content of an object. Raises :class:`ArchiveRefusedError`."""
        self._check_time()
        found, position, size = self._objects.get(name, (0, 0, 0))
        if found != kind:
            reason = f"is not a {_KINDS[kind].decode()}" if found else "is missing in the pack"
            raise ArchiveRefusedError(f"the object {name} {reason}")
        self._scratch.seek(position)
        return self._scratch.read(size)

    def tree_of(self, name: str) -> str:
        """Return the tree of a commit, or of the commit of a tag. Raises :class:`ArchiveRefusedError`."""
        for _ in range(_MAX_TAGS):
            kind = _TAG if self._objects.get(name, (0,))[0] == _TAG else _COMMIT
            target = _TARGET.match(self.read(name, kind))
            if target is None:
                break
            if kind == _COMMIT:
                return target[1].decode()
            name = target[1].decode()
        raise ArchiveRefusedError(f"the object {name} is damaged")

    def contents(self, tree: str, subdirectory: str) -> Contents:
        """Return the files of a tree.

        Raises :class:`ArchiveRefusedError` for everything that an archive must not contain.
        """
        for part in filter(None, subdirectory.split("/")):
            folders = {name: child for name, mode, child in self._tree(tree) if mode & _TYPE == _DIRECTORY}
            if part not in folders:
                near = near_misses(part, folders, limit=1)
                hint = f" (did you mean {near[0]!r}?)" if near else ""
                raise ArchiveRefusedError(f"the commit has no directory {shown(subdirectory)}{hint}")
            tree = folders[part]
        # Only its names are used: whether they can be in one archive.
        names = Extraction("", self._limits.total, self._limits)
        found, total = Contents([], [], []), 0
        waiting = [("", tree)]
        while waiting:
            prefix, tree = waiting.pop()
            for name, mode, child in self._tree(tree):
                path, kind = prefix + name, mode & _TYPE
                if "/" in name or "\\" in name or name in ("", "."):
                    raise ArchiveRefusedError(f"the name {shown(path)} is not the name of one file")
                if kind == _LINK:
                    raise ArchiveRefusedError(f"{shown(path)} is a link, a device or a sparse file")
                is_file = kind not in (_DIRECTORY, _SUBMODULE)
                size = self._objects.get(child, (0, 0, 0))[2] if is_file else 0
                total += size
                if total > self._limits.total:
                    key = SkillOptions.LIMIT_TOTAL.key
                    raise ArchiveRefusedError(f"the files exceed {self._limits.total} bytes ({key})")
                if names.entry(path, is_folder=not is_file, size=size) is None:
                    continue
                if kind == _DIRECTORY:
                    waiting.append((f"{path}/", child))
                elif kind == _SUBMODULE:
                    found.submodules.append(path)
                else:
                    found.files.append(Member(path, child, bool(mode & 0o111)))
                    if size < _LFS_SIZE and self.read(child).startswith(_LFS):
                        found.lfs.append(path)
        found.files.sort()
        return found

    def _tree(self, name: str) -> list[tuple[str, int, str]]:
        """Return name, mode and id of each entry of a tree."""
        from dulwich.objects import parse_tree

        with _damage_refused(f"the object {name}"):
            parsed = parse_tree(self.read(name, _TREE), self._hash().digest_size)
            return [(entry.decode(), mode, child.decode()) for entry, mode, child in parsed]

    def _entry(self, offset: int) -> tuple[int, int | str | None, bytes]:
        """Return type, base and content of the entry at ``offset``, and stop behind it.

        The base of a delta is an offset or an id. It is None for other objects.
        """
        from dulwich.pack import unpack_object

        self._check_time()
        self._pack.seek(offset)
        head = self._pack.read(2 * _MAX_NUMBER)
        with _damage_refused("the pack"):
            size, end = _number(head, 0, first_bits=4)
            if head[0] >> 4 & 7 == _OFFSET_DELTA:
                _number(head, end)
            self._spend(size)
            self._pack.seek(offset)
            found, unused = unpack_object(self._pack.read, self._hash, zlib_bufsize=min(_CHUNK, size + _MAX_NUMBER))
            self._pack.seek(-len(unused), os.SEEK_CUR)
        base = found.delta_base.hex() if isinstance(found.delta_base, bytes) else found.delta_base
        return found.pack_type_num, offset - base if isinstance(base, int) else base, b"".join(found.decomp_chunks)

    def _spend(self, size: int) -> None:
        """Raise :class:`ArchiveRefusedError` if one more object of this size is too much."""
        self._inflated += size
        for value, limit, what, option in (
            (size, self._limits.file, "an object", SkillOptions.LIMIT_FILE),
            (self._inflated, self._limits.total, "the commit", SkillOptions.LIMIT_TOTAL),
        ):
            if value > limit:
                raise ArchiveRefusedError(f"{what} has {value} bytes. The limit is {limit} ({option.key})")

    def _add(self, offset: int, kind: int, data: bytes) -> None:
        with _damage_refused("the pack"):
            digest = self._hash(b"%s %d\0" % (_KINDS[kind], len(data)))
        digest.update(data)
        name = digest.hexdigest()
        self._ids[offset] = self._ids[name] = name
        if name not in self._objects:
            self._objects[name] = kind, self._scratch.seek(0, os.SEEK_END), len(data)
            self._scratch.write(data)

    def _apply(self, offset: int, base: int | str, delta: bytes) -> None:
        """Store the object that a delta makes of its base."""
        from dulwich.pack import apply_delta

        name = self._ids[base]
        kind, content = self._objects[name][0], self.read(name, self._objects[name][0])
        with _damage_refused("the pack"):
            self._spend(_number(delta, _number(delta, 0)[1])[0])
            made = b"".join(apply_delta(content, delta))
        self._add(offset, kind, made)


def _number(data: bytes, at: int, *, first_bits: int = 7) -> tuple[int, int]:
    """Return a number of variable length, and the position behind it. Raises :class:`IndexError`."""
    value, shift = data[at] & (1 << first_bits) - 1, first_bits
    while data[at] & 128:
        at += 1
        value, shift = value | (data[at] & 127) << shift, shift + 7
        if shift > 7 * _MAX_NUMBER:
            raise IndexError
    return value, at + 1


@contextmanager
def _damage_refused(what: str) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        text = bytes(error.object).decode(errors="backslashreplace")
        raise ArchiveRefusedError(f"the name {shown(text)} is not UTF-8") from None
    except (ArchiveRefusedError, SkillsError, OSError):
        raise
    except Exception as error:  # the C and Python code of dulwich raise different types
        raise ArchiveRefusedError(f"{what} is damaged or truncated ({type(error).__name__})") from None
