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

_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_RAW_DEFLATE = -zlib.MAX_WBITS
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_AS_IS = frozenset(
    f"application/{name}"
    for name in ("ecmascript", "javascript", "json", "ld+json", "ndjson", "toml", "x-ndjson", "x-yaml", "xml", "yaml")
)
_IN_PAGE = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_IN_XML = re.compile(rb"""^\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]{1,40})""")
_HEAD_BYTES = 2048
_GUESS_BYTES = 65_536
# A decoder lets no other thread run: bytes that do not fit take a second for 5 MB.
_PART_BYTES = 65_536
_MAX_HEADER = 1_000
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Python knows more, among them some that take hours for a page that was made for it (punycode).
_CODECS = re.compile(
    r"utf-(8|16|16-le|16-be)|ascii|iso8859-\d{1,2}|cp(125\d|437|8\d\d|9[345]\d|1361)|koi8-[rtu]|mac-\w+|gb2312|gbk|gb18030|hz"
    r"|big5|big5hkscs|euc_\w+|shift_jis\w*|iso2022_\w+|johab|tis-620"
)
# Pages that say these mean the page of Windows, which has more characters and the same others.
_SUPERSETS = {"ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030", "gbk": "gb18030"}
_SECONDS = 5.0
# Processes that wait for the next page. Others end after their page.
_KEPT = 1
# The process gets the import path of this one, and no environment: its libraries read hostile text.
_PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; import runpy; runpy.run_path(sys.argv[1], run_name='__main__')"


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
    coding = _coding(response)
    unpacker = _Unpacker(coding) if coding else None
    data = bytearray()
    received = 0
    async for part in response.aiter_raw():
        part, received = part[: limit - received], received + len(part)  # noqa: PLW2901
        # One byte more than the limit shows that there is more.
        data += unpacker.unpack(part, limit - len(data) + 1) if unpacker else part
        if received > limit or len(data) > limit:
            return ReadBody(bytes(data[:limit]), True)
    if unpacker and data and not unpacker.is_complete:
        raise WebError("DECODE_ERROR", "the packed body ends too early; try again")
    return ReadBody(bytes(data), False)


def _coding(response: httpx2.Response) -> str:
    """Return the only packing: several, each within the other, turn few bytes into hours of unpacking."""
    names = [name.strip().lower() for name in response.headers.get("Content-Encoding", "").split(",")]
    names = [name for name in names if name not in ("", "identity")]
    if len(names) > 1 or (names and names[0] not in ("gzip", "x-gzip", "deflate")):
        raise WebError(
            "DECODE_ERROR", f"the body is packed as {', '.join(names)[:80]!r}; only gzip and deflate are read"
        )
    return names[0] if names else ""


class _Unpacker:
    """Unpacks the parts of a body. Bytes after the end of the packed data are ignored."""

    def __init__(self, coding: str) -> None:
        self._may_be_raw = coding == "deflate"
        self._zlib: Any = zlib.decompressobj(_GZIP_OR_ZLIB)

    @property
    def is_complete(self) -> bool:
        return bool(self._zlib.eof)

    def unpack(self, part: bytes, limit: int) -> bytes:
        """Return at most ``limit`` bytes of the unpacked part. Raises :class:`WebError`."""
        first, self._may_be_raw = self._may_be_raw, False
        try:
            return b"" if self._zlib.eof else bytes(self._zlib.decompress(part, limit))
        except zlib.error as error:
            if first:
                # Some servers send as deflate what has no header of zlib.
                self._zlib = zlib.decompressobj(_RAW_DEFLATE)
                return self.unpack(part, limit)
            message = f"the body cannot be unpacked ({error}); the server sends it broken"
            raise WebError("DECODE_ERROR", message) from None


def media_type_of(content_type: str) -> str:
    """Return ``text/html`` for ``Text/HTML; charset=utf-8``."""
    return content_type.partition(";")[0].strip().lower()


def charset_of(content_type: str) -> str:
    """Return the charset parameter, or an empty string."""
    header = Message()
    # The parser of headers takes quadratic time for some.
    header["Content-Type"] = content_type[:_MAX_HEADER]
    return str(header.get_param("charset") or "")


def kind_of(media_type: str) -> str:
    """Return ``html``, ``text`` for what is returned verbatim, or an empty string for other types."""
    if media_type in _HTML:
        return "html"
    suffixed = media_type.startswith("application/") and media_type.endswith(("+json", "+xml", "+yaml"))
    return "text" if media_type.startswith("text/") or media_type in _AS_IS or suffixed else ""


def is_binary(data: bytes) -> bool:
    """Return True if the bytes are not text."""
    head = data[:_HEAD_BYTES]
    return b"\0" in head and not head.startswith(tuple(mark for mark, _ in _BOMS)) and not _is_utf16(head)


def _is_utf16(head: bytes) -> bool:
    """Return True if every other byte is a zero, as in UTF-16 without a mark."""
    return len(head) >= 4 and any(set(head[at::2]) == {0} and 0 not in head[1 - at :: 2] for at in (0, 1))


def decode(data: bytes, charset: str, *, html: bool) -> str:
    """Return the text. Invalid bytes become U+FFFD, so that one of them does not hide a page."""
    for mark, name in _BOMS:
        if data.startswith(mark):
            return _decode_parts(data, name)
    head = data[:_HEAD_BYTES]
    found = (_IN_PAGE.search(head) if html else None) or _IN_XML.search(head)
    for label in (charset, found[1].decode("ascii") if found else ""):
        name = _codec(label)
        # The declaration in a page is read as ASCII, so the page is not UTF-16.
        if name and (label is charset or not name.startswith("utf-16")):
            return _decode_parts(data, name)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        guess = from_bytes(data[:_GUESS_BYTES]).best()
        return _decode_parts(data, (guess and _codec(guess.encoding)) or "cp1252")


def _decode_parts(data: bytes, name: str) -> str:
    """Decode in pieces, between which other threads run."""
    decoder = codecs.getincrementaldecoder(name)("replace")
    starts = range(0, len(data), _PART_BYTES)
    texts = [decoder.decode(data[start : start + _PART_BYTES]) for start in starts]
    return "".join([*texts, decoder.decode(b"", final=True)])


def _codec(label: str) -> str:
    try:
        name = codecs.lookup(label.strip()).name if label.strip() and label.isascii() else ""
    except (LookupError, ValueError):
        return ""
    return _SUPERSETS.get(name, name) if _CODECS.fullmatch(name) else ""


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
