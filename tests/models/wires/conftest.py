from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest


@dataclass
class RawServer:
    """Answers each request with the bytes that ``answer`` returns for its head and body, and closes the connection."""

    port: int
    requests: list[tuple[str, bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@pytest.fixture
async def raw_server() -> AsyncIterator[Callable[..., object]]:
    """Start servers with ``await raw_server(lambda head, body: b"HTTP/1.1 …")``. The fixture stops them."""
    servers: list[asyncio.Server] = []

    async def start(answer: Callable[[str, bytes], bytes]) -> RawServer:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lengths = [line[15:] for line in head.splitlines() if line.lower().startswith("content-length:")]
            length = int(lengths[0]) if lengths else 0
            body = await reader.readexactly(length)
            found.requests.append((head, body))
            writer.write(answer(head, body))
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        servers.append(server)
        found = RawServer(server.sockets[0].getsockname()[1])
        return found

    yield start
    for server in servers:
        server.close()
