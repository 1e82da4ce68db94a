"""A registry that serves one image slowly."""

from __future__ import annotations

import contextlib
import hashlib
import tarfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

__all__ = ["slow_registry"]

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_BLOB = "application/octet-stream"
_CHUNK = 1 << 20


@contextlib.contextmanager
def slow_registry(archive: Path, seconds: float) -> Iterator[str]:
    """Serve an OCI archive on loopback, and yield the name of its image.

    Args:
        archive: Path of the OCI archive, with one image.
        seconds: Time until the tag is resolved. A node may have all content already and only ask for the tag.
    """
    with tarfile.open(archive) as tar:
        blobs = {
            (f"sha256:{member.name.removeprefix('blobs/sha256/')}" if "/" in member.name else member.name): member
            for member in tar.getmembers()
            if member.isfile()
        }

        index = tar.extractfile("index.json")
        assert index is not None
        blobs[f"sha256:{hashlib.sha256(index.read()).hexdigest()}"] = blobs["index.json"]

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                time.sleep(seconds)
                self._send(body=False)

            def do_GET(self) -> None:
                self._send(body=True)

            def _send(self, *, body: bool) -> None:
                _, _, rest = self.path.partition("/v2/")
                kind, _, name = rest.rpartition("/")
                member = blobs.get("index.json" if kind.endswith("manifests") and name == "1" else name)
                if not rest:
                    self._head(200, 0, "application/json")
                elif member is None:
                    self._head(404, 0, "application/json")
                else:
                    manifest = kind.endswith("manifests")
                    kind = _INDEX if member.name == "index.json" else _MANIFEST if manifest else _BLOB
                    self._head(200, member.size, kind)
                    if body:
                        self.wfile.flush()
                        with tarfile.open(archive) as own, contextlib.suppress(BrokenPipeError, ConnectionResetError):
                            found = own.extractfile(member)
                            assert found is not None
                            while chunk := found.read(_CHUNK):
                                self.wfile.write(chunk)

            def _head(self, status: int, size: int, kind: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(size))
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield f"127.0.0.1:{server.server_address[1]}/sandbox:1"
            finally:
                server.shutdown()
