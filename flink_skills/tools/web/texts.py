"""Bytes of a page to text: by what the server says, by what the page says, and by what the bytes look like."""

from __future__ import annotations

import codecs
import re
from email.message import Message

from charset_normalizer import from_bytes

__all__ = ["charset_of", "decode", "is_binary", "kind_of", "media_type_of"]

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_AS_IS = frozenset(
    {
        "application/ecmascript",
        "application/javascript",
        "application/json",
        "application/ld+json",
        "application/ndjson",
        "application/toml",
        "application/x-ndjson",
        "application/x-yaml",
        "application/xml",
        "application/yaml",
    }
)
_IN_PAGE = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_IN_XML = re.compile(rb"""^\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]{1,40})""")
_LOOKED_AT = 2048
_GUESSED_FROM = 65_536
# A decoder lets no other thread run: bytes that do not fit take a second for 5 MB.
_DECODED_TOGETHER = 65_536
_MAX_HEADER = 1_000
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Python knows more, among them some that take hours for a page that was made for it (punycode).
_KNOWN = re.compile(
    r"utf-(8|16|16-le|16-be)|ascii|iso8859-\d{1,2}|cp(125\d|437|8\d\d|9[345]\d|1361)|koi8-[rtu]|mac-\w+|gb2312|gbk|gb18030|hz"
    r"|big5|big5hkscs|euc_\w+|shift_jis\w*|iso2022_\w+|johab|tis-620"
)
# Pages that say these mean the page of Windows, which has more characters and the same others.
_MEANT = {"ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030", "gbk": "gb18030"}


def media_type_of(content_type: str) -> str:
    """``text/html`` of ``Text/HTML; charset=utf-8``."""
    return content_type.partition(";")[0].strip().lower()


def charset_of(content_type: str) -> str:
    """The charset parameter, or an empty text."""
    header = Message()
    # The parser of headers takes quadratic time for some.
    header["Content-Type"] = content_type[:_MAX_HEADER]
    return str(header.get_param("charset") or "")


def kind_of(media_type: str) -> str:
    """``html``, ``text`` for what is given as it is, or an empty text for what is no text."""
    if media_type in _HTML:
        return "html"
    suffixed = media_type.startswith("application/") and media_type.endswith(("+json", "+xml", "+yaml"))
    return "text" if media_type.startswith("text/") or media_type in _AS_IS or suffixed else ""


def is_binary(data: bytes) -> bool:
    """Whether the bytes are no text, whatever was said of them."""
    head = data[:_LOOKED_AT]
    return b"\0" in head and not head.startswith(tuple(mark for mark, _ in _MARKS)) and not _like_utf16(head)


def _like_utf16(head: bytes) -> bool:
    """Every other byte a zero: plain text in two bytes a character, without a mark."""
    return len(head) >= 4 and any(set(head[at::2]) == {0} and 0 not in head[1 - at :: 2] for at in (0, 1))


def decode(data: bytes, charset: str, *, html: bool) -> str:
    """The text. Bytes that do not fit become U+FFFD, so that one of them does not hide a page."""
    for mark, name in _MARKS:
        if data.startswith(mark):
            return _decoded(data, name)
    head = data[:_LOOKED_AT]
    found = (_IN_PAGE.search(head) if html else None) or _IN_XML.search(head)
    for said in (charset, found[1].decode("ascii") if found else ""):
        name = _known(said)
        # What a page says of itself is read as bytes of ASCII, so it is no UTF-16.
        if name and (said is charset or not name.startswith("utf-16")):
            return _decoded(data, name)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        guess = from_bytes(data[:_GUESSED_FROM]).best()
        return _decoded(data, (guess and _known(guess.encoding)) or "cp1252")


def _decoded(data: bytes, name: str) -> str:
    """Decode in pieces, between which other threads run."""
    decoder = codecs.getincrementaldecoder(name)("replace")
    starts = range(0, len(data), _DECODED_TOGETHER)
    texts = [decoder.decode(data[start : start + _DECODED_TOGETHER]) for start in starts]
    return "".join([*texts, decoder.decode(b"", final=True)])


def _known(label: str) -> str:
    try:
        name = codecs.lookup(label.strip()).name if label.strip() and label.isascii() else ""
    except (LookupError, ValueError):
        return ""
    return _MEANT.get(name, name) if _KNOWN.fullmatch(name) else ""
