"""Small file systems that tests fill."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["fill", "small_disk"]

_BLOCK = 4096


@contextmanager
def small_disk(folder: Path, size: int, *, mode: str = "1777") -> Iterator[None]:
    """Have ``folder`` be a file system of ``size`` bytes; skips the test where mounting is not permitted."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode={mode}", "none", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("mounting is not permitted")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True, capture_output=True)


@contextmanager
def fill(folder: Path, *, spare: int = 0) -> Iterator[None]:
    """Take all space of the file system of ``folder`` but ``spare`` bytes meanwhile."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * _BLOCK)
        except OSError:
            file.truncate(max(0, file.tell() - spare))
    try:
        yield
    finally:
        filler.unlink()
