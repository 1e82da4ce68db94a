"""The connections of one model to the host of its base URL."""

from __future__ import annotations

import functools
import hashlib
import os
import ssl
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from flink_skills.endpoint import redact
from flink_skills.errors import ModelError
from flink_skills.models.circuit import Admission, Circuit
from flink_skills.models.error_bodies import AnswerError
from flink_skills.models.messages import ModelRequest
from flink_skills.models.wires.json_bytes import decoded

_CONNECT_SECONDS = 10.0
_MAX_ANSWER = 16 << 20
_MAX_ERROR = 256 << 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Connection:
    """Sends requests to one address over kept connections.

    It binds ``headers``, which contain the key, to the address: it does not follow redirects. Proxies and certificate
    authorities come from the environment (``HTTPS_PROXY``, ``NO_PROXY``, ``SSL_CERT_FILE``, ``SSL_CERT_DIR``).

    Args:
        address: The whole URL.
        headers: The headers of each request.
        max_connections: The maximum number of connections. More requests wait.
    """

    def __init__(self, address: str, headers: Mapping[str, str], *, max_connections: int) -> None:
        self.address = address
        self._url = URL(address)
        #: Headers of each request.
        self.headers: CIMultiDict[str] = CIMultiDict(headers)
        self._max_connections = max_connections
        self._proxy = _proxy_of(address)
        self._session: aiohttp.ClientSession | None = None
        self._timeouts: dict[float | None, aiohttp.ClientTimeout] = {}

    @asynccontextmanager
    async def opened(
        self, body: bytes, timeout: float | None, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request, and have its answer to read.

        Raises:
            AnswerError: The answer has the status of an error or of a redirect.
            aiohttp.ClientError: The connection failed.
            TimeoutError: There was no whole answer within ``timeout`` seconds.
        """
        session = self._session or self._open()
        async with session.post(
            self._url,
            data=body,
            headers=self.headers if not headers else CIMultiDict({**self.headers, **headers}),
            timeout=self._timeouts.get(timeout) or self._timeout(timeout),
            allow_redirects=False,
            proxy=self._proxy,
        ) as answer:
            if not 200 <= answer.status < 300:
                raise await _error(answer)
            yield answer

    async def close(self) -> None:
        """Close the connections. A later request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self) -> aiohttp.ClientSession:
        trusted = [os.environ.get(name, "") for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")]
        connector = aiohttp.TCPConnector(
            limit=self._max_connections,
            ttl_dns_cache=60,
            # Reading the authorities takes 40 ms.
            ssl=_certificates(*trusted) if self._url.scheme == "https" else True,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            # Neither the environment's .netrc nor its proxies are read again with each request.
            trust_env=False,
        )
        return self._session

    def _timeout(self, seconds: float | None) -> aiohttp.ClientTimeout:
        found = aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS)
        self._timeouts[seconds] = found
        return found


class Replicas:
    """Connections to equal servers.

    Requests about one key go to the same server, which has cached the start that they share. A further attempt goes to
    the next server, as does each request while the server's circuit is open.

    Args:
        connections: The connections, each with its circuit.
    """

    def __init__(self, connections: Sequence[tuple[Connection, Circuit]]) -> None:
        self._connections = list(connections)
        self._next = 0

    @asynccontextmanager
    async def opened(
        self, request: ModelRequest, body: bytes, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request to one server. See :meth:`Connection.opened`.

        The attribute ``address`` in an error names the server.
        """
        connection, circuit, admission = self._of(request)
        try:
            async with connection.opened(body, request.timeout, headers) as answer:
                yield answer
        except Exception as error:
            error.address = connection.address  # type: ignore[attr-defined]
            status = getattr(error, "status_code", 0)
            circuit.failed(ModelError(str(error) or type(error).__name__, rejects_request=status in (400, 413, 422)))
            raise
        else:
            circuit.succeeded()
        finally:
            if admission is Admission.PROBE:
                # The turn can have ended, so that nothing is known.
                circuit.release()

    def _of(self, request: ModelRequest) -> tuple[Connection, Circuit, Admission]:
        if not request.affinity:
            self._next += 1
            ranked = self._connections[self._next % len(self._connections) :] + self._connections
        else:
            # Each server has a rank for each key. If one goes, only its keys move.
            data = request.affinity.encode()
            ranked = sorted(
                self._connections,
                key=lambda of: hashlib.blake2b(data + of[0].address.encode(), digest_size=8).digest(),
            )
        first = request.attempt % len(self._connections)
        in_order = ranked[first:] + ranked[:first]
        for connection, circuit in in_order:
            if (admission := circuit.admit()) is not Admission.OPEN:
                return connection, circuit, admission
        return *in_order[0], Admission.OPEN


async def read_bounded(answer: aiohttp.ClientResponse, most: int = _MAX_ANSWER, *, begun: bytes = b"") -> bytes:
    """Return the body of an answer, after the bytes ``begun``. Raises :class:`ValueError` for more than ``most``."""
    pieces: list[bytes] = []
    size, piece = 0, begun or await answer.content.readany()
    while piece:
        size += len(piece)
        if size > most:
            raise ValueError(f"the response has more than {most:,} bytes")
        pieces.append(piece)
        piece = await answer.content.readany()
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def _error(answer: aiohttp.ClientResponse) -> AnswerError:
    location = answer.headers.get("Location", "")
    if answer.status in _REDIRECTS and location:
        target = redact(str(answer.url.join(URL(location))))
        moved = {"message": f"a redirect to {target}: set base_url to that host"}
        return AnswerError(answer.status, answer.headers, moved)
    data = bytearray()
    while len(data) < _MAX_ERROR and (piece := await answer.content.readany()):
        data += piece
    try:
        body = decoded(bytes(data))
    except ValueError:
        body = text_of(answer, data)
    return AnswerError(answer.status, answer.headers, body)


def text_of(answer: aiohttp.ClientResponse, data: bytes | bytearray) -> str:
    """Return a response body as a string, whatever it contains."""
    try:
        return data.decode(answer.charset or "utf-8", "replace")
    except LookupError:
        return data.decode(errors="replace")


def _proxy_of(address: str) -> str | None:
    """Return the proxy that the environment has for an address."""
    parts = urlsplit(address)
    if urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")


@functools.lru_cache(maxsize=4)
def _certificates(file: str, folder: str) -> ssl.SSLContext:
    """Return a context for the authorities in ``file`` and ``folder``, which OpenSSL reads from the environment.

    Without them it trusts the authorities of the machine and of certifi, because slim images have none.
    """
    context = ssl.create_default_context()
    if not file and not folder:
        try:
            import certifi
        except ImportError:
            return context
        context.load_verify_locations(certifi.where())
    return context
