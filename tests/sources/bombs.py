"""Archives that are made to do harm: each function writes one, small on the disk and quick to make."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

SKILL = b"---\nname: greet\ndescription: Says hello.\n---\nHi\n"
MIB = 1 << 20
# What processes that open sources need: there is one fork server for all tests.
PRELOADED = ["pytest", "flink_skills.sources.url", "flink_skills.sources.store", "aiohttp", "tests.sources.web"]


def tar_header(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def tar_entry(name: str, data: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    return tar_header(name, len(data), kind) + data + bytes(-len(data) % 512)


def pax(values: dict[str, str]) -> bytes:
    lines = b""
    for key, value in values.items():
        body = f" {key}={value}\n".encode()
        length = next(n for n in itertools.count(len(body)) if len(str(n)) + len(body) == n)
        lines += str(length).encode() + body
    return lines


def local(name: bytes, data: bytes, crc: int, size: int, method: int = 8, flags: int = 0) -> bytes:
    return (
        struct.pack("<4s5H3L2H", b"PK\3\4", 20, flags, method, 0, 33, crc, len(data), size, len(name), 0) + name + data
    )


def central(name: bytes, compressed: int, crc: int, size: int, at: int, method: int = 8, extra: bytes = b"") -> bytes:
    fixed = (b"PK\1\2", 20, 20, 0, method, 0, 33, crc, compressed, size, len(name), len(extra), 0, 0, 0, 0, at)
    return struct.pack("<4s6H3L5H2L", *fixed) + name + extra


def end(count: int, length: int, at: int, comment: bytes = b"") -> bytes:
    return struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, length, at, len(comment)) + comment


def end64(count: int, length: int, at: int) -> bytes:
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, length, at)
    return record + struct.pack("<4sLQL", b"PK\6\7", 0, at + length, 1)


def deflated(data: bytes) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    return compressor.compress(data) + compressor.flush()


def one_entry_zip(name: bytes = b"a.md", data: bytes = SKILL) -> tuple[bytes, bytes]:
    """A local entry, and its part of the directory."""
    body, crc = deflated(data), zlib.crc32(data)
    return local(name, body, crc, len(data)), central(name, len(body), crc, len(data), 0)


def zip_of(entries: Iterable[tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries:
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


# By ratio


def zip_ratio(path: Path) -> None:
    zeros = bytes(50 * MIB)
    path.write_bytes(zip_of((f"{n}.bin", zeros) for n in range(4)))


def zip_nested(path: Path) -> None:
    """A gigabyte, three zips down: nothing of it is ever unpacked."""
    inner = zip_of((f"{n}.bin", bytes(64 * MIB)) for n in range(2))
    for level in range(3):
        inner = zip_of((f"{level}-{n}.zip", inner) for n in range(8))
    path.write_bytes(zip_of([("greet/SKILL.md", SKILL), ("greet/assets/data.zip", inner)]))


def zip_overlap(path: Path) -> None:
    """A thousand entries of the directory for the same bytes."""
    data = bytes(10 * MIB)
    body, crc = deflated(data), zlib.crc32(data)
    entry = local(b"0000", body, crc, len(data))
    directory = b"".join(central(b"%04d" % n, len(body), crc, len(data), 0) for n in range(1000))
    path.write_bytes(entry + directory + end(1000, len(directory), len(entry)))


def zip_quoted_overlap(path: Path) -> None:
    """Each entry quotes the header of the next as a stored block and shares its data, down to one kernel."""
    kernel = bytes(10 * MIB)
    body, crc, size = deflated(kernel), zlib.crc32(kernel), len(kernel)
    plain = kernel
    blob, entries = b"", []
    for n in range(60):
        name = b"%04d" % n
        if blob:
            quoted = blob[: 30 + 4]  # the local header of the entry before
            body = b"\0" + struct.pack("<2H", len(quoted), len(quoted) ^ 0xFFFF) + blob
            crc = zlib.crc32(plain, zlib.crc32(quoted))
            size += len(quoted)
            plain = quoted + plain
        blob = local(name, body, crc, size)
        entries.append((name, len(body), crc, size, len(blob)))
    whole = len(blob)
    directory = b"".join(central(n, c, crc, size, whole - length) for n, c, crc, size, length in reversed(entries))
    path.write_bytes(blob + directory + end(len(entries), len(directory), whole))


def gz_ratio(path: Path) -> None:
    head = gzip.compress(tar_header("a.bin", 60 * MIB))
    path.write_bytes(head + gzip.compress(bytes(20 * MIB)) * 3 + gzip.compress(bytes(1024)))


def gz_one_large_file(path: Path) -> None:
    path.write_bytes(gzip.compress(tar_header("a.bin", 8 << 30)) + gzip.compress(bytes(16 * MIB)) * 64)


def gz_zeros_after_the_end(path: Path) -> None:
    """A good tar and then gigabytes of padding."""
    path.write_bytes(gzip.compress(tar_entry("a.md", SKILL)) + gzip.compress(bytes(64 * MIB)) * 32)


def gz_in_gz(path: Path) -> None:
    path.write_bytes(gzip.compress(gzip.compress(bytes(64 * MIB)) * 20))


def bz2_ratio(path: Path) -> None:
    """Bzip2 makes 45 bytes of a mebibyte of zeros."""
    path.write_bytes(bz2.compress(tar_header("a.bin", 63 * MIB)) + bz2.compress(bytes(9 * MIB)) * 7)


def xz_ratio(path: Path) -> None:
    path.write_bytes(lzma.compress(tar_header("a.bin", 63 * MIB)) + lzma.compress(bytes(9 * MIB)) * 7)


def xz_memory(path: Path) -> None:
    """A block that asks for a dictionary of 1.5 GiB."""
    data = bytearray(lzma.compress(tar_entry("a.md", SKILL) + bytes(1024)))
    at = 12  # the stream header
    size = (data[at] + 1) * 4
    filter_at = data.index(b"\x21\x01", at)
    data[filter_at + 2] = 37
    data[at + size - 4 : at + size] = struct.pack("<L", zlib.crc32(bytes(data[at : at + size - 4])))
    path.write_bytes(bytes(data))


def zst_ratio(path: Path) -> None:
    import zstandard

    compress = zstandard.ZstdCompressor().compress
    path.write_bytes(compress(tar_header("a.bin", 63 * MIB)) + compress(bytes(9 * MIB)) * 7)


def zst_memory(path: Path) -> None:
    """A frame that asks for a window of 2 GiB."""
    import zstandard

    stream = zstandard.ZstdCompressor().compressobj()  # of unknown size: the frame tells its window
    data = bytearray(stream.compress(tar_entry("a.md", SKILL)) + stream.flush())
    assert not data[4] & 0x20
    data[5] = 21 << 3
    path.write_bytes(bytes(data))


# By number


def zip_100_000(path: Path) -> None:
    names = [b"%06d" % n for n in range(100_000)]
    entries = b"".join(local(name, b"", 0, 0, 0) for name in names)
    directory = b"".join(central(name, 0, 0, 0, n * 36, 0) for n, name in enumerate(names))
    after = end64(100_000, len(directory), len(entries)) + end(0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)
    path.write_bytes(entries + directory + after)


def zip_100_000_hidden(path: Path) -> None:
    """The end says 1,000 entries, the directory has a hundred times as many, in the bytes for 10,000."""
    names = [b"%06d" % n for n in range(90_000)]
    entries = b"".join(local(name, b"", 0, 0, 0) for name in names)
    directory = b"".join(central(name, 0, 0, 0, n * 36, 0) for n, name in enumerate(names))
    path.write_bytes(entries + directory + end(1000, len(directory), len(entries)))


def tar_100_000(path: Path) -> None:
    some = b"".join(tar_header(f"{n:06d}") for n in range(2_000))
    path.write_bytes(gzip.compress(some, 1) + gzip.compress(some[: 1000 * 512], 1) * 98)


def tar_implied_folders(path: Path) -> None:
    """Few entries, each below thirty folders of its own."""
    entries = (tar_header("/".join(f"{n:x}{depth:x}" for depth in range(31)) + "/f") for n in range(2000))
    path.write_bytes(gzip.compress(b"".join(entries) + bytes(1024), 1))


def tar_long_names(path: Path) -> None:
    """Names of 60,000 characters, made of folders: each would be 30,000 of them."""
    entries = []
    for n in range(100):
        name = f"{n}/" + "a/" * 30_000 + "f"
        entries.append(tar_entry("x", pax({"path": name}), tarfile.XHDTYPE) + tar_header("f"))
    path.write_bytes(gzip.compress(b"".join(entries) + bytes(1024), 1))


# By headers


def zip_lying_size(path: Path) -> None:
    data = bytes(40 * MIB)
    body, crc = deflated(data), zlib.crc32(bytes(11))
    entry = local(b"a.md", body, crc, 10)
    directory = central(b"a.md", len(body), crc, 10, 0)
    path.write_bytes(entry + directory + end(1, len(directory), len(entry)))


def zip_two_headers(path: Path) -> None:
    entry, _ = one_entry_zip()
    directory = one_entry_zip(data=bytes(1000))[1]
    path.write_bytes(entry + directory + end(1, len(directory), len(entry)))


def zip64_two_directories(path: Path) -> None:
    """The small end points at one directory, the large one at another of 50 MB."""
    entry, directory = one_entry_zip()
    large = bytes(50 * MIB)
    at = len(entry) + len(directory)
    path.write_bytes(entry + directory + large + end64(1, len(large), at) + end(1, len(directory), len(entry)))


def zip64_entry(path: Path) -> None:
    """An entry of an exabyte, by its zip64 field."""
    entry, _ = one_entry_zip()
    extra = struct.pack("<2HQ", 1, 8, 1 << 60)
    directory = central(b"a.md", len(deflated(SKILL)), zlib.crc32(SKILL), 0xFFFFFFFF, 0, extra=extra)
    path.write_bytes(entry + directory + end(1, len(directory), len(entry)))


def zip_two_ends(path: Path) -> None:
    """A second end in the comment of the first: readers differ in which one they take."""
    entry, directory = one_entry_zip()
    other = b"".join(one_entry_zip(b"../x.md"))
    length = len(other) - other.index(b"PK\1\2")
    at = len(entry) + len(directory) + 22
    comment = other + end(1, length, at + len(other) - length)
    path.write_bytes(entry + directory + end(1, len(directory), len(entry), comment))


def zip_garbage_after(path: Path) -> None:
    entry, directory = one_entry_zip()
    path.write_bytes(entry + directory + end(1, len(directory), len(entry)) + b"#!/bin/sh\n")


def zip_garbage_before(path: Path) -> None:
    entry, directory = one_entry_zip()
    path.write_bytes(b"#!/bin/sh\n" + entry + directory + end(1, len(directory), len(entry)))


def zip_and_tar(path: Path) -> None:
    """A tar that is a zip as well: the same bytes would be two trees."""
    entry, _ = one_entry_zip()
    tar = tar_entry("b.md", SKILL) + tar_header("z", 4096)
    _, _, body, crc = b"", b"", deflated(SKILL), zlib.crc32(SKILL)
    directory = central(b"a.md", len(body), crc, len(SKILL), len(tar))
    path.write_bytes(tar + entry + directory + end(1, len(directory), len(tar) + len(entry)))


def tar_huge_header(path: Path) -> None:
    path.write_bytes(tar_header("pax", 200 * MIB, tarfile.XHDTYPE) + bytes(MIB))


def tar_long_name(path: Path) -> None:
    path.write_bytes(gzip.compress(tar_header("x", 50 * MIB, tarfile.GNUTYPE_LONGNAME) + b"a" * (50 * MIB), 1))


def tar_chained_headers(path: Path) -> None:
    """Each header belongs to the next one; tarfile calls itself for each."""
    path.write_bytes(tar_header("x", 0, tarfile.XHDTYPE) * 50_000 + tar_header("a"))


def tar_global_headers(path: Path) -> None:
    """What global headers say is kept for all entries that follow."""
    entries = []
    for n in range(60):
        values = pax({f"k{n}.{m}": "v" for m in range(2000)})
        entries.append(tar_entry("g", values, tarfile.XGLTYPE) + tar_header(f"{n}"))
    path.write_bytes(gzip.compress(b"".join(entries) + bytes(1024), 1))


def tar_slow_header(path: Path) -> None:
    """Digits that a careless pattern tries again and again."""
    path.write_bytes(tar_entry("x", b"1" * 60_000, tarfile.XHDTYPE) + tar_entry("a", SKILL) + bytes(1024))


def tar_sparse(path: Path) -> None:
    """A map of a million holes, read before anybody asks for the file."""
    values = pax({"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "1", "GNU.sparse.name": "a"})
    holes = b"9999999\n" + b"0\n" * (10 * MIB)
    path.write_bytes(gzip.compress(tar_entry("x", values, tarfile.XHDTYPE) + tar_entry("a", holes), 1))


def tar_old_sparse(path: Path) -> None:
    header = bytearray(tar_header("a", 512, tarfile.GNUTYPE_SPARSE))
    header[482] = 1  # the map goes on
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header)
    more = bytearray(512)
    more[504] = 1
    path.write_bytes(bytes(header) + bytes(more) * 100_000)


def tar_garbage_after(path: Path) -> None:
    path.write_bytes(tar_entry("a.md", SKILL) + bytes(1024) + tar_entry("b.md", SKILL) + bytes(1024))


def gz_garbage_after(path: Path) -> None:
    path.write_bytes(gzip.compress(tar_entry("a.md", SKILL) + bytes(1024)) + b"#!/bin/sh\n")


def gz_wrong_checksum(path: Path) -> None:
    data = bytearray(gzip.compress(tar_entry("a.md", SKILL) + bytes(1024)))
    data[-8] ^= 1
    path.write_bytes(bytes(data))
