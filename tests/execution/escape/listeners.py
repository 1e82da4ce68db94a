"""Servers that commands may not reach, and what they heard."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Listeners"]

_MPTCP = 262


class Listeners:
    """Sockets of all kinds below ``folder`` and on loopback.

    Nothing serves them: a connection waits in the queue of its listener, and data in the buffer, until looked at.
    """

    def __init__(self, folder: Path, uid: int, address: str) -> None:
        self.ports: dict[str, int] = {}
        self.paths: dict[str, str] = {}
        self._selector = selectors.DefaultSelector()
        for name in ("tcp4", "fast", "lazy"):
            self._internet(name, socket.AF_INET, "127.0.0.1")
        self._internet("udp", socket.AF_INET, "127.0.0.1", socket.SOCK_DGRAM)
        self._internet("dns", socket.AF_INET, "127.0.0.1", socket.SOCK_DGRAM)
        self._internet("own", socket.AF_INET, address or "127.0.0.1")
        for name, host in (("tcp6", "::1"), ("mapped", "::ffff:127.0.0.1")):
            with self._unless_missing(name):
                self._internet(name, socket.AF_INET6, host)
        with self._unless_missing("mptcp"):
            self._internet("mptcp", socket.AF_INET, "127.0.0.1", protocol=_MPTCP)
        for name, kind in (
            ("unix", socket.SOCK_STREAM),
            ("docker", socket.SOCK_STREAM),
            ("java", socket.SOCK_STREAM),
            ("datagram", socket.SOCK_DGRAM),
            ("datagram2", socket.SOCK_DGRAM),
        ):
            path = folder / f"{name}.sock"
            self._local(name, str(path), kind)
            path.chmod(0o666)
        for name, kind in (("abstract", socket.SOCK_STREAM), ("abstract2", socket.SOCK_DGRAM)):
            self._local(name, f"\0{folder.name}-{name}-{os.getpid()}", kind)

    def heard(self) -> set[str]:
        """The names of those that were contacted since they were last asked."""
        names = set()
        while ready := self._selector.select(0):
            for key, _ in ready:
                names.add(key.data)
                server = key.fileobj
                assert isinstance(server, socket.socket)
                with contextlib.suppress(OSError):
                    if server.type == socket.SOCK_STREAM:
                        server.accept()[0].close()
                    else:
                        server.recv(1024)
        return names

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    @contextlib.contextmanager
    def _unless_missing(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError:
            self.ports[name] = 9  # nobody is there; the facts of the machine say so

    def _internet(self, name: str, family: int, host: str, kind: int = socket.SOCK_STREAM, protocol: int = 0) -> None:
        server = socket.socket(family, kind, protocol)
        try:
            server.bind((host, 0))
        except OSError:
            server.close()
            raise
        self.ports[name] = server.getsockname()[1]
        self._add(name, server)

    def _local(self, name: str, path: str, kind: int) -> None:
        server = socket.socket(socket.AF_UNIX, kind)
        server.bind(path)
        self.paths[name] = path
        self._add(name, server)

    def _add(self, name: str, server: socket.socket) -> None:
        if server.type == socket.SOCK_STREAM:
            server.listen(8)
        server.setblocking(False)
        self._selector.register(server, selectors.EVENT_READ, name)
