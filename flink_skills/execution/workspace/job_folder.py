"""Folder of all workspaces of one agent of one job, and how its workers share it."""

from __future__ import annotations

import errno
import fcntl
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
from flink_skills.execution.workspace.safe_files import Ownership, can_pass, open_restored, pinned, restore_folder
from flink_skills.execution.workspace.shared_copies import SharedCopies
from flink_skills.options import SkillOptions
from flink_skills.sources.locking import Lease
from flink_skills.sources.os_errors import NO_DESCRIPTORS, os_error_hint

__all__ = ["NAMES_FILE", "SHARED_SKILLS", "JobFolder", "KeyNames", "is_workspace", "left_alone"]

NAMES_FILE = ".names"
_PREFIX = "ws_"
_BYTES = 32
_NO_LINKS = frozenset({errno.EPERM, errno.EMLINK, errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES})
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class KeyNames:
    """Names made of the key's text and a secret, which the workers of a job share in the file ``.names``.

    Landlock closes contents and listings, not metadata by path. With a name that depends on the key alone, a command
    could compute the path of another key's workspace, and change its mode and times.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._secret: bytes | None = None

    def name(self, key_text: str) -> str:
        """Return the folder name of a key. Any text will do. :meth:`load` has to be called before."""
        if self._secret is None:
            raise ValueError("the secret was not loaded")
        text = key_text.encode("utf-8", "surrogatepass")
        return _PREFIX + hashlib.blake2b(text, key=self._secret, digest_size=16).hexdigest()

    def load(self) -> None:
        """Read the secret, or create it.

        The folder exists, and a lock keeps it from being removed.

        Raises:
            OSError: The file cannot be written.
            ExecutionError: The file is spoiled.
        """
        with pinned(self._folder) as folder:
            secret = _read(folder)
            if secret is None:
                _write(folder, self._secret or secrets.token_bytes(_BYTES))
                secret = _read(folder)
        if secret is None or len(secret) != _BYTES or self._secret not in (None, secret):
            raise ExecutionError(
                f"the file {self._folder / NAMES_FILE} was changed while the job ran, so workspaces cannot be found: "
                "stop the job and remove the folder"
            )
        self._secret = secret

    @property
    def is_loaded(self) -> bool:
        """True after the first :meth:`load`."""
        return self._secret is not None


def is_workspace(name: str) -> bool:
    """Return True if ``name`` is the folder name of a key."""
    return name.startswith(_PREFIX)


def _read(folder: int) -> bytes | None:
    try:
        descriptor = open_restored(NAMES_FILE, folder)
    except FileNotFoundError:
        return None
    try:
        return os.read(descriptor, _BYTES + 1)
    finally:
        os.close(descriptor)


def _write(folder: int, secret: bytes) -> None:
    """Create the file with all of its content, unless another worker was quicker."""
    building = f"{NAMES_FILE}-{secrets.token_hex(8)}"
    descriptor = os.open(building, _WRITE, 0o600, dir_fd=folder)
    try:
        os.write(descriptor, secret)
        os.link(building, NAMES_FILE, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        pass  # the other worker's secret is the one of the job
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.rename(building, NAMES_FILE, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(descriptor)
        with suppress(FileNotFoundError):
            os.unlink(building, dir_fd=folder)


SHARED_SKILLS = ".skills"
_TRIES = 20
_SAY_AGAIN_SECONDS = 60.0
_log = logging.getLogger("flink_skills.workspace")


class Troubles:
    """Tells the operator what is wrong with the machine: models are told and go on, so nobody else would hear of it."""

    def __init__(self) -> None:
        self._said = -_SAY_AGAIN_SECONDS

    def say(self, message: str) -> None:
        """Log it, once in a while: a full disk concerns each command of each turn."""
        now = time.monotonic()
        if now - self._said >= _SAY_AGAIN_SECONDS:
            self._said = now
            _log.warning("%s", message)


class JobFolder:
    """Makes the folder when it is first needed, and holds a lock on it until it is released.

    Whoever finds a folder without a lock knows that its workers are dead. ``top`` is the first folder, from the
    root of the file system, that belongs to the job; ``passages`` are folders above it that are the job's as well
    and that others remove. ``share_files`` says that skills are staged as views of one copy. ``programs`` are the
    scripts that ``bin/`` of each workspace contains, by name. ``interpreters`` are those that some of the scripts
    start. ``names`` gives the workspaces their names, after :meth:`ensure`.
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
        self.names = KeyNames(path)
        self.troubles = Troubles()
        self.programs: Mapping[str, str] = {}
        self.interpreters: Mapping[str, str] = {}
        self._top = top or path
        self._passages = passages
        # The modes of this user's folders above the job's, from the root of the file system down.
        self._above: dict[Path, int] = {}
        self._lease: Lease | None = None
        self._lock = threading.Lock()

    def ensure(self) -> None:
        """Make the folder and take the lock. Raises :class:`OSError` and :class:`ExecutionError`."""
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
                        self.names.load()
        raise ExecutionError(f"creating the folder of workspaces {self.path} failed: it was removed repeatedly")

    @contextmanager
    def failing(self, what: str) -> Iterator[None]:
        """Turn an :class:`OSError` into the :class:`ExecutionError` that says what failed, and how to fix it."""
        try:
            yield
        except OSError as error:
            fix = os_error_hint(error)
            if not fix:
                raise ExecutionError(f"{what}: {error}") from error
            if error.errno not in NO_DESCRIPTORS:
                fix += f" there, or set {SkillOptions.WORKSPACE_DIR.key} to another folder"
            message = f"{what} ({error.strerror}): {fix}"
            self.troubles.say(message)
            raise ExecutionError(message) from error

    def release(self) -> None:
        """Give the lock back."""
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    def remove_folders(self) -> None:
        """Remove the folder and those above it up to the first of the job's, as far as they are empty."""
        folder = self.path
        with suppress(OSError):  # another job's folder, or a file that is not ours
            folder.rmdir()
            while folder != self._top:
                folder = folder.parent
                folder.rmdir()

    def _own_folders(self) -> list[Path]:
        """From the top down to the folder itself."""
        above = [folder for folder in self.path.parents if folder.is_relative_to(self._top)]
        return [*reversed(above), self.path]

    def restore(self) -> None:
        """Undo what commands of the worker's own user did to the modes of folders, which shuts out all keys.

        Landlock does not cover modes. Folders above the job's get the mode back that they had when the job's folder
        was made, if their owner lacks some of it. The job's own folders are closed to other users again.
        """
        for folder, mode in self._above.items():
            with suppress(FileNotFoundError, NotADirectoryError):
                restore_folder(folder, mode)
        for folder in (*self._passages, *self._own_folders()):
            with suppress(FileNotFoundError, NotADirectoryError):
                found = folder.lstat()
                rights, wrong = self.ownership.passage, stat.S_IRWXU & ~found.st_mode
                if self.user is None and folder not in self._passages:
                    wrong |= stat.S_IMODE(found.st_mode) & ~rights.mode
                if wrong and found.st_uid == os.geteuid():
                    with pinned(folder) as descriptor:
                        rights.apply(descriptor)

    def _make(self) -> None:
        missing = [folder for folder in reversed(self._top.parents) if not folder.exists()]
        for folder in missing:
            folder.mkdir(mode=0o711 if self.user else 0o700, exist_ok=True)
            if self.user is not None:
                folder.chmod(0o711)
        for folder in self._own_folders():
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
            self._check_ours(folder)
        for folder in reversed(self._top.parents):
            found = folder.stat()
            if found.st_uid == os.geteuid() and folder not in self._passages:
                self._above.setdefault(folder, stat.S_IMODE(found.st_mode))
        if self.user is not None:
            self._let_pass(self.user)
            self._check_passage(self.user)

    def _let_pass(self, user: CommandUser) -> None:
        for folder in (*self._passages, *self._own_folders()):
            found = folder.lstat()
            if found.st_uid == os.geteuid() and not can_pass(user, found):
                with pinned(folder) as descriptor:
                    self.ownership.passage.apply(descriptor)

    def _check_ours(self, folder: Path) -> None:
        # Somebody else's folder of that name, made before ours, would be theirs to read.
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise ExecutionError(
                f"{folder} is not a folder of this user, so workspaces in it would not be private: remove it, or set "
                "skills.workspace.dir to another folder"
            )

    def _check_passage(self, user: CommandUser) -> None:
        closed = [str(folder) for folder in reversed(self.path.parents) if not can_pass(user, folder.stat())]
        if closed:
            raise ExecutionError(
                f"commands run as user {user.uid}, which cannot reach workspaces in {self.path}: allow it to pass the "
                f"directories above ('chmod o+x {' '.join(closed)}'), or set skills.workspace.dir to another folder"
            )


@contextmanager
def left_alone(folder: Path) -> Iterator[bool]:
    """Hold a folder of workspaces for removal; False if a worker that lives has it.

    Where the file system has no locks nobody can tell, and the one who asks is taken for the last.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        except BlockingIOError:
            free = False
        except OSError:
            free = True
        yield free
    finally:
        os.close(descriptor)
