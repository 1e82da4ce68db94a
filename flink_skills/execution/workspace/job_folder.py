"""Folder of all workspaces of one agent of one job, and how its workers share it."""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from flink_skills.errors import ExecutionError
from flink_skills.execution.request import CommandUser
from flink_skills.execution.workspace.safe_files import (
    NO_HARD_LINKS,
    Ownership,
    can_pass,
    created,
    is_own_folder,
    pinned,
    read_restored,
    restore_folder,
)
from flink_skills.execution.workspace.staging import SharedCopies
from flink_skills.options import SkillOptions
from flink_skills.sources.locking import NO_DESCRIPTORS, Lease, os_error_hint

SHARED_SKILLS = ".skills"
NAMES_FILE = ".names"
_PREFIX = "ws_"
_SECRET_BYTES = 32
_TRIES = 20
_LOG_INTERVAL_SECONDS = 60.0
_log = logging.getLogger("flink_skills.workspace")


def is_workspace(name: str) -> bool:
    """Return True if ``name`` is the folder name of a key."""
    return name.startswith(_PREFIX)


class JobFolder:
    """Creates the folder when it is first needed, and holds a lock on it until it is released.

    The workers of a folder without a lock are dead. The workers share a secret in the file ``.names``.

    Args:
        path: The folder.
        user: The user of the commands, None for the worker's own.
        share_files: Whether skills are staged as views of one copy.
        top: The first folder, from the root of the file system, that belongs to the job.
        passages: Folders above ``top`` that belong to the job, and that are removed elsewhere.

    Attributes:
        programs: Scripts in ``bin/`` of each workspace, by name.
        interpreters: Paths of the interpreters that some of the scripts start, by name.
    """

    def __init__(
        self,
        path: Path,
        user: CommandUser | None,
        *,
        share_files: bool = False,
        top: Path | None = None,
        passages: tuple[Path, ...] = (),
    ) -> None:
        self.path = path
        self.user = user
        self.share_files = share_files
        self.ownership = Ownership(user)
        self.shared = SharedCopies(path / SHARED_SKILLS, self.ownership)
        self.programs: Mapping[str, str] = {}
        self.interpreters: Mapping[str, str] = {}
        self._passages = passages
        above = [folder for folder in path.parents if folder.is_relative_to(top or path)]
        # From the top down to the folder itself.
        self._folders = (*reversed(above), path)
        # The modes of this user's folders above the job's, from the root of the file system down.
        self._above: dict[Path, int] = {}
        self._secret = b""
        self._logged = -_LOG_INTERVAL_SECONDS
        self._lease: Lease | None = None
        self._lock = threading.Lock()

    def ensure(self) -> None:
        """Create the folder and take the lock. Raises :class:`OSError` and :class:`ExecutionError`."""
        with self._lock:
            self.restore()
            for _ in range(_TRIES):
                if self._lease is not None and self.path.is_dir():
                    return
                self.release()
                with suppress(FileNotFoundError):  # another worker is removing the job's folders
                    self._make()
                    self._lease = Lease.take(str(self.path))
                    if self._lease is not None:
                        self._load_secret()
        raise ExecutionError(f"creating the folder of workspaces {self.path} failed: it was removed repeatedly")

    def workspace_name(self, key_text: str) -> str:
        """Return the folder name of a key. The first call creates the folder. Raises :class:`ExecutionError`.

        Landlock denies access to contents and listings, not to metadata by path. If the name depended on the key alone,
        a command could compute the path of another key's workspace, and change its mode and times.
        """
        if not self._secret:
            with self.failing(f"the folder of workspaces {self.path} cannot be created"):
                self.ensure()
        text = key_text.encode("utf-8", "surrogatepass")
        return _PREFIX + hashlib.blake2b(text, key=self._secret, digest_size=16).hexdigest()

    def _load_secret(self) -> None:
        """Read the secret, or create it. Raises :class:`OSError`, and :class:`ExecutionError` for a spoiled file."""
        with pinned(self.path) as folder:
            secret = _read_secret(folder)
            if secret is None:
                _create_secret(folder, self._secret or secrets.token_bytes(_SECRET_BYTES))
                secret = _read_secret(folder)
        if secret is None or len(secret) != _SECRET_BYTES or self._secret not in (b"", secret):
            raise ExecutionError(
                f"the file {self.path / NAMES_FILE} was changed while the job ran, so workspaces cannot be found: "
                "stop the job and remove the folder"
            )
        self._secret = secret

    @contextmanager
    def failing(self, what: str) -> Iterator[None]:
        """Turn an :class:`OSError` into an :class:`ExecutionError` with the failed operation and the fix.

        What an operator can fix is also logged, at most one time per interval: models receive the error and continue.
        """
        try:
            yield
        except OSError as error:
            fix = os_error_hint(error)
            if not fix:
                raise ExecutionError(f"{what}: {error}") from error
            if error.errno not in NO_DESCRIPTORS:
                fix += f" there, or set {SkillOptions.WORKSPACE_DIR.key} to another folder"
            message = f"{what} ({error.strerror}): {fix}"
            if time.monotonic() - self._logged >= _LOG_INTERVAL_SECONDS:
                self._logged = time.monotonic()
                _log.warning("%s", message)
            raise ExecutionError(message) from error

    def release(self) -> None:
        """Release the lock."""
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    def remove_folders(self) -> None:
        """Remove the folder and those of the job above it, if they are empty."""
        with suppress(OSError):  # another job's folder, or a file that is not ours
            for folder in reversed(self._folders):
                folder.rmdir()

    def restore(self) -> None:
        """Undo changes of modes of folders by commands with the worker's own user, which lock out all keys.

        Landlock does not cover modes. Folders above the job's get the mode back that they had when the job's folder
        was created, if their owner lacks some of it. The job's own folders are closed to other users again.
        """
        for folder, mode in self._above.items():
            with suppress(FileNotFoundError, NotADirectoryError):
                restore_folder(folder, mode)
        for folder in (*self._passages, *self._folders):
            with suppress(FileNotFoundError, NotADirectoryError):
                found = folder.lstat()
                rights, wrong = self.ownership.passage, stat.S_IRWXU & ~found.st_mode
                if self.user is None and folder not in self._passages:
                    wrong |= stat.S_IMODE(found.st_mode) & ~rights.mode
                if wrong and found.st_uid == os.geteuid():
                    with pinned(folder) as descriptor:
                        rights.apply(descriptor)

    def _make(self) -> None:
        top = self._folders[0]
        for folder in reversed(top.parents):
            if not folder.exists():
                folder.mkdir(mode=0o711 if self.user else 0o700, exist_ok=True)
                if self.user is not None:
                    folder.chmod(0o711)
        for folder in self._folders:
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
            # A folder of another user, created before ours, would be readable for them.
            if not is_own_folder(folder):
                raise ExecutionError(
                    f"{folder} is not a folder of this user, so workspaces in it would not be private: remove it, or "
                    "set skills.workspace.dir to another folder"
                )
        for folder in reversed(top.parents):
            found = folder.stat()
            if found.st_uid == os.geteuid() and folder not in self._passages:
                self._above.setdefault(folder, stat.S_IMODE(found.st_mode))
        if self.user is not None:
            self._allow_passage(self.user)

    def _allow_passage(self, user: CommandUser) -> None:
        """Allow ``user`` to pass the job's folders. Raises :class:`ExecutionError` if it cannot pass those above."""
        for folder in (*self._passages, *self._folders):
            found = folder.lstat()
            if found.st_uid == os.geteuid() and not can_pass(user, found):
                with pinned(folder) as descriptor:
                    self.ownership.passage.apply(descriptor)
        closed = [str(folder) for folder in reversed(self.path.parents) if not can_pass(user, folder.stat())]
        if closed:
            raise ExecutionError(
                f"commands run as user {user.uid}, which cannot reach workspaces in {self.path}: allow it to pass the "
                f"directories above ('chmod o+x {' '.join(closed)}'), or set skills.workspace.dir to another folder"
            )


def _read_secret(folder: int) -> bytes | None:
    try:
        return read_restored(NAMES_FILE, folder, _SECRET_BYTES + 1)
    except FileNotFoundError:
        return None


def _create_secret(folder: int, secret: bytes) -> None:
    """Create the file with all of its content, unless another worker was quicker."""
    building = f"{NAMES_FILE}-{secrets.token_hex(8)}"
    with created(building, folder) as descriptor:
        try:
            os.write(descriptor, secret)
            os.link(building, NAMES_FILE, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            pass  # the other worker's secret is the one of the job
        except OSError as error:
            if error.errno not in NO_HARD_LINKS:
                raise
            os.rename(building, NAMES_FILE, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(building, dir_fd=folder)
