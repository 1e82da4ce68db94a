"""Looking at folders in which other processes make and remove things meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["files_below", "folders_below"]


def folders_below(folder: Path) -> Iterator[Path]:
    """The folders below ``folder``. One that goes while it is looked at is no error, as with ``Path.rglob``."""
    return (Path(top, name) for top, folders, _ in os.walk(folder) for name in folders)


def files_below(folder: Path) -> Iterator[Path]:
    """The same for files, without links."""
    return (path for top, _, names in os.walk(folder) for name in names if (path := Path(top, name)).is_file())
