"""A collector of OpenTelemetry spans that reads what it gets and keeps nothing."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["collector"]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.server.received += len(self.rfile.read(int(self.headers["Content-Length"])))  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def collector() -> Iterator[None]:
    """Spans of processes that are started inside go to it. Raises RuntimeError when none came."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.received = 0  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{server.server_port}"
    try:
        yield
        if not server.received:  # type: ignore[attr-defined]
            raise RuntimeError("no span reached the collector")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        del os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]
