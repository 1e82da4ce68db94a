"""An HTTP proxy that counts requests, and refuses those that a plan names."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

#: What is done with a request, by its number from 1: None to pass it on, a status to answer with, or "drop", "hang".
Plan = Callable[[int], Any]


class Troublesome:
    """``requests`` has the methods of what came."""

    def __init__(self, upstream: str) -> None:
        self.plan: Plan = lambda number: None
        self.requests: list[str] = []
        self.over = threading.Event()
        self._upstream = urlsplit(upstream)
        trouble = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                trouble.requests.append(self.command)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.close_connection = True
                todo = trouble.plan(len(trouble.requests))
                if todo == "hang":
                    trouble.over.wait(30)
                elif isinstance(todo, int):
                    self.send_response(todo)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                elif todo is None:
                    trouble.forward(self, body)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def forward(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        connection = http.client.HTTPConnection(self._upstream.hostname or "", self._upstream.port, timeout=30)
        with contextlib.closing(connection):
            headers = {name: value for name, value in request.headers.items() if name.lower() != "expect"}
            connection.request(request.command, request.path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
            request.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                    request.send_header(name, value)
            length = answer.getheader("Content-Length") if request.command == "HEAD" else str(len(data))
            request.send_header("Content-Length", length or "0")
            request.end_headers()
            request.wfile.write(data)

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)


@contextlib.contextmanager
def troublesome(upstream: str) -> Iterator[Troublesome]:
    proxy = Troublesome(upstream)
    try:
        yield proxy
    finally:
        proxy.close()
