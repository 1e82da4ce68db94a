"""Upkeep of the store: eviction, and cleanup after killed processes."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import NamedTuple

from flink_skills.options import SkillOptions
from flink_skills.sources.catalog_index import allocated, size_on_disk
from flink_skills.sources.locking import file_lock, try_lock, unleased

_VERSION = 2
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_BYTES = 16 << 20
WORK, LOCKS, INDEXES, RECORDS, SERVED = ".work", ".locks", ".index", ".urls", ".mcp"
_TREE = re.compile(r"[0-9a-f]{64}")
_ASIDE = "evicted-"
_MAX_RECORDS = 10_000

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FetchRecord:
    """Download record: the content's ``sha256``, and its ``version`` by the server (ETag, time, …), if any.

    ``checked`` is the last response's time, in seconds since the epoch. ``text`` is the content if it is not a
    tree in the store.
    """

    sha256: str
    version: str | None
    checked: float
    text: str | None = None

    @classmethod
    def read(cls, path: str) -> FetchRecord | None:
        """Return the record in a file. Return None if it is missing, damaged or from another release.

        Its content is used only if the store has it.
        """
        try:
            with Path(path).open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
            found = json.loads(data) if len(data) <= _MAX_BYTES else None
        except (FileNotFoundError, IsADirectoryError, ValueError, RecursionError):
            return None
        if not isinstance(found, dict) or found.pop("format", None) != _VERSION:
            return None
        if set(found) != {field.name for field in fields(cls)}:
            return None
        sha256, version, checked, text = (found[name] for name in ("sha256", "version", "checked", "text"))
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            return None
        if not isinstance(checked, float) or not math.isfinite(checked):
            return None
        if not isinstance(version, (str, type(None))) or not isinstance(text, (str, type(None))):
            return None
        return cls(sha256, version, checked, text)

    def write(self, path: str) -> None:
        """Replace the file atomically. The caller holds the lock of its key."""
        new = f"{path}.new"
        Path(new).write_text(json.dumps({"format": _VERSION, **asdict(self)}))
        os.replace(new, path)


def evict(store: str, max_size: int, deadline: float) -> None:
    """Remove the trees that were used longest ago until the store has at most ``max_size`` bytes.

    A tree with a lease stays, if the store is then larger than it should be (which is logged). A tree is first
    renamed away, so that a process that is killed meanwhile leaves a whole tree or none. Raises
    :class:`OSError`.
    """
    locks, name = os.path.join(store, LOCKS), _ASIDE + secrets.token_hex(8)
    aside = os.path.join(store, WORK, name)
    # Whoever sweeps up takes what has no lock for the work of the dead.
    with try_lock(os.path.join(locks, name)):
        with file_lock(os.path.join(locks, "evict"), deadline, store):
            found = sorted((*_trees(store), *_served(store)))
            total = sum(tree.bytes for tree in found)
            for tree in found:
                if total <= max_size:
                    break
                if tree.name.startswith(SERVED):
                    remove_tree(os.path.join(store, tree.name))  # a reader fetches a missing file again
                elif not _set_aside(store, tree.name, aside):
                    continue
                total -= tree.bytes
        if os.path.lexists(aside):
            _forget_evicted(store)
        remove_tree(aside)
    if total > max_size:
        option = SkillOptions.STORE_MAX_SIZE.key
        _logger.warning(
            "skill store %s: %d bytes are in use, more than %s (%d); raise it", store, total, option, max_size
        )


class _Tree(NamedTuple):
    used: int
    name: str
    bytes: int


def _trees(store: str) -> Iterator[_Tree]:
    for name in _names(store):
        if _TREE.fullmatch(name):
            with suppress(FileNotFoundError):  # gone meanwhile
                path = os.path.join(store, name)
                yield _Tree(os.stat(path).st_mtime_ns, name, _size(store, name))


def _served(store: str) -> Iterator[_Tree]:
    """Yield the versions of skills of MCP servers, each as a tree."""
    for label in _names(os.path.join(store, SERVED)):
        for uri in _names(os.path.join(store, SERVED, label)):
            for version in _names(os.path.join(store, SERVED, label, uri)):
                name = os.path.join(SERVED, label, uri, version)
                path = os.path.join(store, name)
                with suppress(FileNotFoundError):
                    yield _Tree(os.stat(path).st_mtime_ns, name, allocated(path))


def _size(store: str, name: str) -> int:
    indexes = os.path.join(store, INDEXES, name)
    sizes = [size_on_disk(os.path.join(indexes, index)) for index in _names(indexes)]
    return next((size for size in sizes if size is not None), None) or allocated(os.path.join(store, name))


def _set_aside(store: str, name: str, aside: str) -> bool:
    path = os.path.join(store, name)
    with try_lock(os.path.join(store, LOCKS, name)) as nobody_makes_it:
        if not nobody_makes_it:
            return False
        with unleased(path) as free:
            if not free:
                return False
            os.chmod(path, 0o755)  # noqa: S103 - a folder that moves to another one must be writable
            os.makedirs(aside, mode=0o700, exist_ok=True)
            os.rename(path, os.path.join(aside, name))
        remove_tree(os.path.join(store, INDEXES, name))
        return True


def _forget_evicted(store: str) -> None:
    """Remove the notes of what was fetched whose content is no longer there."""
    for name in _names(os.path.join(store, RECORDS)):
        path = os.path.join(store, RECORDS, name)
        record = FetchRecord.read(path)
        if record is None or record.text is not None or os.path.lexists(os.path.join(store, record.sha256)):
            continue
        with try_lock(os.path.join(store, LOCKS, name.removesuffix(".json"))) as free:
            if free:
                remove_tree(path)


def sweep_work(store: str) -> None:
    """Remove what processes left in the work folder that were killed. Raises :class:`OSError`."""
    for name in _names(os.path.join(store, WORK)):
        with try_lock(os.path.join(store, LOCKS, name)) as dead:
            if dead:
                remove_tree(os.path.join(store, WORK, name))


def sweep(store: str) -> None:
    """:func:`sweep_work`, and locks, indexes and half-written records without a use.

    Raises :class:`OSError`.
    """
    sweep_work(store)
    for name in _names(os.path.join(store, INDEXES)):
        tree = os.path.join(store, name)
        if not os.path.lexists(tree):
            with try_lock(os.path.join(store, LOCKS, name)) as dead:
                if dead and not os.path.lexists(tree):
                    remove_tree(os.path.join(store, INDEXES, name))
    records = os.path.join(store, RECORDS)
    names = _names(records)
    unwanted = [name for name in names if not name.endswith(".json")]
    if len(names) > _MAX_RECORDS:  # one for each URL that ever was, and a signed one is never the same
        by_age = sorted(names, key=lambda name: _modified(os.path.join(records, name)))
        unwanted += by_age[: len(names) - _MAX_RECORDS]
    for name in unwanted:
        with try_lock(os.path.join(store, LOCKS, name.partition(".")[0])) as dead:
            if dead:
                remove_tree(os.path.join(records, name))
    for name in _names(os.path.join(store, LOCKS)):
        with try_lock(os.path.join(store, LOCKS, name)):
            pass  # giving it back removes it


def remove_tree(path: str) -> None:
    """Remove a file, or a folder and what is below it, read-only or not; nothing if it is not there.

    Links are removed and not followed. Raises :class:`OSError`.
    """
    if os.path.islink(path) or not os.path.isdir(path):
        with suppress(FileNotFoundError):
            os.unlink(path)
        return
    with suppress(FileNotFoundError):
        os.chmod(path, 0o700)
        with os.scandir(path) as entries:
            found = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for below, is_folder in found:
            if is_folder:
                remove_tree(below)
            else:
                with suppress(FileNotFoundError):
                    os.unlink(below)
        os.rmdir(path)


def _modified(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
