"""Artifacts in a folder of this machine, or of a file system that the machines of a cluster share."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from flink_skills.artifacts.failures import ArtifactError
from flink_skills.artifacts.location import Location
from flink_skills.sources.locking import PlantedError, check_folders

__all__ = ["LocalFolder"]

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class LocalFolder(Location):
    """Folders and files are for the worker's own user alone. See :class:`Location`."""

    def __init__(self, path: str) -> None:
        self.shown = os.path.normpath(path)

    def write(self, name: str, data: bytes) -> None:
        target = os.path.join(self.shown, name)
        folder = os.path.dirname(target)
        building = os.path.join(folder, f".{secrets.token_hex(8)}.new")
        with self._failing("written to", FileNotFoundError):
            check_folders(self.shown)
            _make_folder(folder)
            try:
                with open(os.open(building, _NEW, 0o600), "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(building, target)
            except BaseException:
                with suppress(OSError):
                    os.unlink(building)
                raise
            # What is written next may rely on this one, also after the power failed.
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def read(self, name: str, limit: int) -> bytes:
        with self._failing("read"):
            check_folders(self.shown)
            # A pipe in its place must not block.
            descriptor = os.open(os.path.join(self.shown, name), _READ)
            with open(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise PlantedError(os.path.join(self.shown, name), "the path is not a regular file")
                return file.read(limit)

    def names(self, folder: str) -> list[str]:
        with self._failing("listed"), suppress(FileNotFoundError):
            return sorted(os.listdir(os.path.join(self.shown, folder)))
        return []

    @contextmanager
    def _failing(self, what: str, *more: type[OSError]) -> Iterator[None]:
        """Translate errors, but not the one for what is not there: that is an answer, unless it is among ``more``."""
        try:
            yield
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not isinstance(error, more):
                raise
            reason = error.strerror or type(error).__name__
            if isinstance(error, PlantedError):
                reason = f"{error.path}: {reason}"
            message = f"the artifact store {self.shown} cannot be {what}: {reason}"
            raise ArtifactError(f"{message}; check its rights and its space", "unavailable") from error


def _make_folder(path: str) -> None:
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
