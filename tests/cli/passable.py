"""A folder for workspaces that commands can pass when they run as another user, which cannot enter pytest's own."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from flink_skills.execution import remove_tree

__all__ = ["passable_folder"]


@contextlib.contextmanager
def passable_folder() -> Iterator[Path]:
    """Make such a folder, and fail if anything of ours is left in it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="cli-test-", dir="/tmp"))
    folder.chmod(0o711)
    try:
        yield folder
        left = [path.name for path in folder.iterdir() if not path.name.startswith("flink-skills-store")]
        assert left == []
    finally:
        remove_tree(folder)  # the store's folders are read-only
