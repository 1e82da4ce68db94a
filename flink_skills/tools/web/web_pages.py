"""Bodies of web pages: read within limits, decoded, and converted from HTML to Markdown in a separate process."""

from __future__ import annotations

import codecs
import json
import os
import re
import subprocess
import sys
import threading
import zlib
from contextlib import suppress
from email.message import Message
from typing import IO, Any, NamedTuple, cast

import httpx2
from charset_normalizer import from_bytes

from flink_skills.tools.web import page_conversion
from flink_skills.tools.web.addresses import WebError

__all__ = ["ReadBody", "charset_of", "decode", "is_binary", "kind_of", "media_type_of", "read_body", "to_markdown"]

_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_RAW_DEFLATE = -zlib.MAX_WBITS


class ReadBody(NamedTuple):
    """An unpacked body. ``is_cut`` is True for the beginning of a larger one."""

    data: bytes
    is_cut: bool


async def read_body(response: httpx2.Response, limit: int) -> ReadBody:
    """Return the unpacked body, or its beginning if it has more than ``limit`` bytes, packed or unpacked.

    0 means no limit. Raises :class:`WebError` for a broken body.
    """
    limit = limit or sys.maxsize - 1
    if response.is_stream_consumed:  # by a hook of the client
        return ReadBody(response.content[:limit], len(response.content) > limit)
    body = _Body(_coding(response), limit)
    received = 0
    async for part in response.aiter_raw():
        room = limit - received
        received += len(part)
        body.add(part[:room])
        if received > limit or body.is_full:
            return ReadBody(body.beginning(), True)
    return ReadBody(body.end(), False)


def _coding(response: httpx2.Response) -> str:
    """One packing at most: several, each within the other, turn few bytes into hours of unpacking."""
    names = [name.strip().lower() for name in response.headers.get("Content-Encoding", "").split(",")]
    names = [name for name in names if name not in ("", "identity")]
    if len(names) > 1 or (names and names[0] not in ("gzip", "x-gzip", "deflate")):
        raise WebError(
            "DECODE_ERROR", f"the body is packed as {', '.join(names)[:80]!r}; only gzip and deflate are read"
        )
    return names[0] if names else ""


class _Body:
    """Bytes as they come. Never unpacks more than the limit, and one byte to know that there is more."""

    def __init__(self, coding: str, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()
        self._packed = bool(coding)
        self._may_be_raw = coding == "deflate"
        self._unpack: Any = zlib.decompressobj(_GZIP_OR_ZLIB)

    def add(self, part: bytes) -> None:
        if self._packed:
            part = self._unpacked(part)
        self._data += part

    @property
    def is_full(self) -> bool:
        """True if the body has more bytes than the limit."""
        return len(self._data) > self._limit

    def beginning(self) -> bytes:
        """Return the bytes within the limit."""
        return bytes(self._data[: self._limit])

    def _unpacked(self, part: bytes) -> bytes:
        room = self._limit - len(self._data) + 1
        first, self._may_be_raw = self._may_be_raw, False
        try:
            return self._decompress(part, room)
        except zlib.error as error:
            if first:
                # Some servers call deflate what lacks the header of zlib.
                self._unpack = zlib.decompressobj(_RAW_DEFLATE)
                return self._unpacked(part)
            raise WebError(
                "DECODE_ERROR", f"the body cannot be unpacked ({error}); the server sends it broken"
            ) from None

    def _decompress(self, part: bytes, room: int) -> bytes:
        if self._unpack.eof:  # what stands behind the end is not looked at
            return b""
        return bytes(self._unpack.decompress(part, room))

    def end(self) -> bytes:
        if self._packed and self._data and not self._unpack.eof:
            raise WebError("DECODE_ERROR", "the packed body ends too early; try again")
        return bytes(self._data)


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


_SECONDS = 5.0
# Processes that wait for the next page. Others end after their page.
_KEPT = 1
# The process gets the import path of this one, and no environment: its libraries read hostile text.
_PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; import runpy; runpy.run_path(sys.argv[1], run_name='__main__')"


def to_markdown(text: str, base_url: str, *, seconds: float = _SECONDS) -> str:
    """Return the page as Markdown, without what is not shown, and with absolute links.

    The libraries hold Python's lock, and a hostile page takes them minutes. So they run in another process, which the
    kernel ends after ``seconds`` of CPU time. The call blocks: call it in a thread.

    Raises :class:`WebError` for a page that takes longer, or that cannot be converted.

    >>> to_markdown("<h1>Hi</h1><script>x()</script><p>See <a href='b'>b</a>.", "https://example.org/a")
    '# Hi\\n\\nSee [b](https://example.org/b).'
    """
    answer = _processes.answer({"page": text, "base_url": base_url, "seconds": seconds})
    if answer is None:
        raise WebError(
            "DECODE_ERROR",
            f"the page takes more than {seconds:g} s of CPU time to convert to text, or ends it; use another page",
        )
    if "problem" in answer:
        raise WebError("DECODE_ERROR", f"{answer['problem']}; use another page")
    return answer["markdown"]


class _Processes:
    """Keeps a process between pages, because its start takes longer than most pages."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[subprocess.Popen[bytes]] = []
        os.register_at_fork(after_in_child=self._forget)

    def answer(self, request: dict[str, object]) -> dict[str, str] | None:
        """Return the answer of a process, or None if it ended before."""
        with self._lock:
            process = self._idle.pop() if self._idle else None
        process = process if process and process.poll() is None else _start()
        stdin, stdout = cast("tuple[IO[bytes], IO[bytes]]", (process.stdin, process.stdout))
        line = b""
        try:
            with suppress(BrokenPipeError):
                stdin.write(json.dumps(request).encode("ascii") + b"\n")
                stdin.flush()
            line = stdout.readline()
        finally:
            # An exception in this thread leaves an answer that belongs to no later request.
            self._give_back(process, keep=line.endswith(b"\n"))
        return json.loads(line) if line.endswith(b"\n") else None

    def _give_back(self, process: subprocess.Popen[bytes], *, keep: bool) -> None:
        with self._lock:
            if keep and len(self._idle) < _KEPT:
                self._idle.append(process)
                return
        process.kill()
        with process:  # closes the pipes and waits for the end
            pass

    def _forget(self) -> None:
        self._lock, self._idle = threading.Lock(), []


def _start() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-c", _PROGRAM, page_conversion.__file__, *filter(None, sys.path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}, bufsize=-1)


_processes = _Processes()
