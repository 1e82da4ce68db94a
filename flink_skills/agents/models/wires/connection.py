"""The connections of one model to the host of its base URL."""

from __future__ import annotations

import functools
import os
import ssl
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from flink_skills.agents.models.wires.json_bytes import decoded
from flink_skills.endpoint import redact

__all__ = ["AnswerError", "Connection", "read_bounded"]

_CONNECT_SECONDS = 10.0
_MAX_ANSWER = 64 << 20
_MAX_ERROR = 1 << 20
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class AnswerError(Exception):
    """An answer with the status of an error. ``body`` is its JSON, if it has any."""

    def __init__(self, status: int, headers: Mapping[str, str], body: Any, text: str) -> None:
        super().__init__(text)
        self.status_code = status
        self.headers = headers
        self.body = body


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
        self._headers: CIMultiDict[str] = CIMultiDict(headers)
        self._max_connections = max_connections
        self._proxy = _proxy_of(address)
        #: Receives the headers and the status of each answer.
        self.on_answer: Callable[[Mapping[str, str], int], None] | None = None
        self._session: aiohttp.ClientSession | None = None
        self._timeouts: dict[float | None, aiohttp.ClientTimeout] = {}

    async def post(self, body: bytes, timeout: float | None, headers: Mapping[str, str] | None = None) -> bytes:
        """Send a request and return the body of its answer.

        Raises:
            AnswerError: The answer has another status than 200.
            aiohttp.ClientError: The connection failed.
            TimeoutError: There was no whole answer within ``timeout`` seconds.
        """
        async with self.opened(body, timeout, headers) as answer:
            return await read_bounded(answer)

    @asynccontextmanager
    async def opened(
        self, body: bytes, timeout: float | None, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request, and have its answer to read. Raises what :meth:`post` raises."""
        session = self._session or self._open()
        async with session.post(
            self._url,
            data=body,
            headers=self._headers if not headers else CIMultiDict({**self._headers, **headers}),
            timeout=self._timeouts.get(timeout) or self._timeout(timeout),
            allow_redirects=False,
            proxy=self._proxy,
        ) as answer:
            if self.on_answer is not None:
                self.on_answer(answer.headers, answer.status)
            if answer.status != 200:
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


async def read_bounded(answer: aiohttp.ClientResponse, most: int = _MAX_ANSWER) -> bytes:
    """Return the body of an answer. Raises :class:`ValueError` for more than ``most`` bytes."""
    pieces: list[bytes] = []
    size = 0
    while piece := await answer.content.readany():
        size += len(piece)
        if size > most:
            raise ValueError(f"the response has more than {most:,} bytes")
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def _error(answer: aiohttp.ClientResponse) -> Exception:
    location = answer.headers.get("Location", "")
    if answer.status in _REDIRECTS and location:
        target = redact(str(answer.url.join(URL(location))))
        return AnswerError(
            answer.status, answer.headers, {"message": f"a redirect to {target}: set base_url to that host"}, ""
        )
    try:
        data = await read_bounded(answer, _MAX_ERROR)
    except ValueError:
        data = b""
    if answer.status < 400:
        # A success without a completion: 204 of a proxy, for instance.
        return ValueError(f"status {answer.status} without a completion")
    try:
        body = decoded(data)
    except ValueError:
        body = None
    return AnswerError(answer.status, answer.headers, body, data[:300].decode(errors="replace"))


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
