"""Packs that no git program writes, and a server that sends them."""

from __future__ import annotations

import hashlib
import io
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills.errors import SourceError
from flink_skills.options import SkillConfig
from flink_skills.sources import SourceContext, open_source
from tests.kit.waiting import MARGIN
from tests.sources.web import ALLOWED

SKILL = b"---\nname: a\ndescription: Does a.\n---\nDo it.\n"
RESULT = "application/x-git-upload-pack-result"


def context(folder: Path, **options: Any) -> SourceContext:
    values = {f"skills.{key.replace('__', '.').replace('_', '-')}": value for key, value in options.items()}
    return SourceContext(SkillConfig({**ALLOWED, **values}), store_dir=str(folder / "store"))


def refused(location: str, folder: Path, **options: Any) -> SourceError:
    """Return the error of a source, and check that its time and its remains are bounded."""
    began = time.monotonic()
    with pytest.raises(SourceError) as caught:
        open_source("url", location, context(folder, **options)).resolve()
    assert time.monotonic() - began < MARGIN
    store = folder / "store"
    assert [path for path in store.rglob("*") if path.is_file()] == [], "nothing remains in the store"
    assert caught.value.__cause__ is None
    return caught.value


def head(kind: int, size: int) -> bytes:
    byte, size = kind << 4 | size & 15, size >> 4
    data = b""
    while size:
        data += bytes([byte | 128])
        byte, size = size & 127, size >> 7
    return data + bytes([byte])


def number(value: int) -> bytes:
    data = b""
    while value >= 128:
        data += bytes([value & 127 | 128])
        value >>= 7
    return data + bytes([value])


def pack(*entries: bytes, count: int | None = None) -> bytes:
    data = b"PACK" + struct.pack(">II", 2, len(entries) if count is None else count) + b"".join(entries)
    return data + hashlib.sha1(data).digest()


def whole(kind: int, data: bytes, size: int | None = None) -> bytes:
    return head(kind, len(data) if size is None else size) + zlib.compress(data, 9)


def name_of(kind: bytes, data: bytes) -> str:
    return hashlib.sha1(b"%s %d\0" % (kind, len(data)) + data).hexdigest()


def commit_of(blob: bytes) -> tuple[str, bytes, bytes]:
    """The id of a commit with one SKILL.md, the commit, and its tree."""
    tree = b"100644 SKILL.md\0" + bytes.fromhex(name_of(b"blob", blob))
    commit = b"tree " + name_of(b"tree", tree).encode() + b"\nauthor a <a> 0 +0000\n\nx\n"
    return name_of(b"commit", commit), commit, tree


def line(data: bytes) -> bytes:
    return b"%04x" % (len(data) + 4) + data


def answer_fetch(content: Callable[[], Iterator[bytes]] | bytes, *, band: bool = True) -> Callable[[Any], bool]:
    """A fault: the answer to the command fetch. ``band`` wraps the content as a pack in the side band."""

    def fault(handler: Any) -> bool:
        if handler.command != "POST":
            return False
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        if b"command=fetch" not in body:
            handler.rfile = io.BytesIO(body)
            return False
        handler.send_response(200)
        handler.send_header("Content-Type", RESULT)
        handler.end_headers()
        try:
            if callable(content):
                for piece in content():
                    handler.wfile.write(piece)
            elif band:
                handler.wfile.write(line(b"packfile\n"))
                for at in range(0, len(content), 60_000):
                    handler.wfile.write(line(b"\1" + content[at : at + 60_000]))
                handler.wfile.write(b"0000")
            else:
                handler.wfile.write(content)
        except OSError:
            pass  # the client stopped
        handler.close_connection = True
        return True

    return fault


COMMIT, COMMIT_DATA, TREE_DATA = commit_of(SKILL)
GOOD = (whole(1, COMMIT_DATA), whole(2, TREE_DATA), whole(3, SKILL))


def delta(base_size: int, size: int, operations: bytes) -> bytes:
    return number(base_size) + number(size) + operations


def change(data: bytes) -> bytes:
    """A delta on SKILL.md."""
    return head(7, len(data)) + bytes.fromhex(name_of(b"blob", SKILL)) + zlib.compress(data)


GIB = 1 << 30
BOMB = zlib.compress(bytes(64 << 20), 9)
