"""A web site of the tests on loopback, raw enough to lie: each path has a function that writes to the connection."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

Handler = Callable[["Visit"], Awaitable[None]]


class Visit:
    """One request, and ways to answer it."""

    def __init__(self, target: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        self.target = target
        self.path = urlsplit(target).path
        self.query = {name: values[-1] for name, values in parse_qs(urlsplit(target).query).items()}
        self.headers = headers
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, status: str = "200 OK", **headers: str) -> None:
        lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
        await self.send("\r\n".join([*lines, "Connection: close", "", ""]).encode())

    async def reply(self, body: bytes, kind: str = "text/html", status: str = "200 OK", **headers: str) -> None:
        more = {"Content_Type": kind} if kind else {}
        await self.head(status, **{**more, "Content_Length": str(len(body)), **headers})
        await self.send(body)


class Site:
    """``pages``: from a path to its function. ``visits`` has every request."""

    def __init__(self) -> None:
        self.pages: dict[str, Handler] = {}
        self.visits: list[Visit] = []
        self.closed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, context: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self.closed.set()
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def drip(self, visit: Visit, byte: bytes) -> None:
        """Send ``byte`` every 20 ms until the site is closed."""
        while not self.closed.is_set():
            await visit.send(byte)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.closed.wait(), 0.02)

    def at(self, path: str = "/", host: str = "www.example.org", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def page(
        self, path: str, body: bytes | str, kind: str = "text/html", status: str = "200 OK", **headers: str
    ) -> None:
        data = body.encode() if isinstance(body, str) else body

        async def answer(visit: Visit) -> None:
            await visit.reply(data, kind, status, **headers)

        self.pages[path] = answer

    def moved(self, path: str, target: str, status: str = "302 Found") -> None:
        self.page(path, b"", status=status, Location=target)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
            visit = Visit(first.split()[1], headers, writer)
            self.visits.append(visit)
            handler = self.pages.get(visit.path)
            await (handler(visit) if handler else visit.reply(b"not here", status="404 Not Found"))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()


class Names:
    """A resolver under the test's control. ``answers``: lists of addresses, of which the last stays."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Sequence[str]]] = {}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        answers = self.answers.get(host, [["127.0.0.1"]])
        return answers.pop(0) if len(answers) > 1 else answers[0]


def write_certificate(folder: Path, name: str) -> Path:
    """Return a file with a key, and its certificate for a name."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "certificate.pem"
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return file
