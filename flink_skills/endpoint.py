"""Addresses that users declare: the part that may be shown, and the check that the rest can be used."""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

from flink_skills.errors import ConfigError

_HIDDEN = "…"
# OpenSSL's words for a server that answers without TLS, and what servers and clients say if only one of them uses it.
_NO_TLS = re.compile("wrong.version.number|record.layer.failure|unknown.protocol|packet.length.too.long", re.IGNORECASE)
_TLS = re.compile(
    r"\\x15\\x03|(?:HTTP request|plain HTTP|speaking plain).{0,40}(?:HTTPS|SSL|TLS)"
    "|requires TLS|TLS is required",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*")
_REFERENCE = re.compile(r"\$\{(?:env|file):[^{}]*\}")
_QUERY = re.compile(r"[?#]")
_ASSIGNMENT = re.compile(r"[?#&][^@?#&=]*=")
# All patterns have bounds or no nested repetition: a server's text of many colons must not cost minutes.
_CHAIN = re.compile(r"::(?![^\[\]/]{0,100}\])")  # but not inside an IPv6 address
_HOST = re.compile(
    rf"(?P<host>\[[^\s\[\]@/?#]*\]|(?:{_REFERENCE.pattern}|[^\s/?#@:\[\]\\<>\"'`{{}}{_HIDDEN}])+)"
    rf"(?P<port>:(?:\d{{0,5}}|{_REFERENCE.pattern}))?(?=[/?#]|\Z)"
)
# A repository: user, host, path without '@', ref, and the parts that are not pins.
_GIT = re.compile(
    rf"git\+[a-z]{{1,10}}://(?:(?P<user>(?:{_REFERENCE.pattern}|[^/?#@])*)@)?(?P<host>(?:{_REFERENCE.pattern}|[^/?#@])*)"
    r"(?P<path>/[^?#@]*)(?:@(?P<ref>[^?#]*))?(?:#(?P<rest>(?:subdirectory|commit)=[^?#]*))?",
    re.IGNORECASE,
)
# An artifact in a registry: user, host, repository, tag, digest, and the digest that a plan pins.
_OCI = re.compile(
    rf"oci://(?:(?P<user>(?:{_REFERENCE.pattern}|[^/?#@])*)@)?(?P<host>(?:{_REFERENCE.pattern}|[^/?#@])+)/"
    r"(?P<name>[^:?#@]*)(?::(?P<tag>[^/:?#@]*))?(?:@(?P<digest>[a-z0-9]+:[0-9A-Fa-f]{32,128}))?"
    r"(?:\?pin=(?P<pin>sha256:[0-9a-f]{64}))?",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?:[A-Za-z0-9_-]+\.)+[A-Za-z]{2,}\.?")
# Links before the last one of a chain have a path and no user.
_BEFORE = frozenset(
    {"zip", "tar", "libarchive", "simplecache", "filecache", "blockcache", "cached", "dir", "file", "local", "memory"}
)
# "user@" without a password is not usual there, and '@' in the name of a file is.
_PATHS = _BEFORE | {"s3", "s3a", "gs", "gcs", "oss", "az", "abfs", "abfss", "hdfs"}
_IN_TEXT = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]{0,40}:/{1,2}|(?<![:/\w])//)"
    # A password may have spaces and quotes: up to the '@', if what follows the colon is not a port.
    r"(?:[^\s/?#@:'\"<>]{0,100}:(?!\d{1,5}(?![^\s/?#:,;.()\[\]'\"<>]))(?![\s/])[^\n@]{1,100}@)?"
    r"[^\s'\"<>]+"
)
_AFTER = ")]},.;:!"


def redact(url: str) -> str:
    """Return ``url`` without its user, password, query and fragment.

    This function finds secrets by their position in a URL, so it needs no list of values and works before a plan is
    opened. :class:`flink_skills.agents.Redactor` replaces known values in any text.

    A user or a password may contain any character, including an unescaped ``/``, ``?``, ``#`` or ``@``. If a URL can be
    read in more than one way, the result contains the part that is public in each of them, and ``…`` for the remainder.

    >>> redact("https://me:p/w@host/a.zip?token=1")
    'https://host/a.zip'
    >>> redact("https://host:8443/a@b.zip"), redact("https://host:8443/a?mail=a@b.zip")
    ('https://…@b.zip', 'https://…')
    """
    before, last = _chain(url)
    return "::".join([*(_QUERY.split(link, maxsplit=1)[0] for link in before), _redact_one(last)])


def redact_text(text: str) -> str:
    """Return ``text``, such as a library's message, with every URL in it redacted as :func:`redact` does."""
    return _IN_TEXT.sub(_redact_found, text)


