"""Unpack a tar."""

from __future__ import annotations

import tarfile

from flink_skills.skill import Limits
from flink_skills.sources.compressed import Readable
from flink_skills.sources.entries import ArchiveRefusedError, Extraction, shown
from flink_skills.sources.forward import ForwardReader

__all__ = ["unpack_tar"]


def unpack_tar(file: Readable, extraction: Extraction, limits: Limits) -> None:
    """Unpack the tar in ``file``, which is only read forward.

    Raises :class:`ArchiveRefusedError`, :class:`OSError` of the disk, and what :mod:`tarfile` raises for damage.
    """
    # Headers and padding come on top of the content.
    reader = ForwardReader(file, limit=limits.total + limits.entries * 4096)
    with tarfile.open(fileobj=reader, mode="r:", encoding="utf-8", errors="strict") as archive:
        while (member := archive.next()) is not None:
            reader.entry_begins()
            _unpack_member(archive, member, extraction)
            reader.entry_ends()
            archive.members.clear()  # type: ignore[attr-defined]  # or every header stays in memory
            archive.pax_headers = {}  # and so does what headers say of all entries that follow
    # tarfile takes a damaged header, or none at all, for the end.
    if len(reader.last_read) != tarfile.BLOCKSIZE or any(reader.last_read):
        raise ArchiveRefusedError("the archive is truncated or damaged: the end marker is missing")
    if not reader.only_zeros_follow():
        raise ArchiveRefusedError("the archive continues after its end marker")


def _unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo, extraction: Extraction) -> None:
    is_file = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
    if not (is_file or member.isdir()):
        raise ArchiveRefusedError(f"{shown(member.name)} is a link, a device or a sparse file")
    size = member.size if is_file else 0
    parts = extraction.entry(member.name, is_folder=not is_file, size=size)
    if parts is None:
        return
    entry = archive.extractfile(member) if is_file else None
    if entry is None:
        extraction.write_folder(parts)
    else:
        extraction.write_file(parts, entry.read, size, executable=bool(member.mode & 0o111))
