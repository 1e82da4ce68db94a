"""The content-addressed store: it unpacks an archive once, to a path that depends only on the content.

Layout:

    <sha256>/…              an unpacked archive, read-only
    .index/<sha256>/…       the index for each tree, see :mod:`~flink_skills.sources.catalog_index`
    .work/<key>             unfinished trees
    .locks/<key>            lock files
    .urls/<key>.json        the last download from each URL
    .mcp/<label>/<uri>/…    files of skills of MCP servers, where no search for skills looks

A rename publishes a tree after its files and its index are written. A process can therefore use every tree that it
finds, with a lease while it does. The next process removes the remains that a killed process left.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from flink_skills.errors import ResourceError, SourceError
from flink_skills.options import SkillOptions
from flink_skills.skill import AgentSkill, Limits, Report
from flink_skills.skill.file_rules import skill_file_in
from flink_skills.skill.skill_fields import read_fields
from flink_skills.sources.archive import KINDS, archive_kind, file_sha256, other_content, unpack
from flink_skills.sources.catalog_index import index_name, write_index
from flink_skills.sources.entries import ArchiveRefusedError
from flink_skills.sources.locking import (
    MACHINE_FULL,
    Lease,
    PlantedError,
    check_folders,
    file_lock,
    os_error_hint,
    try_lock,
)
from flink_skills.sources.upkeep import INDEXES, LOCKS, RECORDS, SERVED, WORK, evict, remove_tree, sweep, sweep_work

__all__ = ["FOLDER_PREFIX", "Store", "StoredTree", "remove_tree", "usual_folder"]

FOLDER_PREFIX = "flink-skills-store-"

_SHA256 = 64

_logger = logging.getLogger(__name__)


def usual_folder(parent: str) -> str:
    """Return the store's path below a temporary folder. Each user has one, which all jobs share."""
    return os.path.join(parent, f"{FOLDER_PREFIX}{os.geteuid()}")


@dataclass(frozen=True)
class StoredTree:
    """A tree in the store: its path, the archive's sha256, and its index, None without one.

    The store keeps it while the ``lease`` is open.
    """

    path: str
    sha256: str
    index: str | None = None
    lease: Lease = field(compare=False, repr=False, kw_only=True)


