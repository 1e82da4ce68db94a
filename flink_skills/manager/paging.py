"""Parts of a text file that end where a reader would not be surprised."""

from __future__ import annotations

from typing import NamedTuple

from flink_skills.manager.activation import BASE_DIR

__all__ = ["ResourceText", "page_of"]

_WHOLE = (BASE_DIR.encode(), b"\r\n")


class ResourceText(NamedTuple):
    """Part of a file: ``next_offset`` is where the rest begins, None at the end; offsets are in bytes."""

    text: str
    offset: int
    next_offset: int | None
    total_bytes: int


def page_of(data: bytes, offset: int, total: int) -> ResourceText:
    """The page that ``data``, read at ``offset`` of a file of ``total`` bytes, begins with.

    It ends before a character, a line end or a ``__BASE_DIR__`` that would be cut, unless nothing would be left.

    >>> page_of("né".encode()[:2], 0, 3)
    ResourceText(text='n', offset=0, next_offset=1, total_bytes=3)
    """
    end = offset + len(data)
    if end < total:
        whole = _whole_characters(data)
        for piece in _WHOLE:
            cut = _cut_piece(data[:whole], piece)
            whole -= cut if cut < whole else 0
        end, data = offset + whole, data[:whole]
    text = data.decode(errors="replace").removeprefix("\ufeff")
    return ResourceText(text, offset, end if end < total else None, total)


def _cut_piece(data: bytes, piece: bytes) -> int:
    """How many bytes at the end of ``data`` may be the beginning of a ``piece`` that goes on behind it."""
    after = data.split(piece)[-1]  # the end of a whole piece is not the beginning of another one
    return next((size for size in range(len(piece) - 1, 0, -1) if after.endswith(piece[:size])), 0)


def _whole_characters(data: bytes) -> int:
    """Length of ``data`` without a character that is cut at its end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if needed > back else len(data)
    return len(data)
