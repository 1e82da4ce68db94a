"""The supervisor: runs one command after the other, and leaves no process of one behind.

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
from flink_skills.execution.launcher.confinement import prepare_rules
from flink_skills.execution.launcher.ending import Buried, drain, signal_group
from flink_skills.execution.launcher.lodging import Lodging
from flink_skills.execution.launcher.orders import Orders, Stdio
from flink_skills.execution.launcher.protocol import STARTING, Order, Report
from flink_skills.execution.launcher.restrictions import Restrictions
from flink_skills.execution.launcher.rooms import Room
from flink_skills.execution.launcher.signals import SignalBroker
from flink_skills.execution.launcher.starter import Starter
from flink_skills.execution.launcher.tree import tasks_of_machine
from flink_skills.execution.launcher.watch import TreeWatch

__all__ = ["supervise"]

_LIMIT_OF_SIGNAL: dict[int, str] = {signal.SIGXCPU: "cpu_time", signal.SIGXFSZ: "file_size"}
# The garbage collector is off in a supervisor.
_MOST_COMMANDS = 10_000


def supervise(control: socket.socket, restrictions: Restrictions) -> bool:
    """Read orders from ``control`` until its end, run each with its descriptors, and report.

    ``restrictions`` are those that orders may ask for. Return True if no process of a command is left.
    """
    linux.become_subreaper()
    children_changed = linux.watch_children()
    orders = Orders(control)
    lodging = Lodging(control.fileno(), children_changed, restrictions)
    for _ in range(_MOST_COMMANDS):
        received = orders.next()
        drain(children_changed)
        if received is None:
            break
        order, stdio = received
        if "RLIMIT_NPROC" in order.rlimits:
            # The kernel counts all tasks of the user on the node. This process cannot see those of other pods.
            order.rlimits["RLIMIT_NPROC"] += tasks_of_machine()
        try:
            control.sendall(STARTING)
            control.sendall(_run(order, stdio, orders, lodging).encode())
        except OSError:
            break  # the worker has ended
        if not lodging.is_in_order:
            break
        lodging.get_ready()
    lodging.leave(Buried())
    return lodging.is_in_order


def _run(order: Order, stdio: Stdio, orders: Orders, lodging: Lodging) -> Report:
    buried = Buried()
    step = "set up namespaces (bubblewrap)"
    theirs = list(stdio)
    starter = None
    try:
        room = lodging.move(order, buried)
        step = "start a process"
        starter = lodging.starter(order, buried)
        if not starter.pid:
            lodging.leave(buried)
            return Report(error=starter.failure)
        step = "confine files (Landlock)"
        ruleset = prepare_rules(order, starter.pid, lodging.restrictions)
        if ruleset >= 0:
            theirs.append(ruleset)
        command = _Command(order, orders, lodging, room)
        if order.full:
            # Room can be made but not taken: the command may remove files and write none.
            order.rlimits["RLIMIT_FSIZE"] = 0
        if order.confinement.user is not None:
            _hand_over(stdio[1:], order.confinement.user)
        starter.start(order, stdio, ruleset)
        while theirs:
            os.close(theirs.pop())
        return command.run(starter)
    except OSError as error:
        lodging.leave(buried)
        return Report(error=f"cannot {step}: {error}")
    finally:
        for descriptor in theirs:
            os.close(descriptor)
        if starter is not None:
            starter.close()


class _Command:
    def __init__(self, order: Order, orders: Orders, lodging: Lodging, room: Room | None) -> None:
        self._order = order
        self._orders = orders
        self._lodging = lodging
        self._buried = Buried()
        self._tree = TreeWatch(order, self._buried, room.cpu_time if room is not None else None)
        self._main = 0
        self._timed_out = False
        self._asked_to_end = False
        self._limit: str | None = None

    def run(self, starter: Starter) -> Report:
        """Watch the command that ``starter`` becomes, and end all of it."""
        self._main = starter.pid
        calls = self._lodging.restrictions.calls
        self._watch(SignalBroker(starter.listener, calls) if starter.listener is not None else None)
        # A whole group, because something that forks without end is faster than one call for each process.
        signal_group(self._main, signal.SIGKILL)
        self._lodging.tidy(self._buried)
        return self._report(self._buried.statuses.get(self._main), starter.failure)

    def _watch(self, broker: SignalBroker | None) -> None:
        """Return when the command has ended or has to be ended. Meanwhile ``broker`` answers its calls."""
        poll = select.poll()
        poll.register(self._orders, select.POLLIN)
        poll.register(self._lodging.children_changed, select.POLLIN)
        if broker is not None:
            poll.register(broker, select.POLLIN)
        ends_at = time.monotonic() + self._order.wall_time
        while not self._main_has_ended():
            wait = min(max(0.0, min(ends_at, self._tree.next_look) - time.monotonic()), linux.LONGEST_WAIT)
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
                    return  # the worker says stop, or is gone
                ends_at = min(ends_at, now + grace)
                self._ask_to_end()
            if self._lodging.children_changed in ready:
                drain(self._lodging.children_changed)
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
            signal_group(self._main, signal.SIGTERM)

    def _main_has_ended(self) -> bool:
        """Bury adopted children; leave the command itself unburied, so that its group keeps its number."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while True:
            ended = os.waitid(os.P_ALL, 0, options)
            if ended is None:
                return False
            if ended.si_pid == self._main:
                return True
            self._buried.bury(ended.si_pid)

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


def _hand_over(pipes: tuple[int, ...], user: tuple[int, int]) -> None:
    """Give the pipes of stdout and stderr to the command's user, who else could not open ``/dev/stderr``."""
    for descriptor in pipes:
        os.fchown(descriptor, *user)
