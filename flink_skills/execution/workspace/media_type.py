"""What a file is, as far as its name and its beginning tell: the same on every machine."""

from __future__ import annotations

import mimetypes
from pathlib import PurePosixPath

BINARY = "application/octet-stream"
TEXT = "text/plain"

# None of the machine's own tables. What is here differs between Python's releases, or is not in them.
_KNOWN = mimetypes.MimeTypes(filenames=())
_MORE = {
    ".avro": "application/vnd.apache.avro",
    ".csv": "text/csv",
    ".gz": "application/gzip",
    ".ipynb": "application/json",
    ".jpg": "image/jpeg",
    ".js": "text/javascript",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".log": TEXT,
    ".md": "text/markdown",
    ".ndjson": "application/x-ndjson",
    ".parquet": "application/vnd.apache.parquet",
    ".py": "text/x-python",
    ".sh": "text/x-shellscript",
    ".sql": "application/sql",
    ".svg": "image/svg+xml",
    ".toml": "application/toml",
    ".tsv": "text/tab-separated-values",
    ".webp": "image/webp",
    ".xml": "application/xml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}
_BEGINNINGS = (
    (b"%PDF-", "application/pdf"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"PAR1", "application/vnd.apache.parquet"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_TEXTS_OF_APPLICATIONS = frozenset(
    f"application/{kind}"
    for kind in ("json", "jsonl", "x-ndjson", "xml", "yaml", "toml", "sql", "javascript", "x-sh", "x-tex")
)
_SNIFFED = 8192
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b"))


def media_type(name: str, head: bytes) -> str:
    """The media type of the file ``name`` that begins with ``head``; a name that says text is not believed blindly.

    >>> media_type("out/a.csv", b"x,y"), media_type("out/a.csv", bytes(4)), media_type("notes", b"hello")
    ('text/csv', 'application/octet-stream', 'text/plain')
    """
    suffix = PurePosixPath(name).suffix.lower()
    # A double suffix such as .tar.gz is what its last part says.
    known = _MORE.get(suffix) or _KNOWN.guess_type(f"file{suffix}", strict=False)[0] or ""
    text = is_text(head)
    if known and (text or not _says_text(known)):
        return known
    return next((kind for start, kind in _BEGINNINGS if head.startswith(start)), TEXT if text else BINARY)


def recognized_type(head: bytes) -> str:
    """Return the media type that the first bytes of a file prove, without its name. Return "" if they prove none.

    >>> recognized_type(b"\\x89PNG\\r\\n\\x1a\\n"), recognized_type(b"hello")
    ('image/png', '')
    """
    if head[:4] == b"RIFF" and head[8:12] in _RIFF:
        return _RIFF[head[8:12]]
    if head[:3] == b"ID3" or (len(head) > 2 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2 and head[2] >> 4 != 15):
        # A tag, or the header of a frame of layer III.
        return "audio/mpeg"
    return next((kind for start, kind in _BEGINNINGS if head.startswith(start)), "")


def is_text(data: bytes) -> bool:
    """Whether bytes are UTF-8 text: no control characters in the beginning, and decodable but for a cut character.

    >>> is_text("für".encode()), is_text(b"\\x00\\x01"), is_text("ü".encode()[:1])
    (True, False, True)
    """
    head = data[:_SNIFFED]
    if head.translate(None, _CONTROL) != head:
        return False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return True


def _says_text(kind: str) -> bool:
    return kind.startswith("text/") or kind.endswith(("+json", "+xml")) or kind in _TEXTS_OF_APPLICATIONS
