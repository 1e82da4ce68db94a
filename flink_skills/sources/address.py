"""URLs of skill sources: the hosts and protocols that they may lead to."""

from __future__ import annotations

import ipaddress
import re
import socket
import unicodedata
from urllib.parse import urlsplit

from flink_skills.endpoint import links_of, redact
from flink_skills.errors import ConfigError, SourceError
from flink_skills.options import SkillConfig, SkillOptions

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Among them are the addresses from which Azure serves its machines (168.63.129.16) and clouds serve metadata
# (169.254.0.0/16).
_NOT_PUBLIC_4 = tuple(map(ipaddress.IPv4Network, (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16", "172.16.0.0/12",
    "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24",
    "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
)))  # fmt: skip
# The block of the internet's hosts. Other blocks are loopback, unique local (fc00::/7), link local
# (fe80::/10), site local (fec0::/10), multicast (ff00::/8), discard-only (100::/64), segment routing (5f00::/16) and
# local translation (64:ff9b:1::/48).
_UNICAST_6 = ipaddress.IPv6Network("2000::/3")
# Protocol assignments (Teredo, benchmarks, ORCHID, identifiers of drones), documentation, and 6to4.
_NOT_PUBLIC_6 = tuple(map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
# Blocks that have an IPv4 address in their last 32 bits, and lead there: IPv4-compatible, IPv4-mapped,
# IPv4-translated, and the well-known prefix of translators.
_EMBEDDING_6 = tuple(map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
# ISATAP has one behind this interface identifier, in any network. The bit that says "globally unique" may be set.
_ISATAP, _ISATAP_MASK = 0x00005EFE, 0xFDFFFFFF
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
_DOTS = str.maketrans(dict.fromkeys("\u3002\uff0e\uff61", "."))  # full stops that host names may use for '.'


def is_public(address: _Address) -> bool:
    """Return True if the internet routes ``address``. An IPv4 address in an IPv6 address is judged as such.

    >>> is_public(ipaddress.ip_address("::ffff:0:10.0.0.1")), is_public(ipaddress.ip_address("64:ff9b::8.8.8.8"))
    (False, True)
    """
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in block for block in _NOT_PUBLIC_4)
    inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if any(address in block for block in _EMBEDDING_6):
        return is_public(inner)
    if address not in _UNICAST_6 or any(address in block for block in _NOT_PUBLIC_6):
        return False
    is_isatap = (int(address) >> 32) & _ISATAP_MASK == _ISATAP
    return is_public(inner) if is_isatap else True


def protocol_of(url: str) -> str:
    """The protocol of a URL (the first one of a chain), lower case; "" without one."""
    match = _SCHEME.match(url)
    if match:
        return match.group(1).lower()
    links = links_of(url)
    return links[0].lower() if len(links) > 1 else ""


def host_of(url: str) -> str:
    """The host of a URL as a connection would use it: ASCII, lower case, without a last dot.

    Raises :class:`ConfigError` for a URL whose host cannot be one.

    >>> host_of("https://Skills.Example.org.:8443/a.zip")
    'skills.example.org'
    """
    shown = redact(url)
    host, problem = _read_host(url)
    if problem:  # raised here, where no error of a library is its context
        raise ConfigError(f"skill source {shown}: {problem}")
    return host


def _read_host(url: str) -> tuple[str, str]:
    """Return (host, "") or ("", problem)."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port  # urlsplit reads it here
    except ValueError:
        return "", "the host or port cannot be parsed; write https://host/path"
    if not host:
        return "", "the URL has no host; write https://host/path"
    try:
        return str(ipaddress.IPv6Address(host.partition("%")[0])) if "[" in parts.netloc else _ascii(host), ""
    except ValueError:
        return "", "the host is invalid; write letters, digits, '-' and '.' only"


def _ascii(host: str) -> str:
    host = unicodedata.normalize("NFKC", host.translate(_DOTS)).casefold().rstrip(".")
    encoded = host if host.isascii() else host.encode("idna").decode()
    if not _HOST.fullmatch(encoded):
        raise ValueError("no host")
    return encoded


class AddressPolicy:
    """Which http(s) addresses may be fetched."""

    def __init__(self, config: SkillConfig) -> None:
        self.allow_http = config.get(SkillOptions.SOURCE_ALLOW_HTTP)
        self.allow_private = config.get(SkillOptions.SOURCE_ALLOW_PRIVATE)
        self.allow_redirects = config.get(SkillOptions.SOURCE_ALLOW_REDIRECTS)
        self._hosts = tuple(_pattern(host) for host in config.get(SkillOptions.SOURCE_ALLOWED_HOSTS))

    def check_url(self, url: str) -> None:
        """Raise :class:`ConfigError` for a URL that the options forbid, as far as shows without a look-up."""
        scheme = protocol_of(url)
        if scheme not in ("http", "https"):
            return
        shown = redact(url)
        if scheme == "http" and not self.allow_http:
            key = SkillOptions.SOURCE_ALLOW_HTTP.key
            raise ConfigError(f"skill source {shown}: plain http is not allowed; use https, or set {key}: true")
        if "${" in url.partition("://")[2].partition("/")[0]:
            return  # the host is known only where the reference is replaced, and checked there
        host = host_of(url)
        if not self.allow_private and (host.endswith("localhost") or is_reserved(host)):
            raise ConfigError(self.private_message(shown))
        if self._hosts and not self.lists(host):
            key = SkillOptions.SOURCE_ALLOWED_HOSTS.key
            raise ConfigError(f"skill source {shown}: the host {host} is not one of {key}; add it there to allow it")

    def check_step(self, home: str, url: str) -> None:
        """Raise :class:`ConfigError` where a source on the host ``home`` may not lead on to ``url``."""
        self.check_url(url)
        host = host_of(url)
        if host != home and not self.allow_redirects and not self.lists(host):
            keys = SkillOptions.SOURCE_ALLOWED_HOSTS.key, SkillOptions.SOURCE_ALLOW_REDIRECTS.key
            fix = f"to allow it, add the host to {keys[0]} or set {keys[1]}: true"
            raise ConfigError(f"{redact(url)} is on another host than {home}; {fix}")

    def check_addresses(self, addresses: list[str], shown: str) -> None:
        """Raise :class:`SourceError` where a name leads to an address that the options forbid."""
        if not self.allow_private and any(is_reserved(address) for address in addresses):
            raise SourceError(self.private_message(shown), source=shown)

    def lists(self, host: str) -> bool:
        """Whether ``skills.source.allowed-hosts`` names a host (as :func:`host_of` gives it)."""
        return any(host.endswith(name) if name.startswith(".") else host == name for name in self._hosts)

    @staticmethod
    def private_message(shown: str) -> str:
        key = SkillOptions.SOURCE_ALLOW_PRIVATE.key
        return f"skill source {shown}: is on a loopback or private address; to allow it, set {key}: true"


def _pattern(text: str) -> str:
    """A host of the option in the spelling of :func:`host_of`; one with a leading dot for all below it."""
    wanted = text.strip()
    below = wanted.startswith("*.")
    try:
        if not below and ":" in wanted:
            return str(ipaddress.IPv6Address(wanted.strip("[]")))
        return ("." if below else "") + _ascii(wanted.removeprefix("*."))
    except ValueError:
        key = SkillOptions.SOURCE_ALLOWED_HOSTS.key
        fix = "write a host such as 'skills.example.org', or '*.example.org' for all below it"
        raise ConfigError(f"option {key}: {redact(text)!r} is not a valid host; {fix}") from None


def is_reserved(host: str) -> bool:
    """Whether a literal address, in any of its spellings, is one that the internet does not route.

    >>> is_reserved("2130706433"), is_reserved("::ffff:10.0.0.1"), is_reserved("8.8.8.8")
    (True, True, False)
    """
    plain = host.strip("[]").partition("%")[0]
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    try:
        address = ipaddress.ip_address(plain)
    except ValueError:
        try:
            address = ipaddress.ip_address(socket.inet_aton(plain))  # 127.1, 0x7f000001, 2130706433
        except (OSError, ValueError, UnicodeError):
            return False
    return not is_public(address)
