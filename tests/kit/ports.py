"""Ports of loopback for servers that cannot choose one by themselves."""

from __future__ import annotations

import contextlib
import socket

__all__ = ["free_port", "free_ports", "listens"]


def free_ports(count: int) -> list[int]:
    """Different ports that nothing listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def free_port() -> int:
    """A port that nothing listens on now."""
    [port] = free_ports(1)
    return port


def listens(port: int) -> bool:
    """Return True if a server listens on ``port``."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
