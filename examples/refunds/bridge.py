"""The bridge between the page and the job: it serves the page, lists open questions, and writes answers.

    python -m examples.refunds.bridge --questions build/refunds/questions --answers build/refunds/decisions
    python -m examples.refunds.bridge --kafka BROKER:9092 --questions questions --answers decisions

GET /questions returns {"open": […], "ended": […]}. POST /answers with {"wait_id": …, "approved": true} answers one.
It listens on 127.0.0.1 only, and has no login: put it behind a proxy with one before others can reach it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

import typer

from examples.refunds.questions import AnswerError, Questions
from examples.refunds.records import Files, KafkaTopics, Records

__all__ = ["Bridge", "main"]

PAGE = Path(__file__).resolve().parent / "page"
_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_MOST_BYTES = 64 * 1024


class Bridge(ThreadingHTTPServer):
    """The server. Use it in a ``with`` block, and run ``serve_forever`` in a thread.

    Args:
        records: The source of questions and sink of answers.
        port: The port on 127.0.0.1. 0 means a free one.
    """

    daemon_threads = True

    def __init__(self, records: Records, port: int = 0) -> None:
        self.questions = Questions(records)
        super().__init__(("127.0.0.1", port), _Request)

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://127.0.0.1:{self.server_address[1]}/"


class _Request(BaseHTTPRequestHandler):
    server: Bridge
    server_version = "refunds-bridge"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        if not self._is_own_host():
            self._problem(HTTPStatus.FORBIDDEN, "the Host header is not that of this server")
        elif self.path in _FILES:
            name, kind = _FILES[self.path]
            self._send(HTTPStatus.OK, (PAGE / name).read_bytes(), kind)
        elif self.path == "/questions":
            self._handle(self.server.questions.all)
        else:
            self._problem(HTTPStatus.NOT_FOUND, f"there is no {self.path}")

    def do_POST(self) -> None:
        if self.path != "/answers":
            self._problem(HTTPStatus.NOT_FOUND, f"there is no {self.path}")
        elif not self._is_own_host() or self.headers.get("Origin", self._origin) != self._origin:
            self._problem(HTTPStatus.FORBIDDEN, "the request is from another origin")
        elif self.headers.get_content_type() != "application/json":
            self._problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body is not application/json")
        else:
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal() or int(length) > _MOST_BYTES:
                self._problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has no length up to {_MOST_BYTES} bytes")
                return
            body = self.rfile.read(int(length))
            self._handle(partial(self._answer, body))

    def _answer(self, body: bytes) -> dict[str, Any]:
        try:
            given = json.loads(body)
        except (ValueError, RecursionError):
            raise AnswerError("the body is not JSON") from None
        if not isinstance(given, dict):
            raise AnswerError("the body is not an object")
        self.server.questions.answer(given)
        return {"ok": True}

    def _handle(self, action: Callable[[], dict[str, Any]]) -> None:
        try:
            found = action()
        except AnswerError as error:
            self._problem(HTTPStatus.BAD_REQUEST, str(error))
        except OSError as error:
            self._problem(HTTPStatus.BAD_GATEWAY, str(error))
        else:
            self._send(HTTPStatus.OK, json.dumps(found).encode(), "application/json")

    @property
    def _origin(self) -> str:
        return f"http://{self.headers.get('Host', '')}"

    def _is_own_host(self) -> bool:
        """Return True if the request names this server. A name that an attacker resolves to 127.0.0.1 does not."""
        port = self.server.server_address[1]
        return self.headers.get("Host") in (f"127.0.0.1:{port}", f"localhost:{port}")

    def _problem(self, status: HTTPStatus, message: str) -> None:
        # The body was not read, so the connection cannot be used again.
        self.close_connection = True
        self._send(status, json.dumps({"error": message}).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": _POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing for each request."""


def main(
    questions: Annotated[str, typer.Option(help="Directory, or with --kafka the topic, of the questions.")],
    answers: Annotated[str, typer.Option(help="Directory, or with --kafka the topic, of the answers.")],
    kafka: Annotated[str, typer.Option(help="Address of a Kafka broker. Needs the package confluent-kafka.")] = "",
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")] = 8733,
) -> None:
    """Serve the page for people until Ctrl-C."""
    records = KafkaTopics(kafka, questions, answers) if kafka else Files(Path(questions), Path(answers))
    with Bridge(records, port) as bridge:
        sys.stderr.write(f"questions are at {bridge.url}\n")
        try:
            bridge.serve_forever()
        except KeyboardInterrupt:
            sys.stderr.write("the bridge has ended\n")


if __name__ == "__main__":
    typer.run(main)
