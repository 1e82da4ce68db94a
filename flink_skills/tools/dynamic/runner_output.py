"""Output of a program that runs a skill's tools: one line as the answer, and the printed text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from flink_skills.execution.process_streams import gap_text

__all__ = ["PrintedText", "RunnerOutput"]

_HEAD_BYTES = 1_024
_TAIL_BYTES = 3_072
# Much more than anybody reads, and little enough for the worker to throw away.
_MAX_PRINTED_BYTES = 8 << 20


class PrintedText:
    """The beginning and the end of an output of any length.

    >>> text = PrintedText(head=1, tail=2)
    >>> text.add(b"abcdef")
    >>> text.read()
    (b'a\\n[... 3 bytes left out ...]\\nef', 3)
    """

    def __init__(self, *, head: int = _HEAD_BYTES, tail: int = _TAIL_BYTES) -> None:
        self._most_head, self._most_tail = head, tail
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, data: bytes) -> None:
        room = self._most_head - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        over = len(self._tail) - self._most_tail
        if over > 0:
            del self._tail[:over]
            self._dropped += over

    @property
    def size(self) -> int:
        """All bytes that came."""
        return len(self._head) + self._dropped + len(self._tail)

    def holds(self, data: bytes) -> bool:
        """Whether ``data`` is in what is kept."""
        return data in self._tail or (not self._dropped and data in self._head + self._tail)

    def read(self) -> tuple[bytes, int]:
        """The text with a line in place of what is missing, and how many bytes that are."""
        return bytes(self._head) + gap_text(self._dropped) + bytes(self._tail), self._dropped


class RunnerOutput:
    """Collects the output of a program for one request at a time.

    A program that says what nobody asked for, more than one line, or too much, is ``broken``: ``on_broken`` is called,
    and what it says afterwards could pass for the answer to another request.
    """

    def __init__(self) -> None:
        self.broken = False
        self.on_broken: Callable[[], None] = lambda: None
        self.too_long = False
        self.answered = asyncio.Event()
        self.all_printed = asyncio.Event()
        self._asked = False
        self._line = bytearray()
        self._room = 0
        self._mark = b""
        self._opening = b""
        self._printed = PrintedText()

    def expect(self, room: int, mark: bytes, opening: bytes) -> None:
        """A request goes out.

        Its answer has at most ``room`` bytes and begins with ``opening``, and ``mark`` is the end of what it prints.
        """
        self._asked = True
        self._line.clear()
        self._room, self._mark, self._opening = room, mark, opening
        self._printed = PrintedText()
        self.answered.clear()
        self.all_printed.clear()

    def expect_nothing(self) -> None:
        """The request is over."""
        self._asked = False

    @property
    def line(self) -> bytes | None:
        """The answer; None if there is none."""
        return bytes(self._line) if self._line.endswith(b"\n") and not self.broken else None

    def printed(self) -> tuple[bytes, int]:
        """What was printed without the mark, and how many bytes of it are missing."""
        text, dropped = self._printed.read()
        return text.replace(self._mark, b""), dropped

    def add(self, stream: int, data: bytes) -> None:
        """Take a piece of the output: 1 for answers, 2 for what is printed."""
        if stream == 1:
            self._add_answer(data)
            return
        self._printed.add(data)
        if self._printed.size > _MAX_PRINTED_BYTES:
            self.too_long = True
            self._break()
        elif self._mark and self._printed.holds(self._mark):
            self.all_printed.set()

    def _add_answer(self, data: bytes) -> None:
        if not self._asked or self._line.endswith(b"\n") or b"\n" in data[:-1]:
            self._break()
            return
        self._line += data
        if len(self._line) > self._room + 1:
            self.too_long = True
            self._break()
        elif self._line.endswith(b"\n"):
            if self._line.startswith(self._opening):
                self.answered.set()
            else:
                self._break()

    def _break(self) -> None:
        self.broken = True
        self.answered.set()
        self.on_broken()
