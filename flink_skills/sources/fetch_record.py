"""What was last fetched from a URL: a small file beside the store's trees that nothing has to believe."""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path

__all__ = ["FetchRecord"]

_VERSION = 2
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class FetchRecord:
    """``sha256`` names the content, ``version`` is what the server said of it (ETag, time …; None: nothing).

    ``checked`` is when the server last answered, seconds since the epoch. ``text`` is the content itself where it is
    no tree of the store.
    """

    sha256: str
    version: str | None
    checked: float
    text: str | None = None

    @classmethod
    def read(cls, path: str) -> FetchRecord | None:
        """The record in a file; None where there is none, or a damaged one, or one of another release.

        It is a note and no authority: what it names is used only if the store has it.
        """
        try:
            with Path(path).open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
            found = json.loads(data) if len(data) <= _MAX_BYTES else None
        except (FileNotFoundError, IsADirectoryError, ValueError, RecursionError):
            return None
        if not isinstance(found, dict) or found.pop("format", None) != _VERSION:
            return None
        if set(found) != {field.name for field in fields(cls)}:
            return None
        sha256, version, checked, text = (found[name] for name in ("sha256", "version", "checked", "text"))
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            return None
        if not isinstance(checked, float) or not math.isfinite(checked):
            return None
        if not isinstance(version, (str, type(None))) or not isinstance(text, (str, type(None))):
            return None
        return cls(sha256, version, checked, text)

    def write(self, path: str) -> None:
        """Replace the file as a whole; the caller holds the lock of its key."""
        new = f"{path}.new"
        Path(new).write_text(json.dumps({"format": _VERSION, **asdict(self)}))
        os.replace(new, path)