class Store:
    """A store, which threads and processes can share.

    Args:
        folder: Its path. An empty string selects a private folder below the machine's temporary folder.
        limits: Limits for archives and skills.
        max_size: Maximum number of bytes that it keeps (``skills.store.max-size``). 0 means no limit.

    Example:
        >>> with store.add_archive("/data/skills.zip", "skills.zip").lease: ...
    """

    def __init__(
        self, folder: str, limits: Limits | None = None, *, max_size: int = SkillOptions.STORE_MAX_SIZE.default
    ) -> None:
        self.folder = folder or usual_folder(tempfile.gettempdir())
        self._limits = limits or Limits()
        self._max_size = max_size

    def open_tree(self, sha256: str, origin: str = "") -> StoredTree | None:
        """Return the tree with this digest, None if it does not exist. ``origin`` appears in messages.

        Raises :class:`SourceError` if the store cannot be read.
        """
        if len(sha256) != _SHA256 or not set(sha256) <= set("0123456789abcdef"):
            return None
        try:
            tree = self._find(sha256)
            if tree is None or not os.access(os.path.join(self.folder, WORK), os.W_OK | os.X_OK):
                return tree
            sweep_work(self.folder)
            if tree.index is None:
                with try_lock(self.lock_path(sha256)) as free:
                    tree = self._indexed(tree) if free else tree
        except OSError as error:
            raise self.disk_error(error, origin or f"sha256={sha256}") from None
        return tree

    def add_archive(
        self, path: str, origin: str, *, deadline: float | None = None, name: str = "", pin: str | None = None
    ) -> StoredTree:
        """Unpack an archive, unless the store has its content. Return its tree.

        Args:
            path: The archive.
            origin: Its source, for messages.
            deadline: The latest end for waiting for other processes, in monotonic seconds.
            name: The archive's name, if ``path`` is a temporary file.
            pin: The sha256 that it must have.

        Raises:
            SourceError: The file is not an archive, is too large, differs from the pin, is rejected, or does not fit on
                the disk. Nothing stays on the disk.
        """
        try:
            sha256, head, size = file_sha256(path, self._limits.download)
        except OSError as error:
            message = f"skill source {origin}: the archive cannot be read: {error.strerror}"
            raise SourceError(message, source=origin) from None
        if size > self._limits.download:
            message = f"skill source {origin}: the archive has {size} bytes. The limit is {self._limits.download}"
            raise SourceError(f"{message} ({SkillOptions.LIMIT_DOWNLOAD.key})", source=origin)
        if pin is not None and sha256 != pin:
            raise other_content(sha256, origin)
        kind = archive_kind(name or os.path.basename(path), head)
        if kind is None:
            message = f"skill source {origin}: the file is not an archive; name a folder, {KINDS}"
            raise SourceError(message, source=origin)

        def fill(folder: str) -> Mapping[str, tuple[int, str]]:
            hashes = unpack(path, kind, folder, self._limits)
            if file_sha256(path, self._limits.download)[0] != sha256:
                raise ArchiveRefusedError("the archive changed while it was read")
            return hashes

        return self.open_or_make(sha256, fill, origin, deadline)

    def add_file(self, data: bytes, file_name: str, origin: str, *, deadline: float | None = None) -> StoredTree:
        """Store a single skill file, in a folder with its skill's name. Return its tree.

        Raises :class:`SourceError` if it does not fit on the disk.
        """
        sha256 = hashlib.sha256(data).hexdigest()

        def fill(folder: str) -> Mapping[str, tuple[int, str]]:
            path = os.path.join(folder, file_name)
            with open(path, "xb") as file:
                file.write(data)
            os.chmod(path, 0o444)
            return {file_name: (len(data), sha256)}

        return self.open_or_make(sha256, fill, origin, deadline)

    def add_skill(self, skill: AgentSkill, origin: str, *, deadline: float | None = None) -> StoredTree:
        """Store a skill's files, in a folder with its name, under the skill's digest. Return its tree.

        Raises :class:`SourceError` for a skill that exceeds the limits, that has unreadable files, or that does not
        fit on the disk.
        """
        try:
            sha256, files = skill.digest, skill.files.manifest()
            if skill.files.skill_file not in files:
                raise ResourceError(f"skill {skill.name!r}: the skill file {skill.files.skill_file} is missing")
            self._check_size(files, origin)
        except ResourceError as error:
            raise SourceError(f"skill source {origin}: {error}", source=origin) from None

        def fill(folder: str) -> Mapping[str, tuple[int, str]]:
            name = skill.name if len(skill.name.encode()) <= 255 else "skill"
            for path, (size, _) in files.items():
                target = os.path.join(folder, name, path)
                os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
                with open(target, "xb") as file:
                    file.write(skill.files.read(path, 0, size).data)
                os.chmod(target, 0o555 if skill.is_program(path) else 0o444)
            return {f"{name}/{path}": entry for path, entry in files.items()}

        try:
            return self.open_or_make(sha256, fill, origin, deadline)
        except ResourceError as error:
            raise SourceError(f"skill source {origin}: {error}", source=origin) from None

    def _check_size(self, files: Mapping[str, tuple[int, str]], origin: str) -> None:
        limits, sizes = self._limits, {path: size for path, (size, _) in files.items()}
        large = max(sizes, key=lambda path: sizes[path])
        for value, limit, what, option in (
            (len(sizes), limits.skill_files, "files", SkillOptions.LIMIT_SKILL_FILES),
            (sizes[large], limits.file, f"bytes in {large!r}", SkillOptions.LIMIT_FILE),
            (sum(sizes.values()), limits.total, "bytes in its files", SkillOptions.LIMIT_TOTAL),
        ):
            if value > limit:
                message = f"skill source {origin}: the skill has {value} {what}. The limit is {limit}"
                raise SourceError(f"{message} ({option.key}).", source=origin)

    @contextmanager
    def locked(self, key: str, deadline: float, origin: str) -> Iterator[None]:
        """Hold the lock ``key``. Raise :class:`SourceError` at the deadline, and if the disk fails."""
        try:
            with file_lock(self.lock_path(key), deadline, origin):
                yield
        except OSError as error:
            raise self.disk_error(error, origin) from None

    def lock_path(self, key: str) -> str:
        """Return the lock file for a key. Create its folder, and remove the work that a killed holder left."""
        path = os.path.join(self._own_folder(LOCKS), key)
        work = os.path.join(self.folder, WORK, key)
        if os.path.lexists(work):  # a holder of the lock still needs its work
            with try_lock(path) as dead:
                if dead:
                    remove_tree(work)
        return path

    def work_path(self, key: str) -> str:
        """Create an empty folder for the holder of the lock ``key``."""
        work = os.path.join(self._own_folder(WORK), key)
        remove_tree(work)
        os.mkdir(work, 0o700)
        return work

    def record_path(self, key: str) -> str:
        """Return the file in which the holder of the lock ``key`` records its download."""
        return os.path.join(self._own_folder(RECORDS), f"{key}.json")

    def served_folder(self, label: str) -> str:
        """Return the folder for the skills of an MCP server. It is created with the first file."""
        return os.path.join(self.folder, SERVED, label)

    def add_served(self, path: str, data: bytes, origin: str) -> None:
        """Store a file of a skill of an MCP server. ``path`` is in :meth:`served_folder`. The caller holds a lock.

        Raises :class:`SourceError` if it does not fit on the disk.
        """
        try:
            self._own_folder(SERVED)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            new = f"{path}.{os.getpid()}.new"
            try:
                with open(new, "wb") as file:
                    file.write(data)
                os.chmod(new, 0o555 if data.startswith(b"#!") else 0o444)
                os.replace(new, path)
            except BaseException:
                remove_tree(new)
                raise
            # Once for each skill: to measure the store takes longer than to write a file.
            if self._max_size and os.path.basename(path) == "SKILL.md":
                evict(self.folder, self._max_size, time.monotonic() + SkillOptions.SOURCE_TIMEOUT.default)
        except OSError as error:
            raise self.disk_error(error, origin) from None

    def disk_error(self, error: OSError, origin: str) -> SourceError:
        """Return the error for a failing disk. It is retryable if space can become free."""
        number = error.errno or 0
        fix = os_error_hint(error) or "check the disk"
        if isinstance(error, PlantedError):
            fix = f"remove {error.path}, or remove the write permission of others (chmod go-w)"
        elif number in (errno.EACCES, errno.EPERM):
            fix = f"allow user {os.geteuid()} to write there"
            with suppress(OSError):
                fix += f" (the directory belongs to user {os.stat(self.folder).st_uid})"
        text = f"skill source {origin}: the store {self.folder} cannot be written ({error.strerror or error})"
        message = f"{text}; {fix}, or set {SkillOptions.STORE_DIR.key} to another folder"
        return SourceError(message, source=origin, retryable=number in MACHINE_FULL)

    def open_or_make(
        self, sha256: str, fill: Callable[[str], Mapping[str, tuple[int, str]]], origin: str, deadline: float | None
    ) -> StoredTree:
        """Return the tree with the key ``sha256``, which only depends on its content. Make it if the store has none.

        ``fill`` writes its files to an empty folder, and returns size and sha256 of each.

        Raises :class:`SourceError` for files that are refused or do not fit on the disk.
        """
        deadline = time.monotonic() + SkillOptions.SOURCE_TIMEOUT.default if deadline is None else deadline
        if tree := self.open_tree(sha256, origin):
            return tree
        try:
            with self.locked(sha256, deadline, origin):
                if tree := self._find(sha256):
                    return self._indexed(tree)
                tree = self._make(sha256, fill)
        except ArchiveRefusedError as refused:
            raise SourceError(f"skill source {origin}: {refused}; the archive is refused", source=origin) from None
        try:
            sweep(self.folder)
            if self._max_size:
                evict(self.folder, self._max_size, deadline)
        except (OSError, SourceError) as error:
            # The tree exists, and the next process can clean up.
            _logger.warning("skill store %s: the cleanup failed (%s)", self.folder, error)
        return tree

    def _find(self, sha256: str) -> StoredTree | None:
        path = os.path.join(self.folder, sha256)
        # Before the lock: another user that created the folder can hold it indefinitely.
        self._check_place()
        _restore(path, 0o555)
        lease = Lease.take(path)
        if lease is None:
            return None
        try:
            self._check_place()
        except BaseException:
            lease.close()
            raise
        lease.touch()
        if os.stat(path).st_mode & 0o222:  # its process was killed after the rename
            with suppress(OSError):
                os.chmod(path, 0o555)  # noqa: S103 - read-only
        index = self._index_path(sha256)
        return StoredTree(path, sha256, index if os.path.isfile(index) else None, lease=lease)

    def _make(self, sha256: str, fill: Callable[[str], Mapping[str, tuple[int, str]]]) -> StoredTree:
        """Create a read-only tree with its index, and publish it. The caller holds its lock."""
        work = self.work_path(sha256)
        lease = None
        try:
            made = os.path.join(work, "tree")
            os.mkdir(made, 0o755)
            hashes = self.wrapped(made, fill(made))
            for folder, _, _ in os.walk(made, topdown=False):
                if folder != made:  # the top stays writable until it has been renamed
                    os.chmod(folder, 0o555)  # noqa: S103 - read-only, and readable by all
            index = self._write_index(made, sha256, work, hashes)
            lease = Lease.take(made)
            if lease is None:
                raise FileNotFoundError(
                    errno.ENOENT, "the directory was deleted while the archive was unpacked into it"
                )
            lease.touch()
            final = os.path.join(self.folder, sha256)
            os.rename(made, final)
            os.chmod(final, 0o555)  # noqa: S103
            return StoredTree(final, sha256, index, lease=lease)
        except BaseException:
            if lease is not None:
                lease.close()
            raise
        finally:
            remove_tree(work)

    def _indexed(self, tree: StoredTree) -> StoredTree:
        """Return the tree with an index for these limits. The caller holds its lock."""
        if tree.index is not None:
            return tree
        try:
            work = self.work_path(tree.sha256)
            try:
                index = self._write_index(tree.path, tree.sha256, work, {})
            finally:
                remove_tree(work)
        except (OSError, ResourceError) as error:
            _logger.warning("skill store %s: writing the index of %s failed (%s)", self.folder, tree.path, error)
            return tree
        return StoredTree(tree.path, tree.sha256, index, lease=tree.lease)

    def _write_index(self, folder: str, sha256: str, work: str, hashes: Mapping[str, tuple[int, str]]) -> str:
        new = os.path.join(work, "index")
        write_index(folder, new, self._limits, hashes)
        index = self._index_path(sha256)
        os.makedirs(os.path.dirname(index), mode=0o755, exist_ok=True)
        os.replace(new, index)
        return index

    def _index_path(self, sha256: str) -> str:
        return os.path.join(self.folder, INDEXES, sha256, index_name(self._limits))

    def wrapped(self, folder: str, hashes: Mapping[str, tuple[int, str]]) -> Mapping[str, tuple[int, str]]:
        """Move a skill at the root into a folder with its name. Return the hashes for the new paths."""
        skill_file = skill_file_in(os.listdir(folder))
        if not skill_file:
            return hashes
        name = self._skill_folder(os.path.join(folder, skill_file))
        inner = f"{folder}.inner"
        os.rename(folder, inner)
        os.mkdir(folder, 0o755)
        os.rename(inner, os.path.join(folder, name))
        return {f"{name}/{path}": entry for path, entry in hashes.items()}

    def _skill_folder(self, skill_file: str) -> str:
        """Return the skill's own name if a folder can have it. The result depends only on the content."""
        with open(skill_file, "rb") as file:
            head = file.read(self._limits.front_matter)
        fields, _ = read_fields(head, Report(), self._limits, folder="skill", heading=False)
        name = fields.name if fields else "skill"
        return name if len(name.encode()) <= 255 else "skill"

    def _own_folder(self, name: str) -> str:
        os.makedirs(self.folder, mode=0o755, exist_ok=True)
        self._check_place()
        folder = os.path.join(self.folder, name)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _restore(folder, 0o700)
        return folder

    def _check_place(self) -> None:
        """Raise :class:`PlantedError` if another user may have created the store, for example in ``/tmp``."""
        folder = os.path.abspath(self.folder)
        if os.path.ismount(folder):
            return
        check_folders(folder)
        try:
            parent, status = os.stat(os.path.dirname(folder)), os.lstat(folder)
        except FileNotFoundError:
            return  # this user creates it later, and checks it again
        _restore(folder, 0o755)
        if not parent.st_mode & stat.S_IWOTH:
            return
        if status.st_uid != os.geteuid() or not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o022:
            raise PlantedError(
                folder, "the store is in a directory that all users can write to, and others can write to it"
            )


def _restore(folder: str, mode: int) -> None:
    """Restore the owner's rights, which a command of this user can remove: Landlock does not cover modes."""
    with suppress(OSError):
        found = os.lstat(folder)
        if stat.S_ISDIR(found.st_mode) and mode & stat.S_IRWXU & ~found.st_mode and found.st_uid == os.geteuid():
            os.chmod(folder, mode)
