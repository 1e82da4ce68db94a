"""Unpack a zip. Its directory is checked before :mod:`zipfile` reads it, and each entry against both headers."""

from __future__ import annotations

import copy
import stat
import struct
import zipfile
from typing import BinaryIO

from flink_skills.skill import Limits
from flink_skills.sources.entries import ArchiveRefusedError, Extraction, shown

_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_CENTRAL = struct.Struct("<4s24x3H12x")
_LOCAL = struct.Struct("<4s5H3L2H")
_MAX_COMMENT = 0xFFFF
_MANY, _LARGE = 0xFFFF, 0xFFFFFFFF
_ENCRYPTED, _SIZES_FOLLOW, _UTF8 = 0x1, 0x8, 0x800
# Headers of an entry in the directory, its name and extra fields; far more than any tool writes.
_DIRECTORY_ENTRY = 512


def unpack_zip(file: BinaryIO, size: int, extraction: Extraction, limits: Limits) -> None:
    """Unpack the zip of ``size`` bytes in ``file``.

    Raises :class:`ArchiveRefusedError`, :class:`OSError` of the disk, and what :mod:`zipfile` raises for damage.
    """
    directory_at = _checked_directory(file, size, limits)
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        _check_layout(file, entries, directory_at)
        for info in entries:
            _unpack_entry(archive, info, extraction)


def _unpack_entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo, extraction: Extraction) -> None:
    name = _name(info)
    is_folder = name.replace("\\", "/").endswith("/")
    mode = info.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise ArchiveRefusedError(f"{shown(name)} is a link or a device")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ArchiveRefusedError(f"{shown(name)} is compressed in a way other than deflate")
    parts = extraction.entry(name, is_folder=is_folder, size=info.file_size)
    if parts is None:
        return
    if is_folder:
        if info.file_size:
            raise ArchiveRefusedError(f"{shown(name)} is a folder with content")
        extraction.write_folder(parts)
        return
    # zipfile stops at the size of the header. One more byte shows an entry that goes on behind it.
    generous = copy.copy(info)
    generous.file_size = info.file_size + 1
    with archive.open(generous) as entry:
        extraction.write_file(parts, entry.read, info.file_size, executable=bool(mode & 0o111))


def _name(info: zipfile.ZipInfo) -> str:
    """The name of an entry; UTF-8 also where its flag is missing, as macOS writes it."""
    name = info.orig_filename
    if info.flag_bits & _UTF8 or name.isascii():
        return name
    try:
        return name.encode("cp437").decode()
    except UnicodeError:
        return name


def _checked_directory(file: BinaryIO, size: int, limits: Limits) -> int:
    """Where the directory is. It is checked before zipfile takes all of it into memory."""
    tail_size = min(size, _MAX_COMMENT + _END.size)
    file.seek(size - tail_size)
    tail = file.read(tail_size)
    found = tail.rfind(b"PK\x05\x06")
    if found < 0 or len(tail) - found < _END.size:
        raise ArchiveRefusedError("the zip archive is incomplete")
    fields: tuple[int, ...] = _END.unpack_from(tail, found)[1:]
    disk, first_disk, here, count, length, at, comment = fields
    end = size - tail_size + found
    if end + _END.size + comment != size:
        raise ArchiveRefusedError("the archive continues after its end, or its end is damaged")
    file.seek(max(0, end - _LOCATOR64.size))
    locator = file.read(min(end, _LOCATOR64.size))
    if len(locator) == _LOCATOR64.size and locator.startswith(b"PK\x06\x07"):
        end -= _LOCATOR64.size + _END64.size
        large = _read_end64(file, end, locator)
        small = (disk, first_disk, here, count, length, at)
        tops = (_MANY, _MANY, _MANY, _MANY, _LARGE, _LARGE)
        if any(few not in (top, many) for few, top, many in zip(small, tops, large, strict=True)):
            raise ArchiveRefusedError("the archive has two contradictory directories (zip and zip64)")
        disk, first_disk, here, count, length, at = large
    if count > limits.entries or length > limits.entries * _DIRECTORY_ENTRY:
        raise ArchiveRefusedError(f"there are more than {limits.entries} entries")
    if disk or first_disk or here != count:
        raise ArchiveRefusedError("the archive is one part of several")
    if at + length != end:
        raise ArchiveRefusedError(
            "the archive is damaged: its directory is not at the position in its end record, or other data precedes it"
        )
    file.seek(at)
    if _count_entries(file.read(length)) != count:
        raise ArchiveRefusedError(f"the archive has another number of entries than its end record declares, {count}")
    file.seek(0)
    return at


def _count_entries(directory: bytes) -> int:
    at = count = 0
    while at < len(directory):
        if len(directory) - at < _CENTRAL.size:
            return -1
        signature, name, extra, comment = _CENTRAL.unpack_from(directory, at)
        if signature != b"PK\x01\x02":
            return -1
        at += _CENTRAL.size + name + extra + comment
        count += 1
    return count


def _read_end64(file: BinaryIO, end: int, locator: bytes) -> tuple[int, ...]:
    _, disk, at, disks = _LOCATOR64.unpack(locator)
    if end < 0 or at != end or disk or disks > 1:
        raise ArchiveRefusedError("the archive is damaged: its zip64 end record is at a wrong position")
    file.seek(end)
    signature, length, _, _, *numbers = _END64.unpack(file.read(_END64.size))
    if signature != b"PK\x06\x06" or length != _END64.size - 12:
        raise ArchiveRefusedError("the archive is damaged: its zip64 end record is at a wrong position")
    return tuple(numbers)


def _check_layout(file: BinaryIO, entries: list[zipfile.ZipInfo], directory_at: int) -> None:
    """No entry shares bytes with another one or the directory, and nothing stands before the first."""
    free_from = 0
    for position, info in enumerate(sorted(entries, key=lambda info: info.header_offset)):
        at = info.header_offset
        if at < free_from or (position == 0 and at):
            raise ArchiveRefusedError(f"{shown(_name(info))} overlaps with the previous data")
        file.seek(at)
        header = file.read(_LOCAL.size)
        if len(header) < _LOCAL.size or not header.startswith(b"PK\x03\x04"):
            raise ArchiveRefusedError(
                f"the archive is damaged: {shown(_name(info))} is not at the position in its directory"
            )
        _, _, flags, method, _, _, _, compressed, size, name, extra = _LOCAL.unpack(header)
        if (flags | info.flag_bits) & _ENCRYPTED:
            raise ArchiveRefusedError(f"{shown(_name(info))} is encrypted")
        sizes_differ = not flags & _SIZES_FOLLOW and (
            compressed not in (info.compress_size, _LARGE) or size not in (info.file_size, _LARGE)
        )
        if method != info.compress_type or sizes_differ:
            raise ArchiveRefusedError(f"the two headers of {shown(_name(info))} contradict each other")
        free_from = at + _LOCAL.size + name + extra + info.compress_size
        if free_from > directory_at:
            raise ArchiveRefusedError(f"{shown(_name(info))} extends into the directory")
