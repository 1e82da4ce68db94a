"""A process that becomes a command when it receives the order.

It does at once what is the same for all orders: it is forked, becomes the command's user, enters namespaces and filters
system calls. A supervisor has one ready while it waits, so that the next command does not wait for this.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
from collections.abc import Mapping
from typing import NoReturn

from flink_skills.execution.launcher import linux
from flink_skills.execution.launcher.command import become_command, report_failure
from flink_skills.execution.launcher.ending import Buried
from flink_skills.execution.launcher.listener import Listener, load_filter_and_listen
from flink_skills.execution.launcher.namespaces import enter
from flink_skills.execution.launcher.orders import receive
from flink_skills.execution.launcher.protocol import HEADER, ORDER, Confinement, Order
from flink_skills.execution.launcher.restrictions import Restrictions, is_mediated

__all__ = ["Starter", "in_common"]

# A program inherits ignored signals. Python ignores two and the launcher handles the others. The zygote has reset those
# that its parents ignored.
_RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD)
_CONTROL = 3  # after standard input, output and error
_MOST_DESCRIPTORS = 4
_KILLABLE, _INTERRUPTIBLE = b"k", b"i"  # come with the descriptor that listens to the filter


def in_common(confinement: Confinement) -> Confinement:
    """Return what a confinement has in common with those of other commands of the same worker."""
    return confinement._replace(read=(), write=(), namespaces=())


class Starter:
    """A starter for the supervisor. It has the confinement ``common``, and runs in ``namespaces`` if given.

    ``pid`` is the process id, 0 if it could not enter the namespaces. ``listener`` receives the calls that a mediated
    filter does not execute. It is open when the command starts, and None without such a filter. Raises
    :class:`OSError` if no process can be started. ``buried`` accounts for what was needed meanwhile.
    """

    def __init__(
        self, common: Confinement, namespaces: Mapping[str, int], restrictions: Restrictions, buried: Buried
    ) -> None:
        self.common = common
        self.listener: Listener | None = None
        self._failure = b""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        parent = os.getpid()
        try:
            pid = os.fork()
            if pid == 0:
                _wait_for_order(common, namespaces, restrictions, theirs.fileno(), parent)
        except OSError:
            self._socket.close()
            raise
        finally:
            theirs.close()
        self.pid = self._follow(pid, buried) if namespaces else pid

    @property
    def failure(self) -> str:
        """The error before the start of the command's program. Empty without an error."""
        found = self._failure
        while self._has_said_something():
            try:
                chunk = self._socket.recv(4096)
            except OSError:
                break
            if not chunk:
                break
            found += chunk
        return found.decode("utf-8", "replace")

    def is_waiting(self) -> bool:
        """Return True if the process waits for an order: it lives, and has nothing to say."""
        if self._has_said_something() and self.listener is None and is_mediated(self.common.filter):
            self._receive_listener()
        return self.pid != 0 and not self._failure and not self._has_said_something()

    def start(self, order: Order, stdio: tuple[int, int, int], ruleset: int) -> None:
        """Have the process become the command of ``order``. If it cannot, :attr:`failure` says why."""
        body = order._replace(confinement=self.common).encode()
        descriptors = [*stdio, *((ruleset,) if ruleset >= 0 else ())]
        try:
            socket.send_fds(self._socket, [body[: HEADER.size]], descriptors)
            self._socket.sendall(body[HEADER.size :])
            if self.listener is None and is_mediated(self.common.filter):
                self._receive_listener()
        except OSError:
            return  # it has ended, as the caller will find

    def close(self) -> None:
        """Let go of the process. It ends if it still waits."""
        self._socket.close()
        if self.listener is not None:
            self.listener.close()
            self.listener = None

    def _has_said_something(self) -> bool:
        return bool(select.select([self._socket], [], [], 0)[0])

    def _receive_listener(self) -> None:
        """Receive the listener, or the error before it."""
        said, descriptors, _, _ = socket.recv_fds(self._socket, 4096, 1)
        if descriptors:
            self.listener = Listener(descriptors[0], killable=said[:1] == _KILLABLE)
            said = said[1:]
        self._failure += said

    def _follow(self, pid: int, buried: Buried) -> int:
        """Return the id of the process inside, which the one that is forked first leaves behind."""
        said = self._socket.recv(4096)
        buried.bury(pid)
        number, _, self._failure = said.partition(b"\n")
        if number.isdigit():
            return int(number)
        self._failure = said or b"cannot enter namespaces: the process was killed"
        return 0


def _wait_for_order(
    common: Confinement, namespaces: Mapping[str, int], restrictions: Restrictions, control: int, parent: int
) -> NoReturn:
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
    socket.send_fds(listening, [_KILLABLE if killable else _INTERRUPTIBLE], [descriptor])
    os.close(descriptor)


def _receive(control: socket.socket) -> tuple[Order, list[int]] | None:
    """Wait for the order. Return None if the supervisor does not need this process."""
    header, descriptors, _, _ = socket.recv_fds(control, HEADER.size, _MOST_DESCRIPTORS)
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
