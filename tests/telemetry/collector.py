"""A collector that keeps the spans which it is sent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.kit.waiting import wait_until

DEADLINE = 60.0


@dataclass(frozen=True)
class Received:
    """A span as it came over the wire."""

    name: str
    trace: str
    span: str
    parent: str
    attributes: dict[str, Any]
    resource: dict[str, Any]


class Collector:
    """Takes OTLP over HTTP on a free port. ``status`` is what it answers."""

    def __init__(self, status: int = 200, reason: str = "") -> None:
        self.spans: list[Received] = []
        self.headers: list[dict[str, str]] = []
        self.status = status
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                if collector.status == 200:
                    collector.take(body)
                self.send_response(collector.status, reason or None)
                self.send_header("Content-Length", str(len(reason)))
                self.end_headers()
                self.wfile.write(reason.encode())

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: standard error is for what went wrong."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def take(self, body: bytes) -> None:
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _attributes(group.resource.attributes)
            for scope in group.scope_spans:
                for span in scope.spans:
                    ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
                    self.spans.append(Received(span.name, *ids, _attributes(span.attributes), resource))

    def wait_for(self, done: Callable[[list[Received]], Any]) -> None:
        """Until ``done`` is true of the spans; fails after the deadline."""
        wait_until(
            lambda: done(list(self.spans)),
            lambda: f"spans beyond {[span.name for span in self.spans]}",
            within=DEADLINE,
        )

    def __enter__(self) -> Collector:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def _attributes(given: Any) -> dict[str, Any]:
    return {of.key: _value(of.value) for of in given}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    found = getattr(value, kind) if kind else None
    return [_value(item) for item in found.values] if kind == "array_value" else found
