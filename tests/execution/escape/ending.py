"""Ending what a control leaves behind."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from tests.kit.waiting import wait_until

__all__ = ["end_all"]


def end_all(processes: Callable[[], list[int]]) -> None:
    """Kill until nothing is left: some fork as fast as they are found."""

    def ended() -> bool:
        found = processes()
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found

    wait_until(ended, lambda: f"the end of the processes {processes()}", pause=0)
