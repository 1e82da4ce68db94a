"""Servers of skills that break the rules of HTTP: the source is an error in time, and nothing of it is stored."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flink_skills.errors import SourceError
from flink_skills.options import SkillConfig
from flink_skills.sources import SourceContext, open_source
from tests.sources.web import ALLOWED, zip_bytes

pytestmark = pytest.mark.usefixtures("no_waits")

Answer = Callable[[], Iterator[bytes]]
OK = b"HTTP/1.1 200 OK\r\n"
SKILLS = zip_bytes()


class RawServer:
    """Sends ``answer`` to each request, byte by byte as it is, until the client has gone."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/s.zip"

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(5)
                    connection.recv(65_536)
                    for data in self._answer():
                        connection.sendall(data)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


def fields() -> Iterator[bytes]:
    """Yield header fields without end."""
    return (b"X-%d: %s\r\n" % (number, b"a" * 4_000) for number in itertools.count())


def once(*parts: bytes) -> Answer:
    return lambda: iter(parts)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        pytest.param(lambda: itertools.chain([OK], fields()), "is not valid HTTP", id="endless header"),
        pytest.param(
            lambda: itertools.chain([OK, b"Transfer-Encoding: chunked\r\n\r\n0\r\n"], fields()),
            "is not valid HTTP",
            id="endless trailer",
        ),
        pytest.param(
            lambda: itertools.repeat(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1_000), "within 2 s", id="endless hints"
        ),
        pytest.param(
            lambda: itertools.chain([OK, b"Transfer-Encoding: chunked\r\n\r\n1;"], itertools.repeat(b"a" * 65_536)),
            "within 2 s",
            id="endless extension of a chunk",
        ),
        pytest.param(once(OK, b"Content-Length: 999999\r\n\r\n", SKILLS), "transfer failed", id="too long"),
        pytest.param(
            once(OK, b"Content-Length: 20\r\n\r\n", SKILLS),
            "is not valid HTTP|zip archive is incomplete|transfer failed",
            id="too short",
        ),
        pytest.param(
            once(OK, b"Content-Length: 20\r\nContent-Length: %d\r\n\r\n" % len(SKILLS), SKILLS),
            "is not valid HTTP",
            id="two lengths",
        ),
        pytest.param(once(OK, b"Content-Length: -5\r\n\r\n", SKILLS), "is not valid HTTP", id="negative length"),
        pytest.param(
            once(b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-19/20\r\n\r\n", SKILLS[:20]),
            "the server returned 206",
            id="part",
        ),
        pytest.param(
            once(b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n'), "the server returned 304", id="not modified"
        ),
        pytest.param(once(b"\0\xff" * 50_000), "is not valid HTTP", id="garbage"),
        pytest.param(
            once(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n"),
            "redirects to an address that is not allowed",
            id="redirect to a file",
        ),
        pytest.param(
            once(b"HTTP/1.1 302 Found\r\nLocation: //[::ffff:169.254.169.254]/\r\nContent-Length: 0\r\n\r\n"),
            "redirects to an address that is not allowed",
            id="redirect to metadata",
        ),
    ],
)
def test_an_answer_that_breaks_the_rules_is_an_error(tmp_path: Path, answer: Answer, told: str) -> None:
    server = RawServer(answer)
    store = tmp_path / "store"
    config = SkillConfig({**ALLOWED, "skills.source.timeout": "2 s"})
    try:
        with pytest.raises(SourceError, match=told):
            open_source("url", server.url, SourceContext(config, store_dir=str(store))).resolve()
    finally:
        server.close()
    assert [path for path in store.iterdir() if not path.name.startswith(".")] == []
    assert list((store / ".work").glob("*")) == []
