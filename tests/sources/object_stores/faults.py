"""A TCP proxy that lets the network misbehave in front of any HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

Kind = Literal["pass", "cut", "status", "hang", "hang-in-body", "reset", "slow", "garbage"]

_PIECE = 1 << 10


@dataclass(frozen=True)
class Fault:
    """What happens to one request.

    ``after``: bytes of the body that come before it is cut, hangs or is reset. ``pause``: seconds between the pieces
    of a slow body.
    """

    kind: Kind = "pass"
    status: int = 503
    after: int = 0
    pause: float = 0.0


class FaultyProxy:
    """Forwards to ``upstream``, each request on a connection of its own, as ``plan`` says for its number (from 1).

    ``requests`` has the method and path of each, ``heads`` all that came before its body. Only requests that
    ``faulty`` admits count for the plan.
    """

    def __init__(self, upstream: str) -> None:
        address = urlsplit(upstream)
        self._upstream = (address.hostname or "", address.port or 80)
        self.plan: Callable[[int], Fault] = lambda number: Fault()
        self.faulty: Callable[[str], bool] = lambda method: True
        self.requests: list[tuple[str, str]] = []
        self.heads: list[bytes] = []
        self._counted = 0
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop)
        self._server = started.result(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def count(self, method: str = "") -> int:
        return sum(1 for seen, _ in self.requests if method in ("", seen))

    def open_connections(self) -> int:
        return len(self._tasks)

    def reset_counts(self) -> None:
        self.requests.clear()
        self.heads.clear()
        self._counted = 0

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._answer(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, path = head.split(b" ", 2)[:2]
        self.requests.append((method.decode(), path.decode()))
        self.heads.append(head)
        fault = Fault()
        if self.faulty(method.decode()):
            self._counted += 1
            fault = self.plan(self._counted)
        if fault.kind == "hang":
            await reader.read()  # until the client gives up
        elif fault.kind == "reset" and not fault.after:
            _reset(writer)
        elif fault.kind == "garbage":
            writer.write(b"\x16\x03\x01\x02\x00SSH-2.0-nobody\r\n\r\n")
            await writer.drain()
        elif fault.kind == "status":
            text = f"HTTP/1.1 {fault.status} Fault\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            writer.write(text.encode())
            await writer.drain()
        else:
            await self._forward(head, reader, writer, fault)

    async def _forward(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Fault
    ) -> None:
        server_reader, server_writer = await asyncio.open_connection(*self._upstream)
        try:
            server_writer.write(_one_request(head))
            up = asyncio.ensure_future(_copy(reader, server_writer))
            try:
                await self._down(server_reader, reader, writer, fault)
            finally:
                up.cancel()
                await asyncio.gather(up, return_exceptions=True)
        finally:
            server_writer.close()

    async def _down(
        self, answer: asyncio.StreamReader, client: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Fault
    ) -> None:
        writer.write(_one_request(await answer.readuntil(b"\r\n\r\n")))
        await writer.drain()
        sent = 0
        while piece := await answer.read(_PIECE if fault.kind == "slow" else 1 << 16):
            if fault.kind in ("cut", "hang-in-body", "reset") and sent + len(piece) > fault.after:
                writer.write(piece[: fault.after - sent])
                await writer.drain()
                if fault.kind == "hang-in-body":
                    await asyncio.Event().wait()
                elif fault.kind == "reset":
                    _reset(writer)
                return
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
            if fault.kind == "slow":
                await asyncio.sleep(fault.pause)


def _one_request(head: bytes) -> bytes:
    """A head that ends the connection after its message, so that each request is seen."""
    lines = [line for line in head.split(b"\r\n") if line and not line.lower().startswith(b"connection:")]
    return b"\r\n".join([*lines, b"Connection: close", b"", b""])


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close so that the other side gets a reset and no end of file."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@contextlib.contextmanager
def faulty_proxy(upstream: str) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(upstream)
    try:
        yield proxy
    finally:
        proxy.close()
