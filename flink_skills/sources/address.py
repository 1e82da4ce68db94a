"""URLs of skill sources: what of them may be shown, and where they may lead (format rule S09)."""

from __future__ import annotations

import ipaddress
import re
import socket
from urllib.parse import urlsplit

from flink_skills.errors import ConfigError, SourceError
from flink_skills.options import SkillConfig, SkillOptions

__all__ = ["AddressPolicy", "links_of", "protocol_of", "redact"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_CHAIN = re.compile(r"::(?![^\[\]/]*\])")  # but not inside an IPv6 address


def redact(url: str) -> str:
    """The URL without what may be a secret: user and password, and everything after ``?`` or ``#``.

    >>> redact("https://me:pw@host/a.zip?token=1")
    'https://host/a.zip'
    """
    return "::".join(_redact_one(link) for link in links_of(url))


def _redact_one(url: str) -> str:
    shown = re.split(r"[?#]", url, maxsplit=1)[0]
    scheme, sign, rest = shown.partition("://")
    if not sign:
        return shown.rpartition("@")[2]
    authority, slash, path = rest.partition("/")
    # A password with '/' in it would end the authority early: everything before the last '@' goes.
    if "@" in path and ":" in authority and "@" not in authority and not _is_host(authority):
        authority, slash, path = path.rpartition("@")[2].partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"


def _is_host(authority: str) -> bool:
    _, _, port = authority.rpartition(":")
    return port.isdigit() or authority.endswith("]")


def protocol_of(url: str) -> str:
    """The protocol of a URL (the first one of a chain), lower case; "" without one."""
    match = _SCHEME.match(url)
    if match:
        return match.group(1).lower()
    links = links_of(url)
    return links[0].lower() if len(links) > 1 else ""


def links_of(url: str) -> list[str]:
    """The URLs of a chain such as ``simplecache::https://…``, in order."""
    return _CHAIN.split(url)


class AddressPolicy:
    """Which http(s) addresses may be fetched."""

    def __init__(self, config: SkillConfig) -> None:
        self.allow_http = config.get(SkillOptions.SOURCE_ALLOW_HTTP)
        self.allow_private = config.get(SkillOptions.SOURCE_ALLOW_PRIVATE)

    def check_url(self, url: str) -> None:
        """Raise :class:`ConfigError` for a URL that the options forbid, as far as shows without a look-up."""
        scheme = protocol_of(url)
        if scheme not in ("http", "https"):
            return
        shown = redact(url)
        if scheme == "http" and not self.allow_http:
            key = SkillOptions.SOURCE_ALLOW_HTTP.key
            raise ConfigError(f"skill source {shown}: plain http is not allowed; use https, or set {key}: true")
        try:
            host = urlsplit(url).hostname or ""
        except ValueError:
            host = ""
        if not host:
            raise ConfigError(f"skill source {shown}: has no host; write https://host/path")
        if not self.allow_private and (host.rstrip(".").endswith("localhost") or _is_private(host)):
            raise ConfigError(self.private_message(shown))

    def check_addresses(self, addresses: list[str], shown: str) -> None:
        """Raise :class:`SourceError` where a name leads to an address that the options forbid."""
        if not self.allow_private and any(_is_private(address) for address in addresses):
            raise SourceError(self.private_message(shown), source=shown)

    @staticmethod
    def private_message(shown: str) -> str:
        key = SkillOptions.SOURCE_ALLOW_PRIVATE.key
        return f"skill source {shown}: is on a loopback or private address; to allow it, set {key}: true"


def _is_private(host: str) -> bool:
    """Whether a literal address, in any of its spellings, is one that the internet does not route."""
    plain = host.strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(plain)
    except ValueError:
        try:
            address = ipaddress.ip_address(socket.inet_aton(plain))  # 127.1, 0x7f000001, 2130706433
        except (OSError, ValueError, UnicodeError):
            return False
    mapped = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
    return not address.is_global or address.is_multicast or (mapped is not None and _is_private(str(mapped)))
