"""Text of files: encodings, whole files, and pages of lines of files of any size."""

from __future__ import annotations

import codecs
import os
import re
import time
from dataclasses import dataclass
from typing import Literal

from flink_skills.tools.arguments import ArgumentError

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before that of UTF-16, which begins it
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Encodings that are guessed. Each is common, and decodes to the same text everywhere.
_GUESSES = ["cp1252", "cp1250", "cp1251", "gb18030", "big5", "shift_jis", "euc_jp", "euc_kr", "koi8_r"]
_SAMPLE = 64 << 10
_LOOKED_AT = 8192
# Shares of NUL bytes in text of Latin letters in UTF-16, in one half of the bytes and in the other.
_MANY, _FEW = 0.4, 0.05


@dataclass(frozen=True)
class Encoding:
    """Encoding of a file: a codec name, and the byte order mark."""

    name: str = "utf-8"
    bom: bytes = b""

    def encode(self, text: str) -> bytes:
        """Return the bytes of ``text`` without the mark. Raises :class:`ArgumentError` if it cannot be encoded."""
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
    """Return the encoding of a file that starts with ``data``, or is ``data`` (``whole``).

    The first that fits of: its mark, UTF-16 by the positions of zeros, UTF-8, the most likely of the older encodings,
    and ``latin-1``. Return None if it is not text.

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
    """Return True if a file's start contains zeros. Of texts, only UTF-16 and UTF-32 do."""
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


#: Largest file that is read as a whole, in bytes.
MAX_BYTES = 10 << 20
#: Most lines, and most characters of them, that one call gives.
MAX_LINES = 10_000
MAX_CHARS = 256 << 10

_CHUNK = 1 << 20
_BLOCK = 64 << 10
_SECONDS = 20.0
_LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True)
class LinePage:
    """Lines ``first`` (from 1) and following ones; ``total`` is how many the file has.

    ``cut`` is how long the last line is, in characters (bytes in a file that is not read as a whole), where only its
    beginning is there; else 0.
    """

    lines: list[str]
    first: int
    total: int
    encoding: str
    cut: int = 0

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1


def load(descriptor: int) -> tuple[str, Encoding]:
    """The whole text of a file of at most 10 MB, with its line ends. Raises :class:`ArgumentError`."""
    size = os.fstat(descriptor).st_size
    data = _read(descriptor, MAX_BYTES + 1)
    return _whole(data, max(size, len(data)))


def read_page(descriptor: int, start: int, end: int | None) -> LinePage:
    """The lines from ``start`` to ``end``, as many as one call gives. Raises :class:`ArgumentError`."""
    size = os.fstat(descriptor).st_size
    if size > MAX_BYTES:
        last = min(start + MAX_LINES - 1, end if end is not None else start + MAX_LINES - 1)
        return _streamed(descriptor, start, last, size)
    text, encoding = load(descriptor)
    return page_of_text(text, start, end, encoding.name)


def page_of_data(data: bytes, start: int, end: int | None) -> LinePage:
    """The lines of a file's whole content, as :func:`read_page` returns them. Raises :class:`ArgumentError`."""
    text, encoding = _whole(data, len(data))
    return page_of_text(text, start, end, encoding.name)


def page_of_text(text: str, start: int, end: int | None, encoding: str = "utf-8") -> LinePage:
    """The lines of a file's whole text, as :func:`read_page` returns them.

    >>> page_of_text("a\\nb\\n", 2, None).lines
    ['b']
    """
    last = min(start + MAX_LINES - 1, end if end is not None else start + MAX_LINES - 1)
    number, begin = 1, 0
    # In blocks: one split would hold Python's lock until it ends.
    while number < start and begin < len(text):
        end_of_block = begin + _BLOCK
        if text[end_of_block - 1 : end_of_block + 1] == "\r\n":
            end_of_block += 1
        if (more := _line_ends(text, begin, end_of_block)) >= start - number:
            break
        number, begin = number + more, end_of_block
    lines, at = list[str](), begin
    for found in _LINE_END.finditer(text, begin):
        if number > last:
            break
        if number >= start:
            lines.append(text[at : found.start()])
        number, at = number + 1, found.end()
    if start <= number <= last and at < len(text):
        lines.append(text[at:])
    page, cut = _fitting(lines)
    total = _line_ends(text, 0, len(text)) + (bool(text) and text[-1] not in "\r\n")
    return LinePage(page, start, total, encoding, cut)


