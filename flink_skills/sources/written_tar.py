"""A tar that depends on the names and the content of its files alone."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple

__all__ = ["Member", "content_of", "mode_of", "write_tar"]


class Member(NamedTuple):
    """A file of an archive: its name there and its real path here."""

    name: str
    real: str
    executable: bool


def write_tar(file: BinaryIO | gzip.GzipFile, members: Sequence[Member]) -> None:
    """Write the files in this order, without owner and time. Raises :class:`OSError`."""
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member in members:
            data = content_of(member)
            entry = tarfile.TarInfo(member.name)  # its owner is 0 without a name, its time 0
            entry.size, entry.mode = len(data), mode_of(member)
            archive.addfile(entry, io.BytesIO(data))


def mode_of(member: Member) -> int:
    """Return the permissions of the file in an archive."""
    return 0o755 if member.executable else 0o644


def content_of(member: Member) -> bytes:
    """Return the bytes of the file. Links are not followed. Raises :class:`OSError`."""
    descriptor = os.open(member.real, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        return file.read()
