"""The bridge between the page and the job: it serves the page, lists open questions, and writes answers.

    python -m examples.refunds.bridge --questions build/refunds/questions --answers build/refunds/decisions
    python -m examples.refunds.bridge --kafka BROKER:9092 --questions questions --answers decisions --errors failures

GET /questions returns {"open": […], "ended": […], …}. POST /answers with {"wait_id": …, "approved": true} answers one.
It listens on 127.0.0.1 only, and has no login: put it behind a proxy with one before others can reach it.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib
import json
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

import typer

from examples.refunds.arguments import read_json
from examples.refunds.questions import AnswerError, Questions
from examples.refunds.records import DecidedError, Files, KafkaTopics, Records
from flink_skills.tools import FunctionTool

__all__ = ["PAGE_HEADER", "Bridge", "main", "schemas_of"]

#: The header with the token of the page. A request with an Origin of the page does not need it.
PAGE_HEADER = "X-Bridge-Token"
PAGE = Path(__file__).resolve().parent / "page"
_SCRIPT = "text/javascript; charset=utf-8"
_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    **{f"/{name}": (name, _SCRIPT) for name in ("page.js", "card.js", "field.js", "text.js")},
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_MAX_BYTES = 64 * 1024


class Bridge(ThreadingHTTPServer):
    """The server. Use it in a ``with`` block, and run ``serve_forever`` in a thread.

    Args:
        records: The source of questions and sink of answers.
        port: The port on 127.0.0.1. 0 means a free one.
        schemas: JSON schemas of the arguments of tools, by the tool's name.
        job: Returns the state of the job, ``starting``, ``running``, ``ended`` or ``failed``, and details for people.
            None: the bridge does not know the job.
        origins: Origins of proxies, such as ``https://approvals.example.com``.
        user_header: The header in which a proxy passes the name of the person. Empty: the person writes it.
    """

    daemon_threads = True

    def __init__(
        self,
        records: Records,
        port: int = 0,
        *,
        schemas: Mapping[str, Mapping[str, Any]] | None = None,
        job: Callable[[], tuple[str, str]] | None = None,
        origins: Sequence[str] = (),
        user_header: str = "",
    ) -> None:
        self.questions = Questions(records, schemas)
        self.job = job
        self.user_header = user_header
        #: The token of the page. Each start of the bridge has another one.
        self.token = secrets.token_urlsafe(32)
        #: The last state of the job that a page has received, and when: a time of ``time.monotonic``.
        self.shown: tuple[str, float] = ("", 0.0)
        super().__init__(("127.0.0.1", port), _Request)
        local = [f"http://{name}:{self.server_address[1]}" for name in ("127.0.0.1", "localhost")]
        self.origins = frozenset([*local, *(origin.rstrip("/") for origin in origins)])
        self.hosts = frozenset(origin.partition("://")[2] for origin in self.origins)

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def page_state(self) -> dict[str, Any]:
        """Return what the page shows: the questions, and the state of the job."""
        state, detail = ("unknown", "") if self.job is None else self.job()
        return {**self.questions.all(), "job": {"state": state, "detail": detail}, "asks_name": not self.user_header}


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
            content = (PAGE / name).read_bytes()
            if self.path == "/":
                content = content.replace(b"TOKEN_OF_THE_PAGE", self.server.token.encode())
            self._send(HTTPStatus.OK, content, kind)
        elif self.path == "/questions":
            self._handle(self.server.page_state)
        else:
            self._problem(HTTPStatus.NOT_FOUND, f"there is no {self.path}")

    def do_POST(self) -> None:
        if self.path != "/answers":
            self._problem(HTTPStatus.NOT_FOUND, f"there is no {self.path}")
        elif foreign := self._foreign():
            self._problem(HTTPStatus.FORBIDDEN, foreign)
        elif self.headers.get_content_type() != "application/json":
            self._problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body is not application/json")
        else:
            length = self.headers.get("Content-Length", "")
            if not (length.isascii() and length.isdecimal()) or int(length[:9]) > _MAX_BYTES:
                self._problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has no length up to {_MAX_BYTES} bytes")
                return
            body = self.rfile.read(int(length))
            self._handle(partial(self._answer, body))

    def _answer(self, body: bytes) -> dict[str, Any]:
        try:
            given = read_json(body)
        except ValueError as error:
            raise AnswerError(f"the body is not JSON: {error}") from None
        if not isinstance(given, dict):
            raise AnswerError("the body is not an object")
        if self.server.user_header:
            given["by"] = self._user()
        self.server.questions.answer(given)
        return {"ok": True}

    def _handle(self, action: Callable[[], dict[str, Any]]) -> None:
        try:
            found = action()
        except AnswerError as error:
            self._problem(HTTPStatus.BAD_REQUEST, str(error), error.fields)
        except DecidedError as error:
            self._problem(HTTPStatus.CONFLICT, str(error))
        except OSError as error:
            self._problem(HTTPStatus.BAD_GATEWAY, str(error))
        else:
            body = json.dumps(found).encode()
            tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            # Usually a poll finds no news.
            is_same = self.command == "GET" and self.headers.get("If-None-Match") == tag
            status = HTTPStatus.NOT_MODIFIED if is_same else HTTPStatus.OK
            self._send(status, b"" if is_same else body, "application/json", ETag=tag)
            if "job" in found:
                self.server.shown = (found["job"]["state"], time.monotonic())

    def _foreign(self) -> str:
        """Return why the request is not from the page. Return an empty text if it is."""
        origins = self.headers.get_all("Origin", [])
        if not self._is_own_host() or any(origin not in self.server.origins for origin in origins):
            return "the request is from another origin: use the page of this bridge"
        if self.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
            return "the request is from another origin: use the page of this bridge"
        tokens = self.headers.get_all(PAGE_HEADER, [])
        if any(not hmac.compare_digest(token.encode(), self.server.token.encode()) for token in tokens):
            return f"the token in {PAGE_HEADER} is not that of this bridge: load the page again"
        if len(origins) != 1 and not tokens:
            return f"the request has neither an Origin nor the page's token in {PAGE_HEADER}: use the page"
        return ""

    def _user(self) -> str:
        """Return the name that the proxy passes. What the page sends as a name is ignored: it has no field for it."""
        names = self.headers.get_all(self.server.user_header, [])
        if len(names) != 1 or not names[0].strip():
            raise AnswerError(f"the proxy passes no name in {self.server.user_header}: log in there")
        return str(names[0]).strip()

    def _is_own_host(self) -> bool:
        """Return True if the request names this server. A name that an attacker resolves to 127.0.0.1 does not."""
        hosts = self.headers.get_all("Host", [])
        return len(hosts) == 1 and hosts[0].lower() in self.server.hosts

    def _problem(self, status: HTTPStatus, message: str, fields: Mapping[str, str] | None = None) -> None:
        # The body was not read, so the connection cannot be used again.
        self.close_connection = True
        body = {"error": message, **({"fields": fields} if fields else {})}
        self._send(status, json.dumps(body).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str, **more: str) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": _POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
            **more,
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing for each request."""


