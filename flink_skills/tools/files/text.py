"""Bytes of files as text, and back without changing what was not touched."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Literal

from flink_skills.tools.arguments import ArgumentError

__all__ = ["Encoding", "decode", "detect", "is_binary"]

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before that of UTF-16, which begins it
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Of a guess only these: each is in wide use, and decodes to the same text for everybody.
_GUESSES = ["cp1252", "cp1250", "cp1251", "gb18030", "big5", "shift_jis", "euc_jp", "euc_kr", "koi8_r"]
_SAMPLE = 64 << 10
_LOOKED_AT = 8192
# Shares of NUL bytes in text of Latin letters in UTF-16, in one half of the bytes and in the other.
_MANY, _FEW = 0.4, 0.05


@dataclass(frozen=True)
class Encoding:
    """How a file is encoded: the name of a codec, and the mark at its beginning."""

    name: str = "utf-8"
    bom: bytes = b""

    def encode(self, text: str) -> bytes:
        """``text`` in this encoding, without the mark; raises :class:`ArgumentError` where it cannot be."""
        try:
            return text.encode(self.name)
        except UnicodeEncodeError as error:
            bad = text[error.start : error.start + 1]
            if "\ud800" <= bad <= "\udfff":
                raise ArgumentError(f"The text holds half a character ({bad!r}): write it without.") from None
            raise ArgumentError(
                f"The file is encoded as {self.name}, which has no {bad!r}: use other characters, or convert the file "
                f"first (iconv -f {self.name} -t utf-8)."
            ) from None


def decode(data: bytes, encoding: Encoding, errors: Literal["strict", "replace"] = "strict") -> str:
    """The text of a file's bytes. Raises :class:`UnicodeDecodeError`."""
    return (
        data[len(encoding.bom) :].decode(encoding.name, errors)
        if data.startswith(encoding.bom)
        else data.decode(encoding.name, errors)
    )


def detect(data: bytes, *, whole: bool = True) -> Encoding | None:
    """The encoding of a file that begins with ``data``, or is it (``whole``); None for what is no text.

    By its mark; else UTF-8 where that fits; UTF-16 by where its zeros are; else the likeliest of the older ones, and
    at last ``latin-1``, which fits anything.

    >>> detect("grün".encode("utf-16")).name, detect("grün".encode()).name
    ('utf-16-le', 'utf-8')
    """
    for bom, name in _BOMS:
        if data.startswith(bom) and _fits(data[len(bom) :], name, whole=whole):
            return Encoding(name, bom)
    if is_binary(data):
        name = _utf16(data[:_LOOKED_AT])
        return Encoding(name) if name and _fits(data, name, whole=whole) else None
    if _fits(data, "utf-8", whole=whole):
        return Encoding()
    return Encoding(_guessed(data, whole=whole))


def is_binary(data: bytes) -> bool:
    """Whether a file that begins with ``data`` holds zeros, as no text does but one of 16 or 32 bits."""
    return b"\0" in data[:_LOOKED_AT]


def _utf16(data: bytes) -> str:
    even, odd = data[::2], data[1::2]
    if not odd:
        return ""
    zeros = even.count(0) / len(even), odd.count(0) / len(odd)
    if zeros[0] < _FEW and zeros[1] > _MANY:
        return "utf-16-le"
    return "utf-16-be" if zeros[1] < _FEW and zeros[0] > _MANY else ""


def _guessed(data: bytes, *, whole: bool) -> str:
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        return "latin-1"
    best = from_bytes(data[:_SAMPLE], cp_isolation=_GUESSES, enable_fallback=False).best()
    if best is None or not _fits(data, best.encoding, whole=whole):
        return "latin-1"
    try:
        # Some codecs read bytes that they would write differently.
        same = data.decode(best.encoding).encode(best.encoding) == data
    except UnicodeError:
        same = not whole
    return best.encoding if same else "latin-1"


def _fits(data: bytes, name: str, *, whole: bool) -> bool:
    try:
        codecs.getincrementaldecoder(name)().decode(data, final=whole)
    except UnicodeDecodeError:
        return False
    return True
