"""The supervisor's end of its control socket."""

from __future__ import annotations

import os
import socket

from flink_skills.execution.launcher.protocol import GRACE, HEADER, ORDER, Order

__all__ = ["Orders", "Stdio", "receive"]

Stdio = tuple[int, int, int]

_STDIO = 3


def receive(control: socket.socket, size: int) -> bytes:
    """Return the next ``size`` bytes. Raises :class:`EOFError` if they end before."""
    parts = bytearray()
    while len(parts) < size:
        chunk = control.recv(min(1 << 20, size - len(parts)))
        if not chunk:
            raise EOFError
        parts += chunk
    return bytes(parts)


class Orders:
    """Receives the orders of a worker from the socket ``control``, and what it says while one is carried out."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control

    def fileno(self) -> int:
        return self._control.fileno()

    def next(self) -> tuple[Order, Stdio] | None:
        """Wait for the next order and return it with its descriptors.

        Return None if there is none to come, or if this process has no room for its descriptors.
        """
        try:
            while True:
                kind, number, received = self._header()
                if kind == ORDER:
                    break
                # A grace for a command that had ended before the worker knew of it.
        except (EOFError, OSError):
            return None
        try:
            body = receive(self._control, number)
        except (EOFError, OSError):
            body = b""
        if not body or len(received) != _STDIO:
            for descriptor in received:
                os.close(descriptor)
            return None
        return Order.decode(body), (received[0], received[1], received[2])

    def grace(self) -> float | None:
        """Return the seconds that the worker leaves the running command to end by itself.

        Return None if the command is to end now.
        """
        try:
            kind, number, received = self._header()
        except (EOFError, OSError):
            return None
        for descriptor in received:
            os.close(descriptor)
        return number / 1000 if kind == GRACE else None

    def _header(self) -> tuple[bytes, int, list[int]]:
        data, received, _, _ = socket.recv_fds(self._control, HEADER.size, _STDIO)
        if not data:
            raise EOFError
        if len(data) < HEADER.size:
            data += receive(self._control, HEADER.size - len(data))
        kind, number = HEADER.unpack(data)
        return kind, number, received
