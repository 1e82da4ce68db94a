"""The content-addressed store: archives unpacked once, at a path that depends on their content alone.

Layout: ``<store>/<sha256 of the archive>/…`` (read-only once it is there), ``.work/<key>`` (what is being
made), ``.locks/<key>``, ``.urls/<key>.json`` (what was last fetched from where). A folder appears under its
final name by one rename, after everything in it is written: whoever sees it may use it without asking. What a
killed process left in ``.work`` is removed by the next one that holds the same lock.
"""

# Paths are text here: they come from listings and descriptors by the thousand, where pathlib costs more than
# the calls themselves.
# ruff: noqa: PTH101, PTH102, PTH103, PTH104, PTH112, PTH114, PTH116, PTH118, PTH119, PTH123, PTH208

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

from flink_skills.errors import SourceError
from flink_skills.options import SkillOptions
from flink_skills.skill import Limits, Report
from flink_skills.skill.fields import judge_fields
from flink_skills.skill.frontmatter import find_block, read_front_matter
from flink_skills.skill.paths import skill_file_in
from flink_skills.sources.archive import ArchiveKind, archive_kind, unpack
from flink_skills.sources.entries import ArchiveRefusedError
from flink_skills.sources.locking import file_lock

__all__ = ["Store"]

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Store:
    """A store below ``folder``; an empty name is a private folder below the machine's temporary one."""

    def __init__(self, folder: str, limits: Limits | None = None) -> None:
        self._is_shared_place = not folder
        self.folder = folder or os.path.join(tempfile.gettempdir(), f"flink-skills-store-{os.geteuid()}")
        self._limits = limits or Limits()

    def add_archive(self, path: str, origin: str, *, deadline: float | None = None, name: str = "") -> str:
        """Unpack an archive, unless its content is there already; the folder.

        ``name`` is the archive's name where ``path`` has a temporary one. Raises :class:`SourceError` for
        what is no archive, is refused or too large, or does not fit on the disk; nothing of it stays on the
        disk then.
        """
        deadline = time.monotonic() + SkillOptions.SOURCE_TIMEOUT.default if deadline is None else deadline
        try:
            sha256, head, size = _sha256(path, self._limits.download)
        except OSError as error:
            raise SourceError(f"skill source {origin}: cannot be read: {error.strerror}", source=origin) from None
        if size > self._limits.download:
            message = f"skill source {origin}: has {size} bytes; the limit is {self._limits.download}"
            raise SourceError(message, source=origin)
        kind = archive_kind(name or os.path.basename(path), head)
        if kind is None:
            raise SourceError(f"skill source {origin}: is no archive; give a folder, zip, tar or tar.gz", source=origin)
        final = os.path.join(self.folder, sha256)
        if os.path.isdir(final):
            return final
        try:
            with file_lock(self.lock_path(sha256), deadline, origin):
                if not os.path.isdir(final):
                    self._unpack_to(final, path, kind, sha256)
        except ArchiveRefusedError as refused:
            raise SourceError(f"skill source {origin}: {refused}; the archive is refused", source=origin) from None
        except OSError as error:
            raise self.disk_error(error, origin) from None
        return final

    def add_file(self, data: bytes, file_name: str, origin: str, *, deadline: float) -> str:
        """Put a single skill file there, in a folder of its skill's name; the folder above."""
        final = os.path.join(self.folder, hashlib.sha256(data).hexdigest())
        try:
            with file_lock(self.lock_path(os.path.basename(final)), deadline, origin):
                if not os.path.isdir(final):
                    work = self._new_work(os.path.basename(final))
                    Path(work, file_name).write_bytes(data)
                    self._finish(work, final)
        except OSError as error:
            raise self.disk_error(error, origin) from None
        return final

    def lock_path(self, key: str) -> str:
        """The lock file of a key, its folder made."""
        return os.path.join(self._private_folder(".locks"), key)

    def work_path(self, key: str) -> str:
        """An empty folder for what the holder of the lock ``key`` makes."""
        return self._new_work(key)

    def record_path(self, key: str) -> str:
        return os.path.join(self._private_folder(".urls"), f"{key}.json")

    def disk_error(self, error: OSError, origin: str) -> SourceError:
        """The error for a disk that fails: retryable where space may come free."""
        full = error.errno in _DISK_FULL
        mend = "free some space" if full else "check its permissions"
        text = f"skill source {origin}: the store {self.folder} cannot be written ({error.strerror})"
        message = f"{text}; {mend}, or set {SkillOptions.STORE_DIR.key} to another folder"
        return SourceError(message, source=origin, retryable=full)

    def _unpack_to(self, final: str, path: str, kind: ArchiveKind, sha256: str) -> None:
        work = self._new_work(sha256)
        try:
            unpack(path, kind, work, self._limits)
            if _sha256(path, self._limits.download)[0] != sha256:
                raise ArchiveRefusedError("changed while it was read")
            self._finish(work, final)
        except BaseException:
            remove_tree(work)
            raise

    def _finish(self, work: str, final: str) -> None:
        """Make it read-only and show it. A skill at the root gets a folder of its own name first."""
        if skill_file := skill_file_in(os.listdir(work)):
            inner = f"{work}.skill"
            remove_tree(inner)
            os.rename(work, inner)
            os.mkdir(work, 0o755)
            os.rename(inner, os.path.join(work, self._skill_folder(os.path.join(inner, skill_file))))
        for folder, _, files in os.walk(work):
            for name in files:
                file = os.path.join(folder, name)
                os.chmod(file, 0o555 if os.stat(file).st_mode & 0o100 else 0o444)
            if folder != work:  # the top stays writable until it has been renamed
                os.chmod(folder, 0o555)  # noqa: S103 - read-only, and readable as it was
        os.rename(work, final)
        os.chmod(final, 0o555)  # noqa: S103

    def _skill_folder(self, skill_file: str) -> str:
        """The name that the skill gives itself, where it can be a folder's; depends on the content alone."""
        with open(skill_file, "rb") as file:
            head = file.read(self._limits.front_matter)
        report = Report()
        block = find_block(head, report, self._limits)
        entries = read_front_matter(block, report, self._limits) if block else None
        fields = judge_fields(entries, report, first_line=1, folder="skill") if entries else None
        name = fields.name if fields else "skill"
        return name if len(name.encode()) <= 255 else "skill"

    def _new_work(self, key: str) -> str:
        work = os.path.join(self._private_folder(".work"), key)
        remove_tree(work)
        os.mkdir(work, 0o755)
        return work

    def _private_folder(self, name: str) -> str:
        os.makedirs(self.folder, mode=0o755, exist_ok=True)
        if self._is_shared_place:  # where anybody could have made it first, and put skills into it
            status = os.lstat(self.folder)
            if status.st_uid != os.geteuid() or not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o022:
                raise PermissionError(errno.EPERM, "others can write to it")
        folder = os.path.join(self.folder, name)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        return folder


def remove_tree(path: str) -> None:
    """Remove a folder and what is below it, read-only or not; links are removed and not followed."""
    if os.path.islink(path) or not os.path.isdir(path):
        Path(path).unlink(missing_ok=True)
        return
    for folder, _, _ in os.walk(path):
        os.chmod(folder, 0o700)
    shutil.rmtree(path)


def _sha256(path: str, limit: int) -> tuple[str, bytes, int]:
    """Digest, first bytes and size; what is larger than ``limit`` is not read."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(512)
        if size > limit:
            return "", head, size
        digest = hashlib.sha256(head)
        while data := file.read(1 << 18):
            digest.update(data)
        return digest.hexdigest(), head, size
