"""A folder that commands can pass when they run as another user, unlike those that pytest makes."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["passable_folder"]


@contextlib.contextmanager
def passable_folder() -> Iterator[Path]:
    """Make such a folder. The one above it is its own too, so a test may look there for what has come out."""
    outer = Path(os.path.realpath(tempfile.mkdtemp(prefix="test-")))
    folder = outer / "here"
    folder.mkdir()
    for passable in (outer, folder):
        passable.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(outer, ignore_errors=True)
