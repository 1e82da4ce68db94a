"""The process of a starter: it prepares, waits for an order and becomes the command. Runs after ``fork``."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
from collections.abc import Mapping
from typing import NoReturn

from flink_skills.execution.launcher import linux
from flink_skills.execution.launcher.command import become_command, report_failure
from flink_skills.execution.launcher.listener import load_filter_and_listen
from flink_skills.execution.launcher.namespaces import enter
from flink_skills.execution.launcher.orders import receive
from flink_skills.execution.launcher.protocol import HEADER, ORDER, Confinement, Order
from flink_skills.execution.launcher.restrictions import Restrictions, is_mediated

__all__ = ["KILLABLE", "wait_for_order"]

# A program inherits ignored signals. Python ignores two and the launcher handles the others. The zygote has reset those
# that its parents ignored.
_RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD)
_CONTROL = 3  # after standard input, output and error
_MAX_DESCRIPTORS = 4
# Messages that accompany the descriptor of the filter's listener.
KILLABLE, _INTERRUPTIBLE = b"k", b"i"


def wait_for_order(
    common: Confinement,
    namespaces: Mapping[str, int],
    restrictions: Restrictions,
    *,
    control: int,
    parent: int,
) -> NoReturn:
    """Prepare this process, wait for an order at the descriptor ``control``, and become its command.

    An error is written to ``control``. Runs after the fork of ``parent`` and never returns.
    """
    step = "detach"
    try:
        os.setsid()
        os.umask(0o077)
        linux.die_first_when_memory_is_short()
        if common.user is not None:
            step = f"become the user {common.user[0]}:{common.user[1]}"
            linux.switch_user(common.user)
        step = "drop privileges"
        linux.forbid_new_privileges()
        # After the user, because the kernel forgets it when the user changes.
        linux.die_with_parent(parent)
        if namespaces:
            step = "enter namespaces"
            enter(namespaces, control)
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL)
        if control != _CONTROL:
            control = os.dup2(control, _CONTROL, inheritable=False)
        linux.close_from(_CONTROL + 1)
        orders = socket.socket(fileno=control)  # stays open for what goes wrong later
        if common.filter:
            step = "filter system calls (seccomp)"
            _filter_calls(restrictions.filters[common.filter], orders if is_mediated(common.filter) else None)
        step = "receive an order"
        received = _receive(orders)
        if received is not None:
            order, descriptors = received
            ruleset = descriptors[3] if len(descriptors) > 3 else -1
            stdio = (descriptors[0], descriptors[1], descriptors[2])
            become_command(order, stdio, ruleset, control, restrictions)
    except BaseException as error:
        report_failure(control, step, error)
    finally:
        os._exit(127)


def _filter_calls(program: bytes, listening: socket.socket | None) -> None:
    """Filter the system calls of this process, and send the listener to the socket ``listening``."""
    if listening is None:
        linux.load_filter(program)
        return
    descriptor, killable = load_filter_and_listen(program)
    socket.send_fds(listening, [KILLABLE if killable else _INTERRUPTIBLE], [descriptor])
    os.close(descriptor)


def _receive(control: socket.socket) -> tuple[Order, list[int]] | None:
    """Wait for the order. Return None if the supervisor does not need this process."""
    header, descriptors, _, _ = socket.recv_fds(control, HEADER.size, _MAX_DESCRIPTORS)
    if not header:
        return None
    kind, size = HEADER.unpack(header)
    try:
        body = receive(control, size)
    except EOFError:
        return None
    # Out of the way of the first three.
    moved = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _CONTROL + 1) for number in descriptors]
    return (Order.decode(body), moved) if kind == ORDER else None
