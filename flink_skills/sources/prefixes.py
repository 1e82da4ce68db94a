"""Prefixes of addresses that events may name, and the check that an address is under one of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from flink_skills.endpoint import redact
from flink_skills.errors import ConfigError
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.sources.address import AddressPolicy, host_of

_WEB = {"http": 80, "https": 443}
_STORES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "oss": "oss"}
_AZURE = {"az": "az", "abfs": "abfs", "abfss": "abfss"}
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(.*)", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CONTAINER = re.compile(r"[A-Za-z0-9$][A-Za-z0-9-]*(@[A-Za-z0-9][A-Za-z0-9.-]*)?")
# A server may take '\' for '/', and a parser may leave control characters and spaces out.
_REFUSED = re.compile(r"[\s\\\x00-\x1f\x7f\u200b-\u200f\u2028-\u202e\ufeff]")
_MAX_LENGTH = 4096
_MAX_DECODED = 5


@dataclass(frozen=True)
class _Place:
    """The parts of an address that are compared: ``parts`` are the segments of its path."""

    scheme: str
    authority: str
    parts: tuple[str, ...]

    def is_under(self, prefix: _Place) -> bool:
        return (
            self.scheme == prefix.scheme
            and self.authority == prefix.authority
            and self.parts[: len(prefix.parts)] == prefix.parts
        )

    def suggested(self) -> str:
        """A prefix that would allow it, without a part that may be secret."""
        return f"{self.scheme}://{self.authority}{'/' if self.authority else ''}"


def is_remote(uri: str) -> bool:
    """Return whether an event may name a file by the scheme of ``uri``, apart from ``artifact``.

    >>> is_remote("s3://bucket/a.csv"), is_remote("file:///etc/passwd")
    (True, False)
    """
    scheme = uri.partition("://")[0].lower() if "://" in uri else ""
    return scheme in _WEB or scheme in _STORES or scheme in _AZURE


class AllowedPrefixes:
    """The prefixes of ``skills.files.allowed``.

    Raises :class:`ConfigError` for a prefix that cannot be used.

    >>> allowed = AllowedPrefixes(["https://files.example.org/inbox/"])
    >>> allowed.allows("https://FILES.example.org:443/inbox/a.csv"), allowed.allows("https://files.example.org/inbox2")
    (True, False)
    """

    def __init__(self, prefixes: Iterable[str]) -> None:
        self._prefixes = tuple(_prefix(text) for text in prefixes if text.strip())

    def allows(self, url: str) -> bool:
        """Return whether ``url`` is under a prefix. An address that cannot be read is under none."""
        try:
            self.check(url)
        except ConfigError:
            return False
        return True

    def check(self, url: str) -> None:
        """Raise :class:`ConfigError` for an address that is under no prefix. The message has no secret of it."""
        key = SkillOptions.FILES_ALLOWED.key
        place, problem = _read(url)
        if place is None:
            raise ConfigError(f"{redact(url[:_MAX_LENGTH])}: {problem}")
        if not any(place.is_under(prefix) for prefix in self._prefixes):
            fix = f"to allow it, add {place.suggested()} or a longer prefix to that option"
            raise ConfigError(f"{redact(url)}: the address is under no prefix of {key}; {fix}")


class PrefixPolicy(AddressPolicy):
    """The address rules of sources, and for each hop also ``skills.files.allowed``."""

    def __init__(self, config: SkillConfig, allowed: AllowedPrefixes) -> None:
        super().__init__(config)
        self._allowed = allowed

    def check_url(self, url: str) -> None:
        """Raise :class:`ConfigError` for an address that one of the two forbids."""
        self._allowed.check(url)
        super().check_url(url)


def _prefix(text: str) -> _Place:
    text = text.strip()
    key = SkillOptions.FILES_ALLOWED.key
    place, problem = _read(text)
    if place is None:
        raise ConfigError(f"option {key}: the prefix {redact(text)}: {problem}")
    if "?" in text or "#" in text:
        raise ConfigError(f"option {key}: the prefix {redact(text)}: has a query or a fragment; leave it out")
    parts = place.parts
    return _Place(place.scheme, place.authority, parts[:-1] if parts and not parts[-1] else parts)


def _read(url: str) -> tuple[_Place | None, str]:
    """Return (place, "") or (None, what is wrong with the address)."""
    if len(url) > _MAX_LENGTH:
        return None, f"the address has more than {_MAX_LENGTH} characters; use a shorter one"
    if _REFUSED.search(url):
        return (
            None,
            "the address contains spaces, control characters or '\\'; write them as %20 and so on, and '/' for '\\'",
        )
    found = _URL.fullmatch(url)
    if found is None:
        return None, "the value is not an address; write https://host/path, s3://bucket/key or artifact://name"
    scheme, authority, path = found[1].lower(), found[2], found[3]
    if "::" in path or "::" in found[4] or "${" in url:
        return None, "the address contains '::' or '${', which are not resolved here; name the file itself"
    if scheme == "artifact":
        authority, path = "", f"/{authority}{path}" if authority or path else ""
    elif scheme in _WEB:
        authority, problem = _web_authority(url, scheme, authority)
        if problem:
            return None, problem
    elif scheme in _STORES:
        scheme = _STORES[scheme]
        if not _BUCKET.fullmatch(authority):
            return None, f"the address has no bucket; write {scheme}://bucket/key"
    elif scheme in _AZURE:
        authority = authority.lower()
        if not _CONTAINER.fullmatch(authority):
            return None, f"the address has no container; write {scheme}://container/path"
    else:
        return None, "the scheme is not allowed in events; use https, s3, gs, az, abfss, oss or artifact"
    segments = path.split("/")[1:]
    if any(map(_climbs, segments)):
        return None, "the path contains '.' or '..'; name the file without them"
    return _Place(scheme, authority, tuple(map(unquote, segments)) if scheme in _WEB else tuple(segments)), ""


def _web_authority(url: str, scheme: str, authority: str) -> tuple[str, str]:
    """Return (host and port, "") or ("", problem)."""
    if "@" in authority:
        key = SkillOptions.SOURCE_OPTIONS.key
        return (
            "",
            f"the address contains a user or a password; omit them, and provide the worker's credentials in {key}",
        )
    try:
        host, port = host_of(url), urlsplit(url).port
    except (ConfigError, ValueError):
        return "", "the host or port of the address cannot be parsed; write https://host/path"
    host = f"[{host}]" if ":" in host else host
    return (host if port in (None, _WEB[scheme]) else f"{host}:{port}"), ""


def _climbs(segment: str) -> bool:
    """Return whether a server may read a way out of its folder in a segment, however often it decodes it."""
    for _ in range(_MAX_DECODED):
        pieces = re.split(r"[/\\]", segment)
        if any(piece.partition(";")[0].strip() in (".", "..") for piece in pieces) or "\\" in segment:
            return True
        decoded = unquote(segment)
        if decoded == segment:
            return bool(re.search(r"[\x00-\x1f\x7f]", segment))
        segment = decoded
    return True