def schemas_of(agent: str) -> dict[str, dict[str, Any]]:
    """Return the schemas of the tools that need approval and are methods of the agent, by name.

    Args:
        agent: The class, for example ``examples.refunds.agent:Refunds``.

    Raises:
        typer.BadParameter: There is no such class.
    """
    module, _, name = agent.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise typer.BadParameter(f"cannot read the agent {agent}: {error}. Write MODULE:CLASS") from error
    methods = {name: getattr(found, name, None) for name in found.approve_tools}
    return {name: dict(FunctionTool(method).spec.parameters) for name, method in methods.items() if callable(method)}


def main(
    questions: Annotated[str, typer.Option(help="Directory, or with --kafka the topic, of the questions.")],
    answers: Annotated[str, typer.Option(help="Directory, or with --kafka the topic, of the answers.")],
    *,
    errors: Annotated[str, typer.Option(help="Directory, or with --kafka the topic, of the error records.")] = "",
    kafka: Annotated[str, typer.Option(help="Address of a Kafka broker. Needs the package confluent-kafka.")] = "",
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")] = 8733,
    agent: Annotated[str, typer.Option(help="MODULE:CLASS of the agent, for the types of arguments.")] = "",
    user_header: Annotated[str, typer.Option(help="Header in which a proxy passes the person's name.")] = "",
    origin: Annotated[list[str] | None, typer.Option(help="Origin of a proxy, as https://HOST. Repeatable.")] = None,
) -> None:
    """Serve the page for people until Ctrl-C."""
    records: Records
    if kafka:
        records = KafkaTopics(kafka, questions, answers, errors or None)
    else:
        records = Files(Path(questions), Path(answers), Path(errors) if errors else None)
    schemas = schemas_of(agent) if agent else None
    with Bridge(records, port, schemas=schemas, origins=origin or (), user_header=user_header) as bridge:
        sys.stderr.write(f"questions are at {bridge.url}\n")
        if not errors:
            sys.stderr.write("without --errors the page does not show why the job rejects an answer\n")
        try:
            bridge.serve_forever()
        except KeyboardInterrupt:
            sys.stderr.write("the bridge has ended\n")


if __name__ == "__main__":
    typer.run(main)
