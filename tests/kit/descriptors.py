"""Open file descriptors."""

from __future__ import annotations

import gc
import os

__all__ = ["descriptors"]


def descriptors(pid: int | None = None) -> int:
    """Return how many descriptors a process has, which is this one by default.

    The garbage of earlier tests, for example their event loops, is closed before.
    """
    if pid is None:
        gc.collect()
    return len(os.listdir(f"/proc/{pid or 'self'}/fd"))
