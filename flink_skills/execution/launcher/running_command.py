"""One command that runs: the supervisor watches it, and ends all of it."""

from __future__ import annotations

import os
import select
import signal
import time

from flink_skills.execution.launcher import linux
from flink_skills.execution.launcher.ending import Buried, drain, signal_group
from flink_skills.execution.launcher.lodging import Lodging
from flink_skills.execution.launcher.orders import Orders
from flink_skills.execution.launcher.protocol import Order, Report
from flink_skills.execution.launcher.rooms import Room
from flink_skills.execution.launcher.signals import SignalBroker
from flink_skills.execution.launcher.starter import Starter
from flink_skills.execution.launcher.watch import TreeWatch

__all__ = ["RunningCommand"]

_LIMIT_OF_SIGNAL: dict[int, str] = {signal.SIGXCPU: "cpu_time", signal.SIGXFSZ: "file_size"}


class RunningCommand:
    """The command of ``order`` in ``room``. None as the room means the file system of the host."""

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
        """Watch the command that ``starter`` becomes, end all of it, and return the report."""
        self._main = starter.pid
        calls = self._lodging.restrictions.calls
        self._watch(SignalBroker(starter.listener, calls) if starter.listener is not None else None)
        # A whole group, because something that forks without end is faster than one call for each process.
        signal_group(self._main, signal.SIGKILL)
        self._lodging.tidy(self._buried)
        return self._report(self._buried.statuses.get(self._main), starter)

    def _watch(self, broker: SignalBroker | None) -> None:
        """Return when the command has ended or has to be ended. Meanwhile ``broker`` answers its calls."""
        poll = select.poll()
        poll.register(self._orders, select.POLLIN)
        poll.register(self._lodging.children_changed, select.POLLIN)
        if broker is not None:
            poll.register(broker, select.POLLIN)
        ends_at = time.monotonic() + self._order.wall_time
        while not self._main_has_ended():
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
        """Bury adopted children. Return True if the command has ended.

        The command itself stays unburied, so that its group keeps its number.
        """
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while True:
            ended = os.waitid(os.P_ALL, 0, options)
            if ended is None:
                return False
            if ended.si_pid == self._main:
                return True
            self._buried.bury(ended.si_pid)

    def _report(self, status: int | None, starter: Starter) -> Report:
        failure = starter.failure
        if failure:
            return Report(error=failure)
        code = os.waitstatus_to_exitcode(status) if status is not None else None
        failed = code != 0 and not self._timed_out
        found, full = self._tree.afterwards(failed=failed)
        limit = self._limit
        limit = limit or found
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
