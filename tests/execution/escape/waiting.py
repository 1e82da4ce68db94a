"""Waiting for a condition, with a deadline; ending what a control leaves behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

__all__ = ["end_all", "until"]


def until(condition: Callable[[], object], what: str, within: float = 20.0) -> None:
    """Wait for ``condition``; fails after ``within`` seconds, and says that not ``what``."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within} s: {what}"
        time.sleep(0.01)


def end_all(processes: Callable[[], list[int]]) -> None:
    """Kill until nothing is left: some fork as fast as they are found."""
    deadline = time.monotonic() + 30
    while found := processes():
        assert time.monotonic() < deadline, f"{found} cannot be ended"
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
