"""The supervisor: runs one command, and leaves no process of it behind.

It adopts orphans (``PR_SET_CHILD_SUBREAPER``), so that a daemon that left its session and its parent is
still a descendant when the command has ended, and is killed with the rest. It ends a command at its deadline,
when a limit is reached, and when the worker closes the control socket or dies.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time

from flink_skills.execution.launcher import linux
from flink_skills.execution.launcher.command import Filters, become_command
from flink_skills.execution.launcher.protocol import GRACE, LENGTH, STARTING, Order, Report
from flink_skills.execution.launcher.tree import tasks_of_machine
from flink_skills.execution.launcher.watch import TreeWatch

__all__ = ["end_children", "supervise"]

_ORDER_WITHIN_SECONDS = 30.0
_TREE_ENDS_WITHIN_SECONDS = 10.0
_LIMIT_OF_SIGNAL: dict[int, str] = {signal.SIGXCPU: "cpu_time", signal.SIGXFSZ: "file_size"}


def supervise(control: socket.socket, stdio: tuple[int, int, int], filters: Filters) -> None:
    """Read an order from ``control``, run it with the descriptors ``stdio``, and report.

    ``filters`` are those that orders may ask for by name.
    """
    linux.become_subreaper()
    children_changed = linux.watch_children()
    order = _receive_order(control)
    if order is None:
        return
    if "RLIMIT_NPROC" in order.rlimits:
        # The kernel counts all tasks of the user on the node. This process cannot see those of other pods.
        order.rlimits["RLIMIT_NPROC"] += tasks_of_machine()
    try:
        control.sendall(STARTING)
        report = _Supervisor(order, control, children_changed, filters).run(stdio)
        control.sendall(report.encode())
        # The worker waits for the end of file: not until all of this process has been taken apart.
        control.shutdown(socket.SHUT_WR)
    except OSError:
        return  # the worker has gone, and nobody is left to tell


def _receive_order(control: socket.socket) -> Order | None:
    control.settimeout(_ORDER_WITHIN_SECONDS)
    try:
        header = _receive(control, LENGTH.size)
        return Order.decode(_receive(control, LENGTH.unpack(header)[0]))
    except (EOFError, OSError):
        return None
    finally:
        control.settimeout(None)


def _receive(control: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        chunk = control.recv(min(1 << 20, size - len(parts)))
        if not chunk:
            raise EOFError
        parts += chunk
    return bytes(parts)


class _Supervisor:
    def __init__(self, order: Order, control: socket.socket, children_changed: int, filters: Filters) -> None:
        self._order = order
        self._control = control
        self._children_changed = children_changed
        self._filters = filters
        self._tree = TreeWatch(order)
        self._main = 0
        self._timed_out = False
        self._asked_to_end = False
        self._limit: str | None = None

    def run(self, stdio: tuple[int, int, int]) -> Report:
        if self._order.full:
            # Room can be made but not taken: the command may remove files and write none.
            self._order.rlimits["RLIMIT_FSIZE"] = 0
        if self._order.confinement.user is not None:
            _hand_over(stdio[1:], self._order.confinement.user)
        failure, failure_writer = os.pipe()
        parent = os.getpid()
        try:
            self._main = os.fork()
        except OSError as error:
            return Report(error=f"cannot start a process: {error}")
        if self._main == 0:
            become_command(self._order, stdio, failure_writer, parent, self._filters)
        os.close(failure_writer)
        for descriptor in stdio:
            os.close(descriptor)
        self._watch()
        # Its children as well: where it stands for a command in namespaces, that is one of them and leads another
        # group. Whole groups, because something that forks without end is faster than one call for each process.
        for pid in (*linux.child_ids(self._main), self._main):
            _signal_group(pid, signal.SIGKILL)
        statuses = end_children(self._children_changed, time.monotonic() + _TREE_ENDS_WITHIN_SECONDS)
        return self._report(statuses.get(self._main), _read_failure(failure))

    def _watch(self) -> None:
        """Return when the command has ended or has to be ended."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._children_changed, select.POLLIN)
        ends_at = time.monotonic() + self._order.wall_time
        while not self._main_has_ended():
            wait = max(0.0, min(ends_at, self._tree.next_look) - time.monotonic())
            ready = {descriptor for descriptor, _ in poll.poll(wait * 1000 + 1)}
            now = time.monotonic()
            if self._control.fileno() in ready:
                grace = _grace(self._control)
                if grace is None:
                    return  # the worker says stop, or is gone
                ends_at = min(ends_at, now + grace)
                self._ask_to_end()
            if self._children_changed in ready:
                _drain(self._children_changed)
            if now >= ends_at:
                if self._asked_to_end:
                    return
                self._timed_out = True
                ends_at = now + self._order.grace
                self._ask_to_end()
            if now >= self._tree.next_look:
                limit = self._tree.look()
                if limit and limit != self._order.full:
                    self._limit = limit
                    return

    def _ask_to_end(self) -> None:
        if not self._asked_to_end:
            self._asked_to_end = True
            _signal_group(self._main, signal.SIGTERM)

    def _main_has_ended(self) -> bool:
        """Bury adopted children; leave the command itself unburied, so that its group keeps its number."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while True:
            ended = os.waitid(os.P_ALL, 0, options)
            if ended is None:
                return False
            if ended.si_pid == self._main:
                return True
            os.waitpid(ended.si_pid, 0)

    def _report(self, status: int | None, failure: str) -> Report:
        if failure:
            return Report(error=failure)
        code = os.waitstatus_to_exitcode(status) if status is not None else None
        found, full = self._tree.afterwards(failed=code != 0 and not self._timed_out)
        limit = self._limit or found
        if limit is None and code is not None:
            limit = _LIMIT_OF_SIGNAL.get(-code)
        return Report(
            exit_code=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            timed_out=self._timed_out,
            limit=limit,
            error="the command could not be ended" if code is None else None,
            cpu_time=self._tree.cpu_time,
            memory=self._tree.memory,
            full=full,
        )


def _grace(control: socket.socket) -> float | None:
    """The seconds that the worker leaves the command to end by itself; None if it is to end at once."""
    try:
        message = control.recv(GRACE.size)
    except OSError:
        return None
    return float(GRACE.unpack(message)[0]) / 1000 if len(message) == GRACE.size else None


def _hand_over(pipes: tuple[int, ...], user: tuple[int, int]) -> None:
    """Give the pipes of stdout and stderr to the command's user, who else could not open ``/dev/stderr``."""
    for descriptor in pipes:
        os.fchown(descriptor, *user)


def end_children(children_changed: int, deadline: float, spare: frozenset[int] = frozenset()) -> dict[int, int]:
    """Kill children until none is left, with those that their deaths hand over to this process.

    Returns the wait status of each that ended, by process id. ``deadline`` is a time of the monotonic clock,
    for processes that even SIGKILL does not end because they hang in the kernel. ``spare`` are left alone.
    """
    statuses: dict[int, int] = {}
    while True:
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                statuses[pid] = status
        except ChildProcessError:
            return statuses
        living = [pid for pid in linux.child_ids(os.getpid()) if pid not in spare]
        if time.monotonic() > deadline or (spare and not living):
            return statuses
        for pid in living:
            _signal_group(pid, signal.SIGKILL)  # one call takes a whole group, forks in progress included
            _signal(pid, signal.SIGKILL)
        select.select([children_changed], [], [], 0.01)
        _drain(children_changed)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # ended already; the caller looks again


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # not the leader of a group


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            continue
    except BlockingIOError:
        return


def _read_failure(descriptor: int) -> str:
    os.set_blocking(descriptor, False)
    try:
        return os.read(descriptor, 4096).decode("utf-8", "replace")
    except BlockingIOError:
        return ""  # killed before its program started
    finally:
        os.close(descriptor)
