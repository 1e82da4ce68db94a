"""Ports of loopback for servers that cannot choose one by themselves."""

from __future__ import annotations

import socket

__all__ = ["free_port", "free_ports", "listens"]

_reserved: list[socket.socket] = []


def free_ports(count: int) -> list[int]:
    """Return different ports that nothing listens on, and reserve them for as long as this process runs.

    A bound socket reserves its port: the kernel gives the port to no socket that lets it choose one. SO_REUSEADDR on
    both sockets lets a server bind the port by its number. Servers set the option by default.
    """
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        each.bind(("127.0.0.1", 0))
    _reserved.extend(sockets)
    return [each.getsockname()[1] for each in sockets]


def free_port() -> int:
    """Return a port that nothing listens on, and reserve it."""
    [port] = free_ports(1)
    return port


def listens(port: int) -> bool:
    """Return True if a server listens on ``port``."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
