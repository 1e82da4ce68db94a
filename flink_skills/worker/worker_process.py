"""Process of a worker: its descriptors, event loop, log and prints, and the end of the process and its descendants."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import io
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TextIO

import uvloop

from flink_skills.agents.open.redaction import Redactor
from flink_skills.telemetry.activity import LogFields
from flink_skills.worker.abandoned import StepThreads

_PR_SET_PDEATHSIG = 1
_CLOSE_SECONDS = 4.0
# Python ignores these two in itself and restores them in the programs that it starts.
_IGNORED_BY_PYTHON = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
_STEP_THREADS = 128
# WorkerLog.java has the same.
_MARK_VARIABLE = "FLINK_SKILLS_MARK_LOG"
_MARK = "\x1e"


def main() -> NoReturn:
    """Serve the JVM on stdin and stdout until it closes or is gone."""
    read_fd, write_fd = _take_stdio()
    _set_up_process()
    redactor = Redactor()
    _set_up_logging(redactor)
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    os.register_at_fork(after_in_child=lambda: _cut_off(read_fd, write_fd))
    serving = loop.create_task(_serve(read_fd, write_fd, redactor))
    while True:
        try:
            loop.run_until_complete(serving)
        except (SystemExit, KeyboardInterrupt) as error:
            if serving.done():
                raise
            # asyncio stops the loop for these in any task. The turn of the task fails with the same error.
            logging.getLogger("flink_skills.worker").warning(
                "a task of user code raised %s; raise an exception instead", type(error).__name__
            )


def _cut_off(read_fd: int, write_fd: int) -> None:
    """Close the pipes in a forked process, which must neither write frames nor keep the pipes open."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (read_fd, write_fd):
        os.dup2(null, descriptor, inheritable=False)
    os.close(null)


async def _serve(read_fd: int, write_fd: int, redactor: Redactor) -> NoReturn:
    from flink_skills.worker.server import Worker

    loop = asyncio.get_running_loop()
    # Steps and tools that are plain functions mostly wait; the default of a few threads would make turns queue.
    threads = StepThreads(_STEP_THREADS)
    loop.set_default_executor(threads)
    worker = Worker(read_fd, write_fd, redactor, threads)
    loop.add_signal_handler(signal.SIGTERM, worker.closed.cancel)
    try:
        await worker.closed
    except asyncio.CancelledError:
        logging.getLogger("flink_skills.worker").info("asked to end")
    code = worker.exit_code
    try:
        await asyncio.wait_for(worker.close(), _CLOSE_SECONDS)
    except asyncio.TimeoutError:
        logging.getLogger("flink_skills.worker").warning(
            "the worker did not close completely within %g s", _CLOSE_SECONDS
        )
        code = code or 1
    try:
        end_descendants()
    except OSError:
        logging.getLogger("flink_skills.worker").exception("the processes that user code left cannot be ended")
    logging.shutdown()
    if isinstance(sys.stderr, WholeLines):
        sys.stderr.finish()
    # Immediately, because a user's function that blocks a thread must not keep the slot of a cancelled job.
    os._exit(code)


