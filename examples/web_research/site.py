"""Stands for the web: a search engine with the interface of SearXNG, and two pages."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GUIDE = """<!doctype html><html><head><title>Choosing a window</title><script>track()</script></head><body>
<p>Use a <b>session window</b> where events come in bursts: it ends after a gap.</p>
<p>See also <a href="http://router.example.net/admin">this page</a>.</p></body></html>"""


@contextmanager
def serve() -> Iterator[int]:
    """The port of the server, which ends with the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            port = self.server.server_address[1]
            if self.path.startswith("/search?"):
                found = {"title": "Choosing a window", "content": "Tumbling, sliding, <b>session</b>."}
                body = json.dumps({"results": [{**found, "url": f"http://docs.example.org:{port}/windows"}]})
                self._answer(body, "application/json")
            elif self.path == "/windows":
                self._answer(GUIDE, "text/html; charset=utf-8")
            else:
                self._answer("There is no such page.", "text/plain", status=404)

        def _answer(self, text: str, kind: str, status: int = 200) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Nothing: the table of the example is what there is to see."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


async def names(host: str, port: int) -> Sequence[str]:
    """The addresses of the example's names. A job needs nothing of this: the tool asks the system."""
    return ["127.0.0.1"] if host == "docs.example.org" else []
