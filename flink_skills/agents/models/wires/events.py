"""Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["EventData"]

_MAX_EVENT = 16 << 20


class EventData:
    """Finds the data of the events in the pieces of a stream. Names, ids and comments of events are ignored.

    >>> events = EventData()
    >>> list(events.feed(b"data: one\\n\\nda")), list(events.feed(b"ta: two\\r\\n\\r\\n"))
    ([b'one'], [b'two'])
    """

    def __init__(self) -> None:
        # The start of a line. It is searched once, because the pieces may be a byte each.
        self._begun = bytearray()
        self._lines: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Return the data of the events that ``piece`` ends. Raises :class:`ValueError` for an event above 16 MiB."""
        if not (b"\n" in piece or b"\r" in piece or self._begun.endswith(b"\r")):
            self._begun += piece
            self._check_size()
            return
        text = bytes(self._begun) + piece
        # A CR at the end may be the first half of a line end.
        held = b"\r" if text.endswith(b"\r") else b""
        lines = (
            (text[: len(text) - len(held)] if held else text).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        )
        self._begun = bytearray(lines.pop() + held)
        for line in lines:
            if line:
                self._line(line)
            elif self._lines:
                yield b"\n".join(self._lines)
                self._lines, self._size = [], 0
        self._check_size()

    def _check_size(self) -> None:
        if self._size + len(self._begun) > _MAX_EVENT:
            raise ValueError(f"an event of its stream has more than {_MAX_EVENT:,} bytes")

    def _line(self, line: bytes) -> None:
        if line.startswith(b"data"):
            name, _, value = line.partition(b":")
            if name == b"data":
                value = value.removeprefix(b" ")
                self._lines.append(value)
                self._size += len(value)
