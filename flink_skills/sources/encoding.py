"""Undo a ``Content-Encoding``: some servers compress what they send, whatever they are asked for."""

from __future__ import annotations

import gzip
import os
import zlib

from flink_skills.sources.failures import Transfer

__all__ = ["decode"]

_GZIP = frozenset({"gzip", "x-gzip"})
# What is compressed by itself: servers say so with the same header, and the bytes are the file's own.
_COMPRESSED = (".gz", ".tgz")
_CHUNK = 1 << 18


def decode(target: str, name: str, encoding: str, transfer: Transfer, limit: int) -> None:
    """Replace the file ``target`` by its content before it was compressed for the transfer, at most ``limit`` bytes.

    ``name`` is the file's name, ``encoding`` the header. Raises :class:`SourceError`.
    """
    word = encoding.strip().lower()
    if word in ("", "identity") or (word in _GZIP and name.lower().endswith(_COMPRESSED)):
        return
    if word not in _GZIP:
        shown = word if word.isalpha() else "?"
        raise transfer.error(
            f"the server sends it with an unrequested encoding ({shown}); disable this encoding on the server"
        )
    plain = f"{target}.plain"
    try:
        with gzip.open(target) as packed, open(plain, "xb") as file:
            while data := packed.read(_CHUNK):
                if file.tell() + len(data) > limit:
                    raise transfer.too_large(limit)
                file.write(data)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise transfer.error("the server declares gzip, but the content is not gzip or is damaged") from None
    os.replace(plain, target)
