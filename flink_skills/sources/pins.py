"""The digest of a file, and the pin that it is compared with."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

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


def check_pin(path: str, pin: str, origin: str, generated: Sequence[str] = ()) -> None:
    """Raise :class:`SourceError` if a file's content is not the pinned one.

    ``generated`` are the files that are omitted from the content, which earlier releases included.
    """
    try:
        sha256, _, _ = file_sha256(path)
    except OSError as error:
        raise SourceError(f"skill source {origin}: cannot be read: {error.strerror}", source=origin) from None
    if sha256 != pin:
        raise other_content(sha256, origin, generated)


def other_content(sha256: str, origin: str, generated: Sequence[str] = ()) -> SourceError:
    """Return the error for content with another digest than the pinned one, with the arguments of :func:`check_pin`."""
    message = f"skill source {origin}: the sha256 is {sha256}, which differs from the pinned one"
    if generated:
        files = "1 generated file," if len(generated) == 1 else f"{len(generated)} generated files, such as"
        message += f" (without {files} {generated[0]}; earlier releases included generated files in the digest)"
        fix = f"if nothing else changed, pin #sha256={sha256}"
        return SourceError(f"{message}; {fix}, and remove the generated files from the folder", source=origin)
    return SourceError(f"{message}; check what changed, then pin the new one", source=origin)
