"""The part of WebHDFS that a download needs, over files in memory: a name node that sends readers to a data node."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

_ROOT = "/webhdfs/v1"


class NameNode:
    """``files`` by absolute path; only ``user`` may read. ``links`` are listed as links and cannot be read."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.files: dict[str, tuple[bytes, int]] = {}
        self.links: set[str] = set()
        self.opened = 0
        node = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                address = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(address.query).items()}
                path = unquote(address.path).removeprefix(_ROOT)
                if address.path.startswith("/data"):
                    self._data(unquote(address.path).removeprefix("/data"), query)
                elif query.get("user.name") != node.user:
                    self._refuse(403, "AccessControlException", f"Permission denied: {query.get('user.name')}")
                elif query["op"] == "LISTSTATUS" and (found := node.statuses(path)):
                    self._answer(200, json.dumps({"FileStatuses": {"FileStatus": found}}).encode())
                elif path not in node.files:
                    self._refuse(404, "FileNotFoundException", f"File does not exist: {path}")
                elif query["op"] == "OPEN":
                    self.send_response(307)
                    self.send_header("Location", f"{node.url}/data{quote(path)}?{address.query}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                else:
                    data, changed = node.files[path]
                    status = {"length": len(data), "type": "FILE", "modificationTime": changed, "pathSuffix": ""}
                    self._answer(200, json.dumps({"FileStatus": status}).encode())

            def _data(self, path: str, query: dict[str, str]) -> None:
                node.opened += 1
                offset = int(query.get("offset", 0))
                length = int(query.get("length", len(node.files[path][0])))
                self._answer(200, node.files[path][0][offset : offset + length])

            def _refuse(self, status: int, kind: str, message: str) -> None:
                error = {"RemoteException": {"exception": kind, "javaClassName": kind, "message": message}}
                self._answer(status, json.dumps(error).encode())

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def statuses(self, folder: str) -> list[dict[str, Any]]:
        """Return the entries of the listing of ``folder``."""
        folder = folder.rstrip("/") + "/"
        found: dict[str, dict[str, Any]] = {}
        for path in (*self.files, *self.links):
            if path.startswith(folder):
                name, below, _ = path.removeprefix(folder).partition("/")
                data, changed = self.files.get(path, (b"", 0))
                kind = "DIRECTORY" if below else "SYMLINK" if path in self.links else "FILE"
                length = len(data) if kind == "FILE" else 0
                found[name] = {"pathSuffix": name, "type": kind, "length": length, "modificationTime": changed}
        return list(found.values())

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextlib.contextmanager
def name_node(user: str) -> Iterator[NameNode]:
    node = NameNode(user)
    try:
        yield node
    finally:
        node.close()
