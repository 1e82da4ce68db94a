"""The worker as a process: its descriptors, its death and its log."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import sys

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1
_CLOSE_SECONDS = 4.0


def main() -> int:
    """Serve the JVM on stdin and stdout until it closes or is gone."""
    read_fd, write_fd = _take_stdio()
    _set_up_process()
    _set_up_logging()
    return asyncio.run(_serve(read_fd, write_fd))


async def _serve(read_fd: int, write_fd: int) -> int:
    from flink_skills.worker.server import Worker

    worker = Worker(read_fd, write_fd)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.closed.cancel)
    try:
        await worker.closed
    except asyncio.CancelledError:
        logging.getLogger("flink_skills.worker").info("asked to end")
    try:
        await asyncio.wait_for(worker.close(), _CLOSE_SECONDS)
    except asyncio.TimeoutError:
        logging.getLogger("flink_skills.worker").warning("not all of the worker closed in %g s", _CLOSE_SECONDS)
        return 1
    return 0


def _take_stdio() -> tuple[int, int]:
    """Private copies of the pipes. What anybody prints from now on goes to stderr and cannot break a frame."""
    read_fd, write_fd = os.dup(0), os.dup(1)
    os.set_inheritable(read_fd, False)
    os.set_inheritable(write_fd, False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return read_fd, write_fd


def _set_up_process() -> None:
    """An own session, so that the whole tree can be found, and an end together with the TaskManager."""
    os.setsid()
    if sys.platform == "linux":
        parent = os.getppid()
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            raise SystemExit("the TaskManager ended before its worker began")


class _LevelFormatter(logging.Formatter):
    """``LEVEL logger: message``, the level on each line: the bridge logs line by line."""

    def format(self, record: logging.LogRecord) -> str:
        text = f"{record.name}: {super().format(record)}"
        level = {"WARNING": "WARN", "CRITICAL": "ERROR"}.get(record.levelname, record.levelname)
        return "\n".join(f"{level} {line}" for line in text.splitlines())


def _set_up_logging() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LevelFormatter("%(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(os.environ.get("FLINK_SKILLS_LOG_LEVEL", "INFO"))
    for chatty in ("httpx", "httpcore", "openai", "anthropic", "asyncio", "fsspec", "botocore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
