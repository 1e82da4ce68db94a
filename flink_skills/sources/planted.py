"""Folders and files that another user of the machine may have put where this user's are expected."""

from __future__ import annotations

import errno
import os
import stat

__all__ = ["PlantedError", "check_folders", "open_own_file"]

_ROOT = 0


class PlantedError(PermissionError):
    """The path may be another user's. The message names the path and the reason."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(errno.EPERM, reason, path)
        self.path = path


def check_folders(folder: str) -> None:
    """Check that no other user can have planted ``folder`` or a folder above it. It need not exist.

    In a folder that all users can write to, such as ``/tmp``, another user can be the first to make a folder. So a
    folder in it has to belong to this user or to root. Call it before anything below ``folder`` is opened or locked.

    Raises:
        PlantedError: A component of the path belongs to another user, in a folder that all users can write to.
        OSError: A component cannot be read.
    """
    path, parent = os.path.abspath(folder), ""
    components = [path]
    while (parent := os.path.dirname(path)) != path:
        components.append(parent)
        path = parent
    above = None
    for path in reversed(components):
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return  # made by this user later
        if above is not None and above.st_mode & stat.S_IWOTH and found.st_uid not in (os.geteuid(), _ROOT):
            raise PlantedError(
                path, f"the path belongs to user {found.st_uid} and is in a directory that all users can write to"
            )
        # Through a link that was accepted, the folder behind it is the one that matters.
        above = os.stat(path) if stat.S_ISLNK(found.st_mode) else found


def open_own_file(path: str, flags: int, mode: int = 0o600) -> int:
    """Open a regular file of this user. Never wait for a pipe, and follow no link.

    If a command of this user took the rights of the owner away (Landlock does not cover modes), they are restored.

    Raises:
        PlantedError: The path leads to a link, pipe, device or folder, or to a file of another user.
        OSError: The file cannot be opened.
    """
    safe = flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, safe, mode)
    except PermissionError:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & mode == mode:
            raise
        os.chmod(path, mode)
        descriptor = os.open(path, safe, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PlantedError(path, "the path is a link") from None
        if error.errno == errno.ENXIO:
            raise PlantedError(path, "the path is a pipe or a socket") from None
        raise
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
        return descriptor
    os.close(descriptor)
    raise PlantedError(path, f"the path is not a regular file of user {os.geteuid()}")
