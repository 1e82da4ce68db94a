"""Packs and trees of git repositories, which untrusted servers send, within the limits of archives.

Each object is inflated once into a scratch file, and is found by the hash of its content. A server therefore cannot
replace a file of a commit.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import BinaryIO

from dulwich.objects import parse_tree
from dulwich.pack import apply_delta, read_pack_header, unpack_object

from flink_skills.errors import SourceError, near_misses
from flink_skills.options import Option, SkillOptions
from flink_skills.skill import Limits
from flink_skills.sources.entries import ArchiveRefusedError, Extraction, shown
from flink_skills.sources.tar_archive import Member

_COMMIT, _TREE, _BLOB, _TAG, _OFFSET_DELTA = 1, 2, 3, 4, 6
_KINDS = {_COMMIT: b"commit", _TREE: b"tree", _BLOB: b"blob", _TAG: b"tag"}
_TYPE, _DIRECTORY, _LINK, _SUBMODULE = 0o170000, 0o040000, 0o120000, 0o160000
_CHUNK = 1 << 16
_MAX_NUMBER = 10  # bytes
_MAX_TAGS = 10
_MAX_NAME, _MAX_NAMES = 100, 10_000  # of a server, to compare
# Maximum number of objects of a commit, as a multiple of skills.limits.entries.
_OBJECTS_PER_ENTRY = 4
_LFS, _LFS_SIZE = b"version https://git-lfs.github.com/spec/v1", 1024
_TARGET = re.compile(rb"(?:tree|object) ([0-9a-f]{40}(?:[0-9a-f]{24})?)\n")


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
        self._ids: dict[int | str, str] = {}  # by offset and by id

    def unpack(self) -> None:
        """Store all objects of the pack. Raises :class:`ArchiveRefusedError`."""
        with _damage_refused("the pack"):
            count = read_pack_header(self._pack.read)[1]
        most = _OBJECTS_PER_ENTRY * self._limits.entries
        _check(count, most, f"the commit has {count} objects", SkillOptions.LIMIT_ENTRIES)
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
            raise ArchiveRefusedError(f"the pack has no {_KINDS[kind].decode()} {name}")
        self._scratch.seek(position)
        return self._scratch.read(size)

    def tree_of(self, name: str) -> str:
        """Return the tree of a commit, or of the commit of a tag. Raises :class:`ArchiveRefusedError`."""
        for _ in range(_MAX_TAGS):
            kind = _TAG if self._objects.get(name, (0,))[0] == _TAG else _COMMIT
            target = _TARGET.match(self.read(name, kind))
            name = target[1].decode() if target else ""
            if kind == _COMMIT:
                break
        return name

    def contents(self, tree: str, subdirectory: str) -> tuple[list[Member], list[tuple[str, str]]]:
        """Return the files of a tree, and messages about files without content with their fixes.

        ``Member.real`` is the id of the content. Raises :class:`ArchiveRefusedError`.
        """
        for part in filter(None, subdirectory.split("/")):
            folders = {name: child for name, mode, child in self._tree(tree) if mode & _TYPE == _DIRECTORY}
            if part not in folders:
                hint = suggestion(part, folders)
                raise ArchiveRefusedError(f"the commit has no directory {shown(subdirectory)}{hint}")
            tree = folders[part]
        # Only its names are used: whether they can be in one archive.
        names = Extraction("", self._limits.total, self._limits)
        files, lfs, submodules = list[Member](), list[str](), list[str]()
        waiting, total = [("", tree)], 0
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
                _check(total, self._limits.total, f"the files have {total} bytes", SkillOptions.LIMIT_TOTAL)
                if names.entry(path, is_folder=not is_file, size=size) is None:
                    continue
                if kind == _DIRECTORY:
                    waiting.append((f"{path}/", child))
                elif kind == _SUBMODULE:
                    submodules.append(path)
                else:
                    files.append(Member(path, child, bool(mode & 0o111)))
                    lfs += [path] if size < _LFS_SIZE and self.read(child).startswith(_LFS) else []
        notes = [(lfs, "the repository has a pointer of Git LFS instead of {}", "store the file without Git LFS")]
        notes += [(submodules, "the submodule {} is not fetched", "declare its repository as a source")]
        return sorted(files), [(problem.format(_listed(paths)), fix) for paths, problem, fix in notes if paths]

    def _tree(self, name: str) -> list[tuple[str, int, str]]:
        """Return name, mode and id of each entry of a tree."""
        with _damage_refused(f"the object {name}"):
            parsed = parse_tree(self.read(name, _TREE), self._hash().digest_size)
            return [(entry.decode(), mode, child.decode()) for entry, mode, child in parsed]

    def _entry(self, offset: int) -> tuple[int, int | str | None, bytes]:
        """Return type, base and content of the entry at ``offset``, and stop behind it.

        The base of a delta is an offset or an id. It is None for other objects.
        """
        self._check_time()
        self._pack.seek(offset)
        head = self._pack.read(2 * _MAX_NUMBER)
        with _damage_refused("the pack"):
            size, end = _number(head, 0, first_bits=4)
            if head[0] >> 4 & 7 == _OFFSET_DELTA:
                _number(head, end)  # dulwich reads any length
            self._spend(size)
            self._pack.seek(offset)
            found, unused = unpack_object(self._pack.read, self._hash, zlib_bufsize=min(_CHUNK, size + _MAX_NUMBER))
            self._pack.seek(-len(unused), os.SEEK_CUR)
        base = found.delta_base.hex() if isinstance(found.delta_base, bytes) else found.delta_base
        return found.pack_type_num, offset - base if isinstance(base, int) else base, b"".join(found.decomp_chunks)

    def _spend(self, size: int) -> None:
        """Raise :class:`ArchiveRefusedError` if one more object of this size is too much."""
        self._inflated += size
        _check(size, self._limits.file, f"an object has {size} bytes", SkillOptions.LIMIT_FILE)
        _check(self._inflated, self._limits.total, f"the commit has {self._inflated} bytes", SkillOptions.LIMIT_TOTAL)

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
        name = self._ids[base]
        kind = self._objects[name][0]
        with _damage_refused("the pack"):
            self._spend(_number(delta, _number(delta, 0)[1])[0])
            made = b"".join(apply_delta(self.read(name, kind), delta))
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


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a hint with names like ``name``, for a message. Return "" if there are none."""
    near = near_misses(name, list(islice((one for one in known if len(one) <= _MAX_NAME), _MAX_NAMES)))
    return f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""


def _listed(paths: list[str]) -> str:
    return shown(paths[0]) + (f" and {len(paths) - 1} more" if paths[1:] else "")


def _check(value: int, limit: int, problem: str, option: Option[int]) -> None:
    if value > limit:
        raise ArchiveRefusedError(f"{problem}. The limit is {limit} ({option.key})")


@contextmanager
def _damage_refused(what: str) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        text = bytes(error.object).decode(errors="backslashreplace")
        raise ArchiveRefusedError(f"the name {shown(text)} is not UTF-8") from None
    except (ArchiveRefusedError, SourceError, OSError):
        raise
    except Exception as error:  # the C and Python code of dulwich raise different types
        raise ArchiveRefusedError(f"{what} is damaged or truncated ({type(error).__name__})") from None
