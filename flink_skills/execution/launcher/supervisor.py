"""The supervisor: runs one command after the other, and leaves no process of one behind.

It adopts orphans (``PR_SET_CHILD_SUBREAPER``), so that a daemon that left its session and its parent is
still a descendant when the command has ended, and is killed with the rest. It ends a command at its deadline,
when a limit is reached, and when the worker closes the control socket or dies.

It waits for the next order, because a fork of the zygote for each command would take longer than all that it does for
one. Only its own code runs in it, whatever the command is.
"""

from __future__ import annotations

import os
import socket

from flink_skills.execution.launcher import linux
from flink_skills.execution.launcher.confinement import prepare_rules
from flink_skills.execution.launcher.ending import Buried, drain
from flink_skills.execution.launcher.lodging import Lodging
from flink_skills.execution.launcher.orders import Orders, Stdio
from flink_skills.execution.launcher.protocol import STARTING, Order, Report
from flink_skills.execution.launcher.restrictions import Restrictions
from flink_skills.execution.launcher.running_command import RunningCommand
from flink_skills.execution.launcher.tree import tasks_of_machine

__all__ = ["supervise"]

# The garbage collector is off in a supervisor.
_MAX_COMMANDS = 10_000


def supervise(control: socket.socket, restrictions: Restrictions) -> bool:
    """Read orders from ``control`` until its end, run each with its descriptors, and report.

    ``restrictions`` are those that orders may ask for. Return True if no process of a command is left.
    """
    linux.become_subreaper()
    children_changed = linux.watch_children()
    orders = Orders(control)
    lodging = Lodging(control.fileno(), children_changed, restrictions)
    for _ in range(_MAX_COMMANDS):
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
        command = RunningCommand(order, orders, lodging, room)
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


def _hand_over(pipes: tuple[int, ...], user: tuple[int, int]) -> None:
    """Give the pipes of stdout and stderr to the command's user, who else could not open ``/dev/stderr``."""
    for descriptor in pipes:
        os.fchown(descriptor, *user)
