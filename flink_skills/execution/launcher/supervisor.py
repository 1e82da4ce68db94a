"""The supervisor: runs commands sequentially, and leaves no process of a command behind.

It adopts orphans (``PR_SET_CHILD_SUBREAPER``), so that a daemon that left its session and its parent is
still a descendant when the command has ended, and is killed with the rest. It ends a command at its deadline,
when a limit is reached, and when the worker closes the control socket or dies.

It waits for the next order, because a fork of the zygote for each command would take longer than all that it does for
one. Only its own code runs in it, whatever the command is.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time

from flink_skills.execution.launcher import linux
from flink_skills.execution.launcher.namespaces import Namespaces, open_namespaces, view_of
from flink_skills.execution.launcher.process_tree import Reaped, drain, kill_children, signal_group, watch_children
from flink_skills.execution.launcher.protocol import STARTING, Order, Orders, Report, Restrictions
from flink_skills.execution.launcher.signal_broker import SignalBroker
from flink_skills.execution.launcher.starter import Starter, in_common, prepare_rules
from flink_skills.execution.launcher.usage import tasks_of_host
from flink_skills.execution.launcher.watch import TreeWatch

# The garbage collector is off in a supervisor.
_MAX_COMMANDS = 10_000
_TREE_ENDS_WITHIN_SECONDS = 10.0
_LIMIT_OF_SIGNAL: dict[int, str] = {signal.SIGXCPU: "cpu_time", signal.SIGXFSZ: "file_size"}


def supervise(control: socket.socket, restrictions: Restrictions) -> bool:
    """Read orders from ``control`` until its end, run each with its descriptors, and report.

    Orders can use any of ``restrictions``. Return True if no process of a command is left.
    """
    linux.become_subreaper()
    supervisor = _Supervisor(control, restrictions)
    for _ in range(_MAX_COMMANDS):
        if not supervisor.serve_one():
            break
    supervisor.leave(Reaped())
    return supervisor.is_in_order


class _Supervisor:
    """Supervisor with the namespaces in which its commands run, if any, and with a process for the next command.

    ``is_in_order`` is True if all processes of commands have ended.
    """

    def __init__(self, control: socket.socket, restrictions: Restrictions) -> None:
        self._control = control
        self._restrictions = restrictions
        self._orders = Orders(control)
        self._children_changed = watch_children()
        self._namespaces: Namespaces | None = None
        self._ready: Starter | None = None
        self.is_in_order = True

    def serve_one(self) -> bool:
        """Wait for an order, run its command and report. Return False if the supervisor has to end."""
        received = self._orders.next()
        drain(self._children_changed)
        if received is None:
            return False
        order, stdio = received
        if "RLIMIT_NPROC" in order.rlimits:
            # The kernel counts all tasks of the user on the node. This process cannot see those of other pods.
            order.rlimits["RLIMIT_NPROC"] += tasks_of_host()
        try:
            self._control.sendall(STARTING)
            self._control.sendall(self._run(order, stdio).encode())
        except OSError:
            return False  # the worker has ended
        if self.is_in_order:
            self._prepare_next(order)
        return self.is_in_order

    def leave(self, reaped: Reaped) -> None:
        """End the namespaces, if any, with all processes in them, and all other children."""
        ready, self._ready = self._ready, None
        if ready is not None:
            ready.close()
        if self._namespaces is not None:
            self._namespaces.close()
            self._namespaces = None
        self._kill_children(reaped)

    def _run(self, order: Order, stdio: list[int]) -> Report:
        reaped = Reaped()
        step = "set up namespaces (bubblewrap)"
        theirs = list(stdio)
        starter = None
        try:
            self._change_namespaces(order, reaped)
            step = "start a process"
            starter = self._take_starter(order, reaped)
            if not starter.pid:
                self.leave(reaped)
                return Report(error=starter.failure)
            step = "confine files (Landlock)"
            ruleset = prepare_rules(order, starter.pid, self._restrictions)
            if ruleset >= 0:
                theirs.append(ruleset)
            command = _Command(order, starter, self._orders, self._children_changed, self._namespaces)
            if order.full:
                # The command can remove files and write none.
                order.rlimits["RLIMIT_FSIZE"] = 0
            if order.confinement.user is not None:
                for descriptor in stdio[1:]:  # otherwise the command's user cannot open ``/dev/stderr``
                    os.fchown(descriptor, *order.confinement.user)
            starter.start(order, stdio, ruleset)
            while theirs:
                os.close(theirs.pop())
            command.watch(self._restrictions)
            # A whole group, because a program that forks without end is faster than one call for each process.
            signal_group(starter.pid, signal.SIGKILL)
            self._clean_up(command.reaped)
            return command.report()
        except OSError as error:
            self.leave(reaped)
            return Report(error=f"cannot {step}: {error}")
        finally:
            for descriptor in theirs:
                os.close(descriptor)
            if starter is not None:
                starter.close()

    def _change_namespaces(self, order: Order, reaped: Reaped) -> None:
        """Open the namespaces for ``order``, if it needs any and the present ones differ.

        Raises :class:`OSError` if they cannot be opened; then call :meth:`leave`.
        """
        operations, user = order.confinement.namespaces, order.confinement.user
        view = (user, *view_of(operations)) if operations else ()
        present = self._namespaces
        if present is not None and (present.view != view or not present.is_unchanged()):
            self.leave(reaped)
        if self._namespaces is None and view:
            program = self._restrictions.filters.get(order.confinement.filter, b"")
            worker = self._control.fileno()
            self._namespaces = open_namespaces(operations, view, user, worker, within=order.wall_time, program=program)

    def _take_starter(self, order: Order, reaped: Reaped) -> Starter:
        """Return a process that can become the command of ``order``: the one that is ready, if it can.

        Raises :class:`OSError` if none can be started.
        """
        ready, self._ready = self._ready, None
        if ready is not None:
            if ready.common == in_common(order.confinement) and ready.is_waiting():
                return ready
            ready.close()
            self._kill_children(reaped, spare_namespaces=True)
        return self._new_starter(order, reaped)

    def _prepare_next(self, last: Order) -> None:
        """Start a process for a command like the last one, if that has changed nothing in the namespaces."""
        if last.confinement.namespaces and self._namespaces is None:
            return
        try:
            self._ready = self._new_starter(last, Reaped())
        except OSError:
            self._ready = None  # the next command reports the reason

    def _new_starter(self, order: Order, reaped: Reaped) -> Starter:
        namespaces = self._namespaces.descriptors if self._namespaces is not None else {}
        return Starter(in_common(order.confinement), namespaces, self._restrictions, reaped)

    def _clean_up(self, reaped: Reaped) -> None:
        """End all processes of the command, and the namespaces if the command has changed them."""
        present = self._namespaces
        self._kill_children(reaped, spare_namespaces=True)
        if present is not None and (present.bubblewrap in reaped.statuses or not present.is_unchanged()):
            self.leave(reaped)

    def _kill_children(self, reaped: Reaped, *, spare_namespaces: bool = False) -> None:
        spare = {self._namespaces.bubblewrap} if spare_namespaces and self._namespaces is not None else ()
        deadline = time.monotonic() + _TREE_ENDS_WITHIN_SECONDS
        self.is_in_order = kill_children(reaped, self._children_changed, deadline, frozenset(spare))


class _Command:
    """The running command of ``order``. It runs in ``namespaces``, or with the file system of the host."""

    def __init__(
        self, order: Order, starter: Starter, orders: Orders, children_changed: int, namespaces: Namespaces | None
    ) -> None:
        self._order = order
        self._starter = starter
        self._orders = orders
        self._children_changed = children_changed
        self.reaped = Reaped()
        self._tree = TreeWatch(order, self.reaped, namespaces.cpu_time if namespaces is not None else None)
        self._timed_out = False
        self._is_terminating = False
        self._limit: str | None = None

    def watch(self, restrictions: Restrictions) -> None:
        """Return when the command has ended or has to be ended. Meanwhile a broker answers its calls, if needed."""
        poll = select.poll()
        poll.register(self._orders, select.POLLIN)
        poll.register(self._children_changed, select.POLLIN)
        broker = None
        if self._starter.listener is not None:
            broker = SignalBroker(self._starter.listener, restrictions.calls)
            poll.register(broker, select.POLLIN)
        ends_at = time.monotonic() + self._order.wall_time
        while not self._has_ended():
            wait = min(max(0.0, min(ends_at, self._tree.next_look) - time.monotonic()), linux.MAX_WAIT)
            ready = dict(poll.poll(wait * 1000 + 1))
            if broker is not None and broker.fileno() in ready:
                if ready[broker.fileno()] & select.POLLIN:
                    broker.answer()
                else:
                    poll.unregister(broker)  # no process has the filter any more
            now = time.monotonic()
            if self._orders.fileno() in ready:
                grace = self._orders.grace()
                if grace is None:
                    return  # the worker ends the command, or has ended
                ends_at = min(ends_at, now + grace)
                self._terminate()
            if self._children_changed in ready:
                drain(self._children_changed)
            if now >= ends_at:
                if self._is_terminating:
                    return
                self._timed_out = True
                ends_at = now + self._order.grace
                self._terminate()
            if now >= self._tree.next_look:
                limit = self._tree.look()
                if limit and limit != self._order.full:
                    self._limit = limit
                    return

    def _terminate(self) -> None:
        if not self._is_terminating:
            self._is_terminating = True
            signal_group(self._starter.pid, signal.SIGTERM)

    def _has_ended(self) -> bool:
        """Reap adopted children. Return True if the command has ended.

        The command itself is not reaped, so that its group keeps its number.
        """
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return False
            if ended.si_pid == self._starter.pid:
                return True
            self.reaped.reap(ended.si_pid)

    def report(self) -> Report:
        """Return the report, after the end of all processes of the command."""
        failure = self._starter.failure
        if failure:
            return Report(error=failure)
        status = self.reaped.statuses.get(self._starter.pid)
        code = os.waitstatus_to_exitcode(status) if status is not None else None
        found, full = self._tree.afterwards(failed=code != 0 and not self._timed_out)
        return Report(
            exit_code=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            timed_out=self._timed_out,
            limit=self._limit or found or (_LIMIT_OF_SIGNAL.get(-code) if code is not None else None),
            error="the command could not be ended" if code is None else None,
            cpu_time=self._tree.cpu_time,
            memory=self._tree.memory,
            full=full,
        )
