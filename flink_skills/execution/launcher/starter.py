"""A process that becomes a command when it receives the order.

It prepares what is the same for all orders: it is forked, becomes the command's user, enters namespaces and filters
system calls. A supervisor has one ready while it waits, so that the next command does not wait for this.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Mapping

from flink_skills.execution.launcher.ending import Buried
from flink_skills.execution.launcher.listener import Listener
from flink_skills.execution.launcher.protocol import HEADER, Confinement, Order
from flink_skills.execution.launcher.restrictions import Restrictions, is_mediated
from flink_skills.execution.launcher.waiting import KILLABLE, wait_for_order

__all__ = ["Starter", "in_common"]


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
        self,
        common: Confinement,
        namespaces: Mapping[str, int],
        restrictions: Restrictions,
        buried: Buried,
    ) -> None:
        self.common = common
        self.listener: Listener | None = None
        self._failure = b""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        parent = os.getpid()
        try:
            pid = os.fork()
            if pid == 0:
                wait_for_order(common, namespaces, restrictions, control=theirs.fileno(), parent=parent)
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
            self.listener = Listener(descriptors[0], killable=said[:1] == KILLABLE)
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
