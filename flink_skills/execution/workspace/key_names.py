"""Folder names of keys, which the commands of other keys cannot compute."""

# Files are opened in held folders here, which pathlib cannot work with.
from __future__ import annotations

import errno
import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path

from flink_skills.errors import ExecutionError
from flink_skills.execution.workspace.rights import open_restored, pinned

__all__ = ["NAMES_FILE", "KeyNames", "is_workspace"]

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