def _take_stdio() -> tuple[int, int]:
    """Return private copies of the pipes. Later prints go to stderr and cannot break a frame."""
    read_fd, write_fd = os.dup(0), os.dup(1)
    os.set_inheritable(read_fd, False)
    os.set_inheritable(write_fd, False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    sys.stdout = sys.stderr = WholeLines(sys.stderr)
    return read_fd, write_fd


def _set_up_process() -> None:
    """Start a session, so that all descendants can be found, and exit with the TaskManager."""
    os.setsid()
    _reset_signals()
    # A turn makes hundreds of objects, and conversations are many that stay: Python's own thresholds would have them
    # looked through every few turns, which took half of the time of turns with long ones.
    gc.set_threshold(50_000, 20, 20)
    if sys.platform == "linux":
        parent = os.getppid()
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            raise SystemExit("the TaskManager ended before its worker began")


def _reset_signals() -> None:
    """Handle signals as programs expect that the worker or user code starts, because they inherit it.

    Flink's scripts start a TaskManager in the background of a shell, which ignores SIGINT and SIGQUIT there. The JVM
    blocks SIGQUIT in its children.
    """
    for number in signal.valid_signals() - _IGNORED_BY_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


class LevelFormatter(logging.Formatter):
    """``LEVEL {agent=… turn=…} logger: message``, level and fields on each line: the bridge logs line by line.

    A ``+`` before the fields says that the line belongs to the one before. Without fields there are no braces.
    """

    def __init__(self, redactor: Redactor) -> None:
        super().__init__("%(message)s")
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        text = self._redactor.redact(f"{record.name}: {super().format(record)}")
        level = {"WARNING": "WARN", "CRITICAL": "ERROR"}.get(record.levelname, record.levelname)
        fields: Mapping[str, str] = getattr(record, "fields", {})
        shown = self._redactor.redact(" ".join(f"{name}={value}" for name, value in fields.items()))
        first, *rest = text.splitlines()
        if not shown:
            return "\n".join(f"{level} {line}" for line in (first, *rest))
        return "\n".join((f"{level} {{{shown}}} {first}", *(f"{level} +{{{shown}}} {line}" for line in rest)))


class _MarkedHandler(logging.StreamHandler):  # type: ignore[type-arg]  # generic since Python 3.11
    """A handler that marks each line, for a bridge that shows what user code prints."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(_MARK + line for line in super().format(record).splitlines())


def _set_up_logging(redactor: Redactor) -> None:
    marked = bool(os.environ.get(_MARK_VARIABLE))
    handler = _MarkedHandler(sys.stderr) if marked else logging.StreamHandler(sys.stderr)
    handler.setFormatter(LevelFormatter(redactor))
    handler.addFilter(LogFields())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Warnings of packages have a level, and are not taken for prints.
    logging.captureWarnings(True)
    root.setLevel(os.environ.get("FLINK_SKILLS_LOG_LEVEL", "INFO"))
    for chatty in ("httpx", "httpx2", "httpcore", "httpcore2", "openai", "anthropic", "asyncio", "fsspec", "botocore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    # It logs a traceback for each invalid message, with the message, and addresses with their secrets. The logger
    # flink_skills.mcp reports these errors.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)


_MAX_LENGTH = 65_536


class WholeLines(io.TextIOBase):
    """A text stream that writes a line to ``stream`` when it has its end.

    ``print`` writes each argument by itself. So a thread has its own unfinished line, of at most 65,536 characters.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._unfinished: dict[int, str] = {}

    def write(self, text: str) -> int:
        thread = threading.get_ident()
        with self._lock:
            lines, end, rest = (self._unfinished.pop(thread, "") + text).rpartition("\n")
            if len(rest) > _MAX_LENGTH:
                lines, end, rest = lines + end + rest, "\n", ""
            if rest:
                self._unfinished[thread] = rest
            if end:
                self._stream.write(lines + end)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def finish(self) -> None:
        """Write the lines without an end as well."""
        with self._lock:
            for line in self._unfinished.values():
                self._stream.write(line + "\n")
            self._unfinished.clear()
        self.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def __getattr__(self, name: str) -> Any:
        # Such as encoding and buffer.
        return getattr(self._stream, name)


_log = logging.getLogger("flink_skills.worker")

_GRACE_SECONDS = 0.5
_MAX = 10_000


def end_descendants() -> None:
    """End all descendants of this process: by SIGTERM, and after a grace by SIGKILL."""
    if sys.platform != "linux":
        return
    from flink_skills.execution.launcher.usage import tree_use

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


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop that waits for events in this process alone.

    A forked process that returns into the loop is a second worker: it has the same pipes, connections and epoll object,
    and what it removes from the epoll object is removed for both. So such a process gets a new, empty epoll
    object, and ends in the next round of its loop.
    """
    loop = uvloop.new_event_loop()
    os.register_at_fork(after_in_child=lambda: _end_soon(loop))
    return loop


def _end_soon(loop: uvloop.Loop) -> None:
    if loop.is_closed() or not loop.is_running():
        return
    if sys.platform == "linux":
        with select.epoll() as empty:
            os.dup2(empty.fileno(), loop._get_backend_id(), inheritable=False)  # type: ignore[attr-defined]
    loop.call_soon(_end)


def _end() -> None:
    logging.getLogger("flink_skills.worker").error(
        "a process that was forked from the worker came back into it and is ended: user code calls os.fork() "
        "and returns in the child; start programs with the module subprocess"
    )
    os._exit(1)
