"""A small web server for the tests of URL sources: serves bytes, counts requests, and can misbehave."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Page:
    """One answer. ``cut`` sends that many bytes of the announced body; ``hang`` waits for :meth:`Web.close`."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    hang: bool = False


class Web:
    """Serves ``pages`` (path -> Page, or a function of the request's number) on a free loopback port."""

    def __init__(self) -> None:
        self.pages: dict[str, Page | Callable[[int], Page]] = {}
        self.requests: list[tuple[str, str]] = []
        self.closing = threading.Event()
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(send_body=True)

            def do_HEAD(self) -> None:
                self._answer(send_body=False)

            def _answer(self, *, send_body: bool) -> None:
                web.requests.append((self.command, self.path))
                found: Any = web.pages.get(self.path.partition("?")[0], Page(status=404))
                page: Page = found(web.count("GET")) if callable(found) else found
                if page.hang:
                    web.closing.wait(30)
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

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def count(self, method: str) -> int:
        return sum(1 for seen, _ in self.requests if seen == method)

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
