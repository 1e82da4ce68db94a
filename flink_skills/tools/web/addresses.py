"""URLs and addresses of web tools: validation, lists of domains, and connections to the address that was checked.

The tool resolves a name one time for each request, checks all of its addresses, and connects to one of these addresses.
There is no second lookup that could return another address. The name is sent in the ``Host`` header, and the
certificate has to match it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx2

from flink_skills.endpoint import check_endpoint
from flink_skills.errors import ConfigError
from flink_skills.sources.address import host_of, is_reserved

Code = Literal[
    "INVALID_ARGS",
    "INVALID_URL",
    "INVALID_QUERY",
    "BLOCKED_URL",
    "SSRF_BLOCKED_URL",
    "HTTP_STATUS",
    "UNSUPPORTED_CONTENT_TYPE",
    "HTTP_ERROR",
    "FETCH_ERROR",
    "DECODE_ERROR",
    "NOT_CONFIGURED",
]


class WebError(Exception):
    """Becomes the ``error`` of a result, as ``CODE: text``. Never leaves :mod:`flink_skills.tools.web`."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text


_MAX_LENGTH = 2048
_PORTS = {"http": 80, "https": 443}


def parse_url(text: str) -> httpx2.URL:
    """Return the URL without its fragment. Raises :class:`WebError` for one that cannot be fetched."""
    text = text.strip()
    if len(text) > _MAX_LENGTH:
        raise WebError("INVALID_URL", f"the URL has {len(text)} characters, more than {_MAX_LENGTH}")
    try:
        url = httpx2.URL(text)
        host = url.host
    except (httpx2.InvalidURL, ValueError) as error:
        raise WebError("INVALID_URL", f"{text!r} cannot be read as a URL ({error}); give https://host/path") from None
    if url.scheme not in _PORTS or not host:
        raise WebError("INVALID_URL", f"{text!r} is not an http or https URL; give https://host/path")
    if url.userinfo:
        raise WebError("INVALID_URL", "the URL has a user or a password in it; give it without, https://host/path")
    return url.copy_with(fragment=None)


def host_name(url: httpx2.URL) -> str:
    """Return the host as connections use it: ASCII, lower case, without a final dot."""
    return url.raw_host.decode("ascii").lower().rstrip(".")


def same_page(url: str, *, query: bool = True) -> str:
    """Return a string that is equal for URLs of the same page.

    >>> same_page("HTTPS://www.Example.org:443/a/#b")
    'https://example.org/a'
    """
    try:
        parts = urlsplit(url.strip())
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return url.strip()
    scheme = parts.scheme.lower()
    place = f"[{host}]" if ":" in host else host.removeprefix("www.")
    if port is not None and port != _PORTS.get(scheme):
        place += f":{port}"
    search = f"?{parts.query}" if query and parts.query else ""
    return f"{scheme}://{place}{parts.path.rstrip('/')}{search}"


class DomainLists:
    """Allowed and blocked domains. A domain includes all below it. A blocked domain overrides an allowed one.

    Raises :class:`ConfigError` for an invalid domain.

    >>> DomainLists(["example.org"], ["private.example.org"]).allows("docs.example.org")
    True
    """

    def __init__(self, allowed: Iterable[str] = (), blocked: Iterable[str] = ()) -> None:
        self.allowed = tuple(dict.fromkeys(_domain(name) for name in allowed))
        self.blocked = tuple(dict.fromkeys(_domain(name) for name in blocked))

    def allows(self, host: str) -> bool:
        """Return True if a host, as :func:`host_name` returns it, may be used."""
        if _within(host, self.blocked):
            return False
        return not self.allowed or _within(host, self.allowed)

    def allows_url(self, url: str) -> bool:
        """Return True if the host of a URL may be used. The URL need not be valid."""
        try:
            return self.allows(host_of(url))
        except ConfigError:
            return False


def _domain(name: str) -> str:
    plain = name.strip().removeprefix("*.")
    if "://" not in plain:
        plain = f"https://[{plain.strip('[]')}]" if plain.count(":") > 1 else f"https://{plain}"
    try:
        return host_of(plain).removeprefix("www.")
    except ConfigError:
        raise ConfigError(
            f"{name!r} is not a domain; write one such as 'example.org', which includes all below it"
        ) from None


def _within(host: str, domains: tuple[str, ...]) -> bool:
    plain = host.removeprefix("www.")
    return any(plain == domain or plain.endswith(f".{domain}") for domain in domains)


#: From a host name and a port to its addresses.
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

