"""URLs that models give: what they must be, the key that equal ones share, and lists of domains."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

import httpx2

from flink_skills.errors import ConfigError
from flink_skills.sources.address import host_of
from flink_skills.tools.web.failures import WebError

__all__ = ["DomainLists", "host_name", "parse_url", "same_page"]

_MAX_LENGTH = 2048
_PORTS = {"http": 80, "https": 443}


def parse_url(text: str) -> httpx2.URL:
    """The URL without its fragment; raises :class:`WebError` for one that cannot be fetched."""
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
    """The host as connections use it: ASCII, lower case, without a last dot."""
    return url.raw_host.decode("ascii").lower().rstrip(".")


def same_page(url: str, *, query: bool = True) -> str:
    """A text that is equal for URLs of the same page.

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
    asked = f"?{parts.query}" if query and parts.query else ""
    return f"{scheme}://{place}{parts.path.rstrip('/')}{asked}"


class DomainLists:
    """Which domains may be used. A domain stands for itself and all below it; a refusal wins over a permission.

    Raises :class:`ConfigError` for what is no domain.

    >>> DomainLists(["example.org"], ["private.example.org"]).allows("docs.example.org")
    True
    """

    def __init__(self, allowed: Iterable[str] = (), blocked: Iterable[str] = ()) -> None:
        self.allowed = tuple(dict.fromkeys(_domain(name) for name in allowed))
        self.blocked = tuple(dict.fromkeys(_domain(name) for name in blocked))

    def allows(self, host: str) -> bool:
        """Whether a host (as :func:`host_name` gives it) may be used."""
        if _within(host, self.blocked):
            return False
        return not self.allowed or _within(host, self.allowed)

    def allows_url(self, url: str) -> bool:
        """The same for a URL, also one that nothing was checked of."""
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
