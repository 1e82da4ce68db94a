"""Files that look like secrets: by their names, and by private keys and tokens in their content.

The patterns are few and exact: each token has a prefix that its issuer made for scanners. Placeholders of documentation
are ignored.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from flink_skills.errors import ResourceError
from flink_skills.skill.skill_files import SkillFiles
from flink_skills.texts import table

_MAX_SCANNED = 8 << 20
_MIN_ENTROPY = 3.0

_FOLDERS = frozenset({".ssh", ".aws", ".gnupg", ".kube", ".azure"})
_NAMES = {
    **dict.fromkeys((".netrc", "_netrc", ".pgpass", ".git-credentials", ".pypirc", ".htpasswd"), "passwords"),
    **dict.fromkeys((".dockercfg", ".s3cfg", ".boto", ".vault-token"), "access keys"),
    **dict.fromkeys(("id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk"), "an SSH key"),
}
_SUFFIXES = {**dict.fromkeys((".p12", ".pfx", ".jks", ".keystore", ".ppk"), "private keys"), ".kdbx": "passwords"}
# Each path with a credential name has one of these, after a line end.
_HINTS = ("/.", "\n.", "id_", "_netrc", *_SUFFIXES)
_EXAMPLES = frozenset(
    {"example", "examples", "sample", "samples", "template", "tmpl", "tpl", "dist", "default", "defaults", "schema"}
)
_KEY_HEADER = rb"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----"
_IS_KEY = re.compile(rb"(?:\xef\xbb\xbf)?\s*" + _KEY_HEADER)
_PEM_HEADER = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,60})-----")
_PUBLIC = frozenset({b"CERTIFICATE", b"TRUSTED CERTIFICATE", b"X509 CRL", b"DH PARAMETERS", b"EC PARAMETERS"})


class _Token(NamedTuple):
    """A kind of token: what it is, text that each has, and its pattern, whose last group is the token."""

    what: str
    keyword: bytes
    pattern: re.Pattern[bytes]


def _read_tokens() -> Iterator[_Token]:
    for what, keyword, pattern in table("tokens.txt", beside=__file__):
        name = pattern.replace("<END>", "(?![A-Za-z0-9_-])")
        yield _Token(what, keyword.encode(), re.compile(rb"(?<![A-Za-z0-9_])(" + name.encode() + rb")"))


_TOKENS = tuple(_read_tokens())
# After the header come the headers of an encrypted key, line ends (also as text) and at least one line of base64.
_KEY = _Token(
    "a private key",
    b"PRIVATE KEY",
    re.compile(
        rb"("
        + _KEY_HEADER
        + rb")(?:[\s\"'+,>|\\]|\\r|\\n|(?:Proc-Type|DEK-Info|Version|Comment):[^\n\\]{0,200}(?=[\n\\]))*"
        rb"(?=[A-Za-z0-9+/=]{40})"
    ),
)
_PLACEHOLDER = re.compile(rb"example|placeholder|your|xxxx|1234567|abcdef|redacted|dummy|fake", re.IGNORECASE)


class Credential(NamedTuple):
    """Content that looks like a secret, and its line (from 1). Line 0: the file is named like one."""

    what: str
    line: int


def credential_name(path: str) -> str | None:
    """Return what a file with this path usually has, if that is secret.

    >>> credential_name(".env"), credential_name(".env.example"), credential_name("a/id_rsa.pub")
    ('environment variables', None, None)
    """
    *folders, name = path.split("/")
    lower = name.lower()
    if lower.endswith(".pub"):
        return None
    if _FOLDERS.intersection(folders):
        return "access keys"
    if lower == ".env" or (lower.startswith(".env.") and _EXAMPLES.isdisjoint(lower.split("."))):
        return "environment variables"
    if lower in _NAMES:
        return _NAMES[lower]
    return next((what for suffix, what in _SUFFIXES.items() if lower.endswith(suffix)), None)


def credential_message(path: str, found: Credential) -> str:
    """Return what is wrong with a file that looks like a secret. The secret is not part of the message."""
    return f"{path!r} has {found.what}" if found.line else f"{path!r} is named like a file with {found.what}"


def without_credential_names(paths: Sequence[str]) -> Sequence[str]:
    """Return the paths that are not named like a secret.

    >>> without_credential_names(["SKILL.md", ".env"])
    ['SKILL.md']
    """
    text = "\n".join(("", *paths)).lower()
    if not any(hint in text for hint in _HINTS):  # one look at all of them
        return paths
    return [path for path in paths if not credential_name(path)]


def find_credential(path: str, data: bytes) -> Credential | None:
    """Return the first thing in a file that looks like a secret. Return None if nothing does.

    >>> find_credential("a.txt", b"no secret")
    """
    if what := credential_name(path):
        return Credential(what, 0)
    if path.lower().endswith(".pem") and _is_secret_pem(data):
        return Credential("a private key", 0)
    if _IS_KEY.match(data):
        return Credential("a private key", data[: data.find(b"-----")].count(b"\n") + 1)
    found = [(match.start(1), token.what) for token, match in _matches(data)]
    if not found:
        return None
    at, what = min(found)
    return Credential(what, data.count(b"\n", 0, at) + 1)


def credential_in_file(files: SkillFiles, path: str) -> Credential | None:
    """Return :func:`find_credential` of the first 8 MiB of a file of a skill. Raises :class:`ResourceError`."""
    if what := credential_name(path):
        return Credential(what, 0)
    return find_credential(path, files.read(path, 0, _MAX_SCANNED).data)


def find_credentials(files: SkillFiles) -> Iterator[tuple[str, Credential]]:
    """Yield the files of a skill that look like secrets.

    Files that cannot be read are omitted, because taking the digest reports them.
    """
    for path in files.paths():
        try:
            found = credential_in_file(files, path)
        except (ResourceError, OSError):
            continue
        if found is not None:
            yield path, found


def _matches(data: bytes) -> Iterator[tuple[_Token, re.Match[bytes]]]:
    if _KEY.keyword in data and (key := _KEY.pattern.search(data)):
        yield _KEY, key
    for token in _TOKENS:
        if token.keyword in data:
            for match in token.pattern.finditer(data):
                text = match[1]
                if not _PLACEHOLDER.search(text) and _entropy(text) >= _MIN_ENTROPY:
                    yield token, match
                    break


def _is_secret_pem(data: bytes) -> bool:
    """Return True unless the file has public parts only, such as certificates and public keys."""
    kinds = set(_PEM_HEADER.findall(data))
    return not kinds or not all(kind in _PUBLIC or kind.endswith(b"PUBLIC KEY") for kind in kinds)


def _entropy(text: bytes) -> float:
    """Return the bits of a character of ``text`` by Shannon."""
    return -sum(count / len(text) * math.log2(count / len(text)) for count in Counter(text).values())