_TRIED_ADDRESSES = 4
_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")
_SECRET_HEADERS = ("Authorization", "Cookie")
_NEVER_PUBLIC = ("localhost", ".localhost", ".local", ".internal", ".home.arpa")


async def _system_resolver(host: str, port: int) -> Sequence[str]:
    """Return the addresses that the system has for a name."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Gate:
    """Sends requests to allowed addresses.

    ``names_only``: a proxy connects and resolves names. Only literal addresses and names that are never public can be
    checked here.
    """

    def __init__(self, *, block_private: bool, resolver: Resolver | None = None, names_only: bool = False) -> None:
        self._block_private = block_private
        self._resolver = resolver or _system_resolver
        self._names_only = names_only

    async def get(
        self, client: httpx2.AsyncClient, url: httpx2.URL, headers: Mapping[str, str], timeout: float
    ) -> httpx2.Response:
        """Return a response whose body is not read. The caller closes it. ``timeout``: seconds without a byte.

        Raises :class:`WebError` for a host that is not allowed, and the errors of httpx.
        """
        host = host_name(url)
        self._check_name(host)
        if self._names_only:
            return await _send(client, client.build_request("GET", url, headers=headers, timeout=timeout))
        addresses = await self._addresses(host, url)
        pinned = {**headers, "Host": url.netloc.decode("ascii"), "Connection": "close"}
        # The certificate is for the name. An address in a URL is its own name.
        extensions = {} if host in addresses else {"sni_hostname": host}
        limits = httpx2.Timeout(timeout, connect=timeout / len(addresses))
        for number, address in enumerate(addresses, 1):
            there = url.copy_with(host=address)
            request = client.build_request("GET", there, headers=pinned, extensions=extensions, timeout=limits)
            try:
                return await _send(client, request)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if number == len(addresses):
                    raise
        raise AssertionError("there is at least one address")

    def _check_name(self, host: str) -> None:
        never = any(host == name.lstrip(".") or (name[0] == "." and host.endswith(name)) for name in _NEVER_PUBLIC)
        if self._block_private and (never or is_reserved(host)):
            raise _private(host)

    async def _addresses(self, host: str, url: httpx2.URL) -> Sequence[str]:
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            addresses = list(await self._resolver(host, port))
        except (OSError, UnicodeError) as error:
            raise WebError("HTTP_ERROR", f"the host {host} was not found ({error}); check its name") from None
        if not addresses:
            raise WebError("HTTP_ERROR", f"the host {host} has no address; check its name")
        if self._block_private and any(is_reserved(address) for address in addresses):
            raise _private(host)
        return addresses[:_TRIED_ADDRESSES]


async def _send(client: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
    # Credentials of a job's client are not for any host that a model names.
    for name in _SECRET_HEADERS:
        request.headers.pop(name, None)
    return await client.send(request, stream=True, auth=None, follow_redirects=False)


def _private(host: str) -> WebError:
    return WebError(
        "SSRF_BLOCKED_URL", f"the host {host} leads to a private or reserved address, which is not fetched; use another"
    )


class HttpClient:
    """The HTTP client of a tool: ``client``, which is used and not closed, or a new one for each call.

    A new client has no cookies, no settings of the environment, and no connection that outlives its request: a kept
    connection would be found again by its address, regardless of the name that its certificate was checked for. Raises
    :class:`ConfigError` for a client of another library, and for an invalid proxy without showing its password.
    """

    def __init__(self, tool: str, client: httpx2.AsyncClient | None, proxy: str | None) -> None:
        if proxy and client:
            raise ConfigError(
                f"tool {tool!r}: proxy and http_client exclude each other; configure the proxy in the client"
            )
        if client is not None and not isinstance(client, httpx2.AsyncClient):
            kind = type(client)
            name = f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"
            raise ConfigError(f"tool {tool!r}: http_client must be an httpx2.AsyncClient, not a {name}")
        if proxy:
            check_endpoint(proxy, f"tool {tool!r}: proxy", "http://proxy.example.org:3128", _PROXY_SCHEMES)
        self._client = client
        self._proxy = proxy
        self._context: ssl.SSLContext | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_context": None}  # created where the tool runs

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[httpx2.AsyncClient]:
        """Return the client for one call."""
        if self._client is not None:
            yield self._client
            return
        if self._context is None:
            self._context = await asyncio.to_thread(httpx2.create_ssl_context, trust_env=False)
        limits = httpx2.Limits(max_connections=4, max_keepalive_connections=0)
        async with httpx2.AsyncClient(verify=self._context, trust_env=False, proxy=self._proxy, limits=limits) as new:
            yield new
