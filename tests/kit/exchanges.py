"""A server of recorded answers, for providers whose wire the scripted model server does not speak."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Exchanges", "exchanges", "serving"]


class Exchanges:
    """The address of the server, and the requests that it received.

    Args:
        answers: The JSON bodies of the answers, in order. A list is a stream of events, and a tuple a status with its
            body. The last answer is repeated.
    """

    def __init__(self, answers: Sequence[Any]) -> None:
        self.url = ""
        self.requests: list[Any] = []
        #: The headers, with names in lower case, and the bodies of the requests.
        self.heads: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self._answers = list(answers)

    def take(self, head: Mapping[str, str], body: bytes) -> tuple[int, str, bytes]:
        """Record a request, and return the status, the type and the body of its answer."""
        self.requests.append(json.loads(body))
        self.heads.append({name.lower(): value for name, value in head.items()})
        self.bodies.append(body)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        status, answer = answer if isinstance(answer, tuple) else (200, answer)
        if isinstance(answer, list):
            events = [*map(json.dumps, answer), "[DONE]"]
            return status, "text/event-stream", "".join(f"data: {event}\n\n" for event in events).encode()
        return status, "application/json", json.dumps(answer).encode()


@contextmanager
def exchanges(*answers: Any) -> Iterator[Exchanges]:
    """Answer each POST, of whatever path, with the next of ``answers``."""
    found = Exchanges(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, kind, content = found.take(dict(self.headers), body)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with serving(Handler) as found.url:
        yield found


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Yield the address of a server on loopback. It closes when its threads have ended."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
