"""A small web server for the tests of URL sources: serves bytes, counts requests, and can misbehave."""

from __future__ import annotations

import io
import socket
import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SKILL = b"---\nname: greet\ndescription: Says hello.\n---\nHi\n"
ALLOWED = {"skills.source.allow-http": True, "skills.source.allow-private": True}


@dataclass
class Page:
    """One answer. ``cut`` sends that many bytes of the announced body; ``hang`` waits for :meth:`Web.close`;
    ``gate`` is waited for first."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    hang: bool = False
    gate: threading.Event | None = None


class Web:
    """Serves ``pages`` (path -> Page, or a function of the request's number) on a free loopback port.

    ``seen`` has the headers of each request, names in lower case. ``refuses`` returns a status and a text for requests
    that get no page.
    """

    def __init__(self, host: str = "127.0.0.1", refuses: Callable[[Any], tuple[int, str] | None] | None = None) -> None:
        self.host = host
        self.pages: dict[str, Page | Callable[[int], Page]] = {}
        self.requests: list[tuple[str, str]] = []
        self.seen: list[dict[str, str]] = []
        self.closing = threading.Event()
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(send_body=True)

            def do_HEAD(self) -> None:
                self._answer(send_body=False)

            def _answer(self, *, send_body: bool) -> None:
                web.requests.append((self.command, self.path))
                web.seen.append({name.lower(): value for name, value in self.headers.items()})
                if refuses and (refusal := refuses(self)):
                    self.send_error(*refusal)
                    return
                found: Any = web.pages.get(self.path.partition("?")[0], Page(status=404))
                page: Page = found(web.count("GET")) if callable(found) else found
                if page.gate:
                    page.gate.wait(60)
                if page.hang:
                    web.closing.wait(300)
                    return
                self.send_response(page.status)
                for name, value in page.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(page.body)))
                self.end_headers()
                if send_body:
                    self.wfile.write(page.body[: page.cut])
                self.close_connection = True

            def log_message(self, *_: Any) -> None:
                """Silent."""

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True

        self._server = Server((host, 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return self.url_as(f"[{self.host}]" if ":" in self.host else self.host)

    def url_as(self, host: str) -> str:
        """The server under another name of the same address."""
        return f"http://{host}:{self.port}"

    def count(self, method: str) -> int:
        return sum(1 for seen, _ in self.requests if seen == method)

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def zip_bytes(entries: dict[str, bytes] | None = None) -> bytes:
    """A zip, the same bytes for the same entries."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in (entries or {"skills/greet/SKILL.md": SKILL}).items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return buffer.getvalue()


def zip_of(folder: Path) -> bytes:
    """A zip of a folder, with the folder's name at its top."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return zip_bytes({file.relative_to(folder.parent).as_posix(): file.read_bytes() for file in files})
