"""Ends the processes that user code started in the worker and left running.

The JVM ends those that it recognizes once the worker is gone. The worker knows its descendants without a mark, so it
ends them before its own end.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ["end_descendants"]

_log = logging.getLogger("flink_skills.worker")

_GRACE_SECONDS = 0.5
_MAX = 10_000


def end_descendants() -> None:
    """End all descendants of this process: by SIGTERM, and after a grace by SIGKILL."""
    if sys.platform != "linux":
        return
    from flink_skills.execution.launcher.tree import tree_use

    pids = tree_use(os.getpid(), _MAX).pids
    if not pids:
        return
    with contextlib.ExitStack() as opened:
        # A descriptor stays with its process: nothing else that gets its id later is signaled.
        processes = list(_opened(pids, opened))
        _log.warning(
            "user code left processes running, which are ended now: %s",
            ", ".join(f"{_program(pid)} ({pid})" for pid, _ in processes),
        )
        _signal(processes, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_SECONDS
        poll = select.poll()
        for _, descriptor in processes:
            poll.register(descriptor, select.POLLIN)
        waiting = len(processes)
        while waiting and (left := deadline - time.monotonic()) > 0:
            for descriptor, _ in poll.poll(left * 1000):
                poll.unregister(descriptor)
                waiting -= 1
        _signal(processes, signal.SIGKILL)


def _opened(pids: Iterable[int], opened: contextlib.ExitStack) -> Iterable[tuple[int, int]]:
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        opened.callback(os.close, descriptor)
        yield pid, descriptor


def _signal(processes: Iterable[tuple[int, int]], number: signal.Signals) -> None:
    for pid, descriptor in processes:
        try:
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            continue
        except PermissionError:
            _log.warning("process %d belongs to another user and cannot be ended", pid)


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "a program"
