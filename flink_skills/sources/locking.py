"""A lock between processes and threads of this machine, freed by the system when its holder dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from flink_skills.errors import SourceError

__all__ = ["file_lock"]

_POLL = 0.05


@contextmanager
def file_lock(path: str, deadline: float, source: str) -> Iterator[None]:
    """Hold the lock file ``path`` exclusively; wait for it until ``deadline`` (monotonic seconds).

    Raises :class:`SourceError` (retryable) at the deadline.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    message = f"skill source {source}: another process has been loading it for too long; try again"
                    raise SourceError(message, source=source, retryable=True) from None
                time.sleep(_POLL)
        yield
    finally:
        os.close(descriptor)
