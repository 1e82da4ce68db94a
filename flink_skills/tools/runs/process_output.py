"""Output of a running process: text without hidden values and control characters, and its last lines."""

from __future__ import annotations

import codecs
import re
from collections import deque
from dataclasses import dataclass

from flink_skills.tools.commands.hidden import HIDDEN, HiddenValues

__all__ = ["START", "OutputRing", "Piece", "Position", "ShownText"]

_HIDDEN = HIDDEN.encode()
# HiddenValues takes 3 bytes and more for the beginning of a value.
_UNTOLD_BYTES = 2
# ECMA-48: CSI sequences, strings (titles, links) with their terminator, and short ones.
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"
    r"|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|[ -/]+[0-~]"
    r"|[0-OQ-WYZ\\`a-~])"
)
_MAX_ESCAPE = 1_024
_LINE_END = re.compile(r"\r+\n|\r+")
# A tab, a line feed and what is handled above apart.
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]")


class ShownText:
    """Makes text of one stream of a process: without hidden values, escape sequences and control characters.

    What may be the beginning of a hidden value, a character, a sequence or a line end is kept back until it is known.
    A carriage return begins a new line.

    >>> hidden = HiddenValues()
    >>> hidden.add("skills.env.report.TOKEN", "t0k3n-1")
    >>> text = ShownText(hidden)
    >>> text.add(b"a \\x1b[1mt0k"), text.add(b"3n-1\\x1b[0m\\r\\nt0k3"), text.end()
    ('a ', '[hidden]\\n', '[hidden]')
    """

    def __init__(self, hidden: HiddenValues) -> None:
        # As they come, and again as they are shown: colours may be in the middle of a value.
        self._values, self._shown_values = _WithoutValues(hidden), _WithoutValues(hidden)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._shown_decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._open = ""

    def add(self, data: bytes) -> str:
        """What can be shown now that ``data`` has come."""
        text = self._clean(self._decoder.decode(self._values.add(data)), ended=False)
        return self._shown_decoder.decode(self._shown_values.add(text.encode()))

    def end(self) -> str:
        """What was kept back, when nothing more comes."""
        text = self._clean(self._decoder.decode(self._values.end(), final=True), ended=True)
        data = self._shown_values.add(text.encode()) + self._shown_values.end()
        return self._shown_decoder.decode(data, final=True)

    def _clean(self, text: str, *, ended: bool) -> str:
        text = self._open + text
        self._open = ""
        if "\x1b" in text:
            text = self._without_sequences(text, ended)
        elif text.endswith("\r") and not ended:
            text, self._open = text[:-1], "\r"
        if "\r" in text:
            text = _LINE_END.sub("\n", text)
        return _CONTROLS.sub("", text)

    def _without_sequences(self, text: str, ended: bool) -> str:
        text = _ESCAPE.sub("", text)
        begun = text.find("\x1b")
        if begun < 0:
            if text.endswith("\r") and not ended:
                text, self._open = text[:-1], "\r"
            return text
        if not ended and len(text) - begun <= _MAX_ESCAPE:
            # With a carriage return before it: what follows the sequence may be its line feed.
            while begun > 0 and text[begun - 1] == "\r":
                begun -= 1
            text, self._open = text[:begun], text[begun:]
        return text if "\x1b" not in text else text.replace("\x1b", "")


class _WithoutValues:
    """A stream of bytes without hidden values, also where a piece of it ends within one."""

    def __init__(self, hidden: HiddenValues) -> None:
        self._hidden = hidden
        # The last bytes as they came; ``_given`` of them were given away, as they are or hidden.
        self._context = b""
        self._given = 0

    def add(self, data: bytes) -> bytes:
        text = self._context + data
        known = len(text) - self._hidden.begun(text)
        out = self._without_given(text, self._hidden.in_bytes(text[:known]))
        start = max(0, known - _UNTOLD_BYTES)
        self._given = max(self._given, known) - start
        self._context = text[start:]
        return out

    def end(self) -> bytes:
        """What was kept back; a part of a value is hidden as well."""
        held = len(self._context) - self._given
        self._context, self._given = b"", 0
        return _HIDDEN if held else b""

    def _without_given(self, text: bytes, visible: bytes) -> bytes:
        given = self._given
        if visible.startswith(text[:given]):
            return visible[given:]
        # A value began in what was given away already: as few bytes of it as tell nothing.
        for size in range(given - 1, -1, -1):
            if visible.startswith(text[:size] + _HIDDEN):
                return visible[size:]
        return b""


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
