"""The digest of a file, and the pin that it is compared with."""

from __future__ import annotations

import hashlib
import os

from flink_skills.errors import SourceError

__all__ = ["check_pin", "file_sha256", "other_content"]

_HEAD = 512
_BLOCK = 1 << 18


def file_sha256(path: str, limit: int | None = None) -> tuple[str, bytes, int]:
    """Digest, first bytes and size of a file; what is larger than ``limit`` is not read, and its digest is ""."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_HEAD)
        if limit is not None and size > limit:
            return "", head, size
        digest = hashlib.sha256(head)
        while data := file.read(_BLOCK):
            digest.update(data)
        return digest.hexdigest(), head, size


def check_pin(path: str, pin: str, origin: str) -> None:
    """Raise :class:`SourceError` where a file's content is not the pinned one."""
    try:
        sha256, _, _ = file_sha256(path)
    except OSError as error:
        raise SourceError(f"skill source {origin}: cannot be read: {error.strerror}", source=origin) from None
    if sha256 != pin:
        raise other_content(sha256, origin)


def other_content(sha256: str, origin: str) -> SourceError:
    """The error for content that is not the pinned one."""
    message = f"skill source {origin}: its sha256 is {sha256} and not the pinned one"
    return SourceError(f"{message}; check what changed, then pin the new one", source=origin)