def git_parts(url: str) -> tuple[str, str, str, str, str] | None:
    """Return user, host, path, ref and fragment of the address of a repository. Return None if it is ambiguous.

    >>> git_parts("git+https://me@host:8443/ops.git@v1#subdirectory=a")
    ('me', 'host:8443', '/ops.git', 'v1', 'subdirectory=a')
    """
    found = _GIT.fullmatch(url)
    if found is None:
        return None
    # An '@' behind the first '/' can also end a password that has an unescaped '/'.
    is_clear = found["ref"] is None or found["path"].endswith(".git") or not (found["host"] or found["user"])
    if not is_clear and (found["user"] is not None or not _is_public("git+x://", url.partition("://")[2])):
        return None
    return found["user"] or "", found["host"], found["path"], found["ref"] or "", found["rest"] or ""


def oci_parts(url: str) -> dict[str, str] | None:
    """Return user, host, name, tag, digest and pin of the address of an artifact. Return None if it has other parts.

    >>> oci_parts("oci://me@host:5000/team/ops:1.2")
    {'user': 'me', 'host': 'host:5000', 'name': 'team/ops', 'tag': '1.2', 'digest': '', 'pin': ''}
    """
    found = _OCI.fullmatch(url)
    return None if found is None else found.groupdict(default="")


def links_of(url: str) -> list[str]:
    """Return the URLs of a chain such as ``simplecache::https://…``, in order."""
    return _CHAIN.split(url)


def tls_fix(url: str, reason: str) -> str:
    """Return the fix if only one of client and server uses TLS, judged by the error. Return "" for other errors.

    >>> tls_fix("https://host:8000/v1", "[SSL: WRONG_VERSION_NUMBER] wrong version number")
    'the server does not use TLS on this port: write http:// instead of https://'
    """
    if url.startswith("https:") and _NO_TLS.search(reason):
        return "the server does not use TLS on this port: write http:// instead of https://"
    if url.startswith("http:") and _TLS.search(reason):
        return "the server expects TLS on this port: write https:// instead of http://"
    return ""


def user_of(url: str) -> str:
    """Return what may be the user and password of ``url``. Return "" if there is none.

    >>> user_of("https://me:p/w@host/a.zip")
    'me:p/w'
    """
    if parts := git_parts(url):
        return parts[0]
    if artifact := oci_parts(url):
        return artifact["user"]
    scheme, rest = _parts(_chain(url)[1])
    end = rest.rfind("@")
    return rest[:end] if end >= 0 and not _is_public(scheme, rest) else ""


def check_endpoint(
    url: object,
    name: str,
    example: str,
    schemes: Sequence[str] = ("http", "https"),
    *,
    references: bool = False,
    credentials: bool = True,
) -> SplitResult:
    """Return the parts of ``url``, an address that a user declares.

    Raises :class:`ConfigError` if it cannot be used. The message has the redacted address only, and the error has no
    cause and no context.

    Args:
        name: The place of the declaration, such as "model 'm' of agent Triage: base_url".
        example: An address that could be used.
        schemes: Accepted schemes.
        references: Whether ``${env:NAME}`` and ``${file:/path}`` are replaced later, where the address is used.
        credentials: Whether a user and a password are accepted.

    >>> check_endpoint("https://me:SECRET/x@host/v1", "base_url", "http://localhost:8000/v1")
    Traceback (most recent call last):
    flink_skills.errors.ConfigError: base_url cannot be used: a user or a password contains an unescaped '/', '?' or '#' (https://host/v1). Write %2F, %3F or %23 in its place, as in http://localhost:8000/v1.
    """  # noqa: E501 (a message is one line)
    parts, problem, fix = _read(url, schemes, references=references)
    if parts is not None and not credentials and user_of(str(url)):
        parts, problem, fix = None, "the address contains a user or a password", "Omit them"
    if parts is not None:
        return parts
    # Without a scheme the value can be anything, such as a key in the wrong option.
    shown = f" ({redact(url)})" if isinstance(url, str) and "://" in url else ""
    raise ConfigError(f"{name} cannot be used: {problem}{shown}. {fix}, as in {example}.")


