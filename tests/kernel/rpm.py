"""Packages in the format of RPM: lead, signature, header, and a compressed archive."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Mapping
from pathlib import PurePosixPath

from .initramfs import archive

__all__ = ["rpm_package"]

_STRING, _BINARY, _INT32 = 6, 7, 4
# Tags of https://rpm-software-management.github.io/rpm/manual/tags.html. A region contains all entries of its header.
_SIGNATURES, _IMMUTABLE = 62, 63
_SIGNED_SIZE = 1000
_NAME, _VERSION, _RELEASE, _OS, _ARCHITECTURE = 1000, 1001, 1002, 1021, 1022
_PAYLOAD_FORMAT, _PAYLOAD_COMPRESSOR, _PAYLOAD_FLAGS = 1124, 1125, 1126


def rpm_package(name: str, files: Mapping[str, bytes]) -> bytes:
    """Return a package with ``files`` by path and their directories."""
    folders = {str(folder) for path in files for folder in PurePosixPath(path).parents} - {"."}
    entries = [(f"./{folder}", 0o40755, b"") for folder in sorted(folders)]
    entries += [(f"./{path}", 0o100644, content) for path, content in files.items()]
    header = _header(
        _IMMUTABLE,
        {
            _NAME: name,
            _VERSION: "1",
            _RELEASE: "1",
            _OS: "linux",
            _ARCHITECTURE: "x86_64",
            _PAYLOAD_FORMAT: "cpio",
            _PAYLOAD_COMPRESSOR: "gzip",
            _PAYLOAD_FLAGS: "9",
        },
    )
    payload = gzip.compress(archive(entries))
    signature = _header(_SIGNATURES, {_SIGNED_SIZE: len(header) + len(payload)})
    # Magic, version, type (binary), architecture, name, system, type of the signature (a header).
    lead = struct.pack(">4sBBHH66sHH16x", b"\xed\xab\xee\xdb", 3, 0, 0, 1, name.encode(), 1, 5)
    return lead + signature + b"\0" * (-len(signature) % 8) + header + payload


def _header(region: int, tags: Mapping[int, str | int]) -> bytes:
    index: list[tuple[int, int, int, int]] = []
    store = b""
    for tag, value in sorted(tags.items()):
        if isinstance(value, int):
            store += b"\0" * (-len(store) % 4)
            index.append((tag, _INT32, len(store), 1))
            store += struct.pack(">I", value)
        else:
            index.append((tag, _STRING, len(store), 1))
            store += value.encode() + b"\0"
    # The entry of the region points to a trailer, which has the size of the index as a negative offset.
    index.insert(0, (region, _BINARY, len(store), 16))
    store += struct.pack(">IIiI", region, _BINARY, -16 * len(index), 16)
    entries = b"".join(struct.pack(">4I", *entry) for entry in index)
    return b"\x8e\xad\xe8\x01" + struct.pack(">4xII", len(index), len(store)) + entries + store