def _line_ends(text: str, begin: int, end: int) -> int:
    """Count line ends (LF, CR, CRLF) from ``begin`` to ``end``."""
    return text.count("\n", begin, end) + text.count("\r", begin, end) - text.count("\r\n", begin, end)


def _streamed(descriptor: int, start: int, last: int, size: int) -> LinePage:
    """Of a file that is too large to be in memory. Its lines end with a line feed."""
    head = os.pread(descriptor, 64 << 10, 0)
    encoding = detect(head, whole=False)
    if encoding is None:
        raise ArgumentError(_binary(size))
    if encoding.name.startswith(("utf-16", "utf-32")):
        raise ArgumentError(
            f"The file has {size} bytes of {encoding.name}, and above {MAX_BYTES} bytes only files whose lines end "
            f"with a plain line feed are read in parts: convert it first (iconv -f {encoding.name} -t utf-8)."
        )
    number, wanted_bytes, max_bytes, deadline = 1, bytearray(), MAX_CHARS * 4, time.monotonic() + _SECONDS
    ended = True
    while chunk := os.read(descriptor, _CHUNK):
        if time.monotonic() > deadline:
            raise ArgumentError(f"The file has {size} bytes and takes too long to read: use Bash (sed -n '1,99p').")
        at = 0
        if number <= last:
            # Skip to the line that is wanted_bytes, and take what is needed of this chunk.
            while number < start and (found := chunk.find(b"\n", at)) >= 0:
                number, at = number + 1, found + 1
            while start <= number <= last and at < len(chunk):
                found = chunk.find(b"\n", at)
                until = len(chunk) if found < 0 else found + 1
                if len(wanted_bytes) <= max_bytes:
                    wanted_bytes += chunk[at:until]
                number, at = number + (found >= 0), until
        number += chunk.count(b"\n", at)
        ended = chunk.endswith(b"\n")
    total = number - ended
    text = decode(bytes(wanted_bytes), encoding if start == 1 else Encoding(encoding.name), "replace")
    lines = text.removesuffix("\n").split("\n") if text else []
    if len(wanted_bytes) > max_bytes and len(lines) > 1:
        lines.pop()  # perhaps not all of it
    page, cut = _fitting([line.removesuffix("\r") for line in lines])
    return LinePage(page, start, total, encoding.name, cut)


def _fitting(lines: list[str]) -> tuple[list[str], int]:
    """The first of ``lines``, as many as one call gives, and how long the last one is if it is cut."""
    room = MAX_CHARS
    for index, line in enumerate(lines):
        if len(line) > room:
            # A line that is longer than a whole page has to be cut: no other call would give it.
            return ([line[:MAX_CHARS]], len(line)) if index == 0 else (lines[:index], 0)
        room -= len(line) + 1
    return lines, 0


def _read(descriptor: int, limit: int) -> bytes:
    parts, left = [], limit
    while left > 0 and (part := os.read(descriptor, min(_CHUNK, left))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _whole(data: bytes, size: int) -> tuple[str, Encoding]:
    """Return the text of all bytes of a file. Raise :class:`ArgumentError` if they are too many, or not text."""
    if len(data) > MAX_BYTES:
        raise ArgumentError(f"The file has {size} bytes, and Read accepts at most {MAX_BYTES}.")
    encoding = detect(data)
    if encoding is None:
        raise ArgumentError(_binary(len(data)))
    return decode(data, encoding), encoding


def _binary(size: int) -> str:
    return f"The file is binary ({size} bytes), no text: look at it with a program, by Bash (file, xxd)."