def _read(url: object, schemes: Sequence[str], *, references: bool) -> tuple[SplitResult | None, str, str]:
    """Return (parts, "", "") or (None, problem, fix). No error is alive when the caller raises its error."""
    if not isinstance(url, str):
        return None, f"expected a string, got {type(url).__name__}", "Write an address"
    if not references and _REFERENCE.search(url):
        return None, "a reference such as ${env:NAME} is not replaced there", "Write the address itself"
    # The value of a reference is known in the worker only. A digit can be a host, a port or a part of a path.
    known = _REFERENCE.sub("1", url)
    if any(char.isspace() or not char.isprintable() for char in known):
        return None, "the address contains spaces or control characters", "Remove them, or write them as %20"
    scheme, sign, rest = known.partition("://")
    if not sign or scheme.lower() not in schemes:
        wanted = " or ".join(f"{accepted}://" for accepted in schemes)
        return None, f"the address does not start with {wanted}", "Write the scheme first"
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    unescaped = "@" in rest and "@" not in authority and not _HOST.match(rest)
    if unescaped or authority.count("@") > 1:
        return (
            None,
            "a user or a password contains an unescaped '/', '?' or '#'"
            if unescaped
            else "the address contains more than one '@'",
            "Write %2F, %3F or %23 in its place" if unescaped else "Write %40 for one in a user or a password",
        )
    try:
        parts = urlsplit(known)
        host = parts.hostname
    except ValueError:
        host = None
    if not host:
        return None, "the host is missing or cannot be parsed", "Write a host after ://"
    try:
        usable = parts.port is None or 0 < parts.port < 65536
    except ValueError:
        usable = False
    if not usable:
        return None, "the port is not a number from 1 to 65535", "Correct or omit the port"
    if not _HOST.match(authority.rpartition("@")[2]):
        return None, "the host contains invalid characters", "Write a name or an IP address"
    return parts, "", ""


def _redact_found(found: re.Match[str]) -> str:
    url = found[0].rstrip(_AFTER)
    if "[" in url and found[0][len(url) :].startswith("]"):
        url += "]"
    after = "" if _QUERY.search(url) else found[0][len(url) :]
    return redact(url) + after


def _chain(url: str) -> tuple[list[str], str]:
    """Return the links before the last one, and that. A "::" in a password does not begin a link."""
    links = links_of(url)
    before = list(itertools.takewhile(_is_before, links[:-1]))
    return before, "::".join(links[len(before) :])


def _is_before(link: str) -> bool:
    protocol, _, path = link.partition("://")
    return protocol.lower() in _BEFORE and not re.search("[:@]", _REFERENCE.sub("", path))


def _parts(url: str) -> tuple[str, str]:
    """Return the scheme with its sign ("" if there is none) and the rest."""
    scheme, sign, rest = url.partition("://")
    return (scheme + sign, rest) if sign and _SCHEME.fullmatch(scheme) else ("", url)


def _redact_one(url: str) -> str:
    scheme, rest = _parts(url)
    if parts := git_parts(url):
        user, host, path, ref, fragment = parts
        hidden = f"{_HIDDEN}@" if user == _HIDDEN else ""
        return f"{scheme}{hidden}{host}{path}{ref and '@'}{ref}{fragment and '#'}{fragment}"
    if artifact := oci_parts(url):
        return scheme + (rest.removeprefix(artifact["user"]).removeprefix("@") if "@" in rest else rest)
    begins = [0, *(found.end() for found in re.finditer("@", rest))]
    readings = [begin for begin in begins if _HOST.match(rest, begin)]
    start = begins[-1]
    mark = ""
    if _is_public(scheme, rest):
        start = 0
    elif start not in readings:
        return scheme + _HIDDEN
    elif rest.startswith(f"{_HIDDEN}@") and len(begins) == 2:
        mark = f"{_HIDDEN}@"  # an address that was redacted before
    elif readings[0] != start:
        # A host precedes this one: its path (shown) or its query (hidden) can continue here.
        if _QUERY.search(rest, readings[0], start):
            return scheme + _HIDDEN
        mark = f"{_HIDDEN}@"
    elif _ASSIGNMENT.search(rest, 0, start):
        return scheme + _HIDDEN
    return scheme + mark + _QUERY.split(rest[start:], maxsplit=1)[0]


def _is_public(scheme: str, rest: str) -> bool:
    """Return True if ``rest`` begins with the host or the path, and every '@' in it is behind that."""
    end = rest.rfind("@")
    first = _HOST.match(rest)
    if end < 0 and (first or not scheme or rest[:1] in ("", "/", "?", "#")):
        return True
    if "@" in re.split(r"[/?#]", rest, maxsplit=1)[0]:
        return False
    before = rest[:end] if end >= 0 else re.split(r"[/?#]", rest, maxsplit=1)[0]
    if scheme[:-3].lower() in _PATHS and ":" not in before:
        return True
    if first is None or end < 0:
        return False
    host = first["host"]
    return _is_address(host) or (":" not in before and _NAME.fullmatch(host) is not None)


def _is_address(host: str) -> bool:
    """Return True for a host that is not a user's name: an IP address in the usual spelling, or localhost."""
    if host.lower() == "localhost" or host.startswith("["):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
