"""Recent output of a process: a bounded ring of lines with absolute positions."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

__all__ = ["START", "OutputRing", "Piece", "Position"]

_MAX_LINES = 20_000
# Lines may be long, and a worker has many processes.
_MAX_CHARS = 2 << 20
# A program that prints sign by sign must not make a block of each.
_BLOCK_CHARS = 4_096


@dataclass(frozen=True)
class Position:
    """A place in all that was printed: the number of its line, from 0, and of its character."""

    line: int
    char: int


START = Position(0, 0)


@dataclass(frozen=True)
class Piece:
    """Part of the output: ``text`` from ``begin`` to ``end``.

    ``lost`` is how many lines between the wanted beginning and ``begin`` were dropped, ``left`` how many there are
    after ``end``; a line that has not ended counts.
    """

    text: str
    begin: Position
    end: Position
    lost: int = 0
    left: int = 0


@dataclass
class _Block:
    begin: Position
    text: str
    lines: int


class OutputRing:
    """The last 20,000 lines, and not more than 2 Mi characters, of what is added; the oldest are dropped.

    >>> ring = OutputRing()
    >>> ring.add("one\\ntwo\\nthr")
    >>> piece = ring.read(START, lines=1)
    >>> piece.text, piece.end.line, piece.left
    ('one\\n', 1, 2)
    """

    def __init__(self, most_lines: int = _MAX_LINES, most_chars: int = _MAX_CHARS) -> None:
        self._most_lines = most_lines
        self._most_chars = most_chars
        self._blocks: deque[_Block] = deque()
        self._end = START

    @property
    def end(self) -> Position:
        """The place after the last character; its line has not ended."""
        return self._end

    def add(self, text: str) -> None:
        """Add what was printed. Takes as long as ``text``, however much there is already."""
        if not text:
            return
        lines = text.count("\n")
        last = self._blocks[-1] if self._blocks else None
        if last is not None and len(last.text) < _BLOCK_CHARS:
            last.text += text
            last.lines += lines
        else:
            self._blocks.append(_Block(self._end, text, lines))
        self._end = Position(self._end.line + lines, self._end.char + len(text))
        while len(self._blocks) > 1 and self._is_over(self._blocks[1].begin):
            self._blocks.popleft()

    def _is_over(self, begin: Position) -> bool:
        """Whether what begins there is more than enough by itself."""
        return self._end.line - begin.line >= self._most_lines or self._end.char - begin.char >= self._most_chars

    def read(self, wanted: Position, *, lines: int | None = None, chars: int | None = None) -> Piece:
        """What was printed from ``wanted`` on, the oldest first: at most so many lines and characters."""
        begin = self._first_kept(wanted)
        rest_lines = self._end.line - begin.line if lines is None else lines
        rest_chars = self._end.char - begin.char if chars is None else chars
        parts: list[str] = []
        for block in self._blocks:
            if rest_lines < 0 or rest_chars <= 0:
                break
            skipped = max(0, begin.char - block.begin.char)
            if skipped >= len(block.text):
                continue
            part = block.text[skipped : skipped + rest_chars]
            found = part.count("\n")
            if lines is not None and found >= rest_lines:
                part = part[: _after_lines(part, rest_lines)]
                parts.append(part)
                break
            rest_lines -= found
            rest_chars -= len(part)
            parts.append(part)
        text = "".join(parts)
        end = Position(begin.line + text.count("\n"), begin.char + len(text))
        lost = begin.line - wanted.line if begin.char > wanted.char else 0
        return Piece(text, begin, end, lost, self._lines_after(end))

    def tail(self, since: Position, chars: int) -> str:
        """The last ``chars`` characters of what came after ``since``."""
        begin = max(since.char, self._end.char - chars)
        parts: list[str] = []
        for block in reversed(self._blocks):
            parts.append(block.text[max(0, begin - block.begin.char) :])
            if block.begin.char <= begin:
                break
        return "".join(reversed(parts))

    def _first_kept(self, wanted: Position) -> Position:
        """``wanted``, or where the lines begin that are still kept, if that is later."""
        if not self._blocks:
            return wanted
        block = self._blocks[0]
        # Blocks are dropped as a whole, so the first one may hold a few lines too many.
        spare = max(0, self._end.line - block.begin.line - self._most_lines)
        chars = _after_lines(block.text, spare)
        chars = max(chars, min(len(block.text), self._end.char - block.begin.char - self._most_chars))
        first = Position(block.begin.line + block.text.count("\n", 0, chars), block.begin.char + chars)
        return first if first.char > wanted.char else wanted

    def _lines_after(self, place: Position) -> int:
        if place.char == self._end.char:
            return 0
        ends_open = not self._blocks[-1].text.endswith("\n")
        return self._end.line - place.line + ends_open


def _after_lines(text: str, lines: int) -> int:
    """How many characters the first ``lines`` lines of ``text`` have; all if there are fewer."""
    if lines <= 0:
        return 0
    parts = text.split("\n", lines)
    return len(text) - (len(parts[-1]) if len(parts) > lines else 0)
