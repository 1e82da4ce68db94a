"""A folder in which artifacts are kept: whole small files, written at once or not at all, read and listed."""

from __future__ import annotations

from abc import ABC, abstractmethod

__all__ = ["Location"]


class Location(ABC):
    """A folder. Names are relative paths with ``/``. Methods block and may be called from several threads.

    They raise ``FileNotFoundError`` for what is not there, and :class:`~flink_skills.artifacts.ArtifactError` for a
    store that cannot be used. ``shown`` is what messages call it, without anything secret.
    """

    shown: str

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Make ``name`` a file with this content, in place of what was there; readers see all of it or nothing."""

    @abstractmethod
    def read(self, name: str, limit: int) -> bytes:
        """The content of a file of at least one byte, or its first ``limit`` bytes."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder, sorted; none if there is no such folder."""
