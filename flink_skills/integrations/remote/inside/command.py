"""Runs one command under the launcher's supervisor, with its output capped, and says how it ended."""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import time
from collections.abc import Mapping
from typing import Any

from flink_skills.execution.launcher import linux
from flink_skills.execution.launcher.protocol import HEADER, Order, Report, Restrictions, read_report
from flink_skills.execution.launcher.supervisor import supervise
from flink_skills.integrations.remote.inside.output import HeadAndTail, Output

_GRACE_SECONDS = 0.5
# All writers are dead when the report comes; only a pipe that a command passed to a stranger stays open.
_OUTPUT_ENDS_WITHIN_SECONDS = 1.0
_READ = 65_536

Ended = tuple[Report, Output, Output]


def order_of(command: Mapping[str, Any], env: dict[str, str], cwd: str, counted: tuple[str, ...]) -> Order:
    """The supervisor's order for a command with its limits, which are named as in ``Limits``."""
    limits = command["limits"]
    processors = os.cpu_count() or 1
    # What all processors can do within the time: for a process that escapes the clock only.
    processor_time = math.ceil(limits["cpu_time"]) or math.ceil(limits["wall_time"] * processors) + 1
    rlimits = {
        "RLIMIT_FSIZE": limits["file_size"],
        "RLIMIT_NOFILE": limits["open_files"],
        "RLIMIT_CPU": processor_time,
    }
    return Order(
        argv=list(command["argv"]),
        cwd=cwd,
        env=env,
        wall_time=limits["wall_time"],
        grace=_GRACE_SECONDS,
        rlimits={**{name: value for name, value in rlimits.items() if value > 0}, "RLIMIT_CORE": 0},
        cpu_time=limits["cpu_time"],
        memory=limits["memory"],
        processes=limits["processes"],
        file_size=limits["file_size"],
        workspace_bytes=limits["workspace_bytes"] if counted else 0,
        workspace_files=limits["workspace_files"] if counted else 0,
        counted=counted,
        full=command["full"],
    )


def run_order(order: Order, stdin: bytes, output: int) -> Ended:
    """Run to the end. SIGTERM to this process ends the command at once.

    Must be called in a process of its own: it takes over the signals.
    """
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    stop, stop_writer = os.pipe()
    os.set_blocking(stop_writer, False)
    stdin_reader, stdin_writer = os.pipe()
    out, out_writer = os.pipe()
    err, err_writer = os.pipe()
    if os.fork() == 0:
        try:
            for mine in (stop, stop_writer, stdin_writer, stdin_reader, out, out_writer, err, err_writer):
                os.close(mine)
            control.close()
            linux.reset_signals()
            linux.drop_capabilities()
            supervise(theirs, Restrictions({}, None))
        finally:
            os._exit(0)
    theirs.close()
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    signal.set_wakeup_fd(stop_writer, warn_on_full_buffer=False)
    body = order.encode()
    socket.send_fds(control, [body[: HEADER.size]], [stdin_reader, out_writer, err_writer])
    for sent in (stdin_reader, out_writer, err_writer):
        os.close(sent)
    control.sendall(body[HEADER.size :])
    return _Conversation(control, stop, (stdin_writer, stdin), (out, err), output).run()


class _Conversation:
    def __init__(
        self, control: socket.socket, stop: int, stdin: tuple[int, bytes], streams: tuple[int, int], output: int
    ) -> None:
        self._control = control
        self._stop = stop
        self._stdin_writer = stdin[0]
        self._stdin = memoryview(stdin[1])
        self._streams = {descriptor: HeadAndTail(output) for descriptor in streams}
        self._kept = list(self._streams.values())
        self._received = bytearray()
        self._ended: Report | None = None
        self._ends_at = math.inf
        self._poll = select.poll()

    def run(self) -> Ended:
        os.set_blocking(self._stdin_writer, False)
        for descriptor in (self._control.fileno(), self._stop, *self._streams):
            self._poll.register(descriptor, select.POLLIN)
        self._poll.register(self._stdin_writer, select.POLLOUT)
        while self._ends_at == math.inf or (self._streams and time.monotonic() < self._ends_at):
            wait = None if self._ends_at == math.inf else (self._ends_at - time.monotonic()) * 1000 + 1
            for descriptor, _ in self._poll.poll(wait):
                self._on_ready(descriptor)
        return self._report(), self._kept[0].kept(), self._kept[1].kept()

    def _on_ready(self, descriptor: int) -> None:
        if descriptor == self._control.fileno():
            self._on_control()
        elif descriptor == self._stop:
            self._poll.unregister(descriptor)
            self._control.shutdown(socket.SHUT_WR)
        elif descriptor == self._stdin_writer:
            self._feed()
        elif chunk := os.read(descriptor, _READ):
            self._streams[descriptor].add(chunk)
        else:
            self._poll.unregister(descriptor)
            del self._streams[descriptor]

    def _on_control(self) -> None:
        try:
            chunk = self._control.recv(_READ)
        except ConnectionError:
            chunk = b""
        self._received += chunk
        self._ended = read_report(self._received)
        if not chunk or self._ended is not None:
            self._poll.unregister(self._control.fileno())
            self._ends_at = time.monotonic() + _OUTPUT_ENDS_WITHIN_SECONDS

    def _feed(self) -> None:
        try:
            self._stdin = (
                self._stdin[os.write(self._stdin_writer, self._stdin[:_READ]) :] if self._stdin else self._stdin
            )
        except BlockingIOError:
            return
        except OSError:
            self._stdin = self._stdin[:0]  # the command reads no further
        if not self._stdin:
            self._poll.unregister(self._stdin_writer)
            os.close(self._stdin_writer)

    def _report(self) -> Report:
        if self._ended is None:
            return Report(error="the process that watched the command was killed, and the command with it")
        return self._ended
