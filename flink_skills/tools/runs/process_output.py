"""Output of a running process: text without hidden values and control characters, and its last lines."""

from __future__ import annotations

import codecs
import re
from collections import deque
from dataclasses import dataclass

from flink_skills.tools.commands.hidden import HIDDEN, HiddenValues

_HIDDEN = HIDDEN.encode()
# HiddenValues treats 3 bytes and more as the beginning of a value.
_PLAIN_BYTES = 2
# ECMA-48: CSI sequences, strings (titles, links) with their terminator, and short ones.
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"
    r"|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|[ -/]+[0-~]"
    r"|[0-OQ-WYZ\\`a-~])"
)
_MAX_ESCAPE = 1_024
_LINE_END = re.compile(r"\r+\n|\r+")
# Without tab, line feed, carriage return and escape.
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]")


class ShownText:
    """Converts one output stream to text, without hidden values, escape sequences and control characters.

    A possible beginning of a hidden value, a character, a sequence or a line end is retained until it is complete. A
    carriage return starts a new line.

    >>> hidden = HiddenValues()
    >>> hidden.add("skills.env.report.TOKEN", "t0k3n-1")
    >>> text = ShownText(hidden)
    >>> text.add(b"a \\x1b[1mt0k"), text.add(b"3n-1\\x1b[0m\\r\\nt0k3"), text.end()
    ('a ', '[hidden]\\n', '[hidden]')
    """

    def __init__(self, hidden: HiddenValues) -> None:
        # Before and after control sequences are removed, because a color can change in the middle of a value.
        self._values, self._shown_values = _WithoutValues(hidden), _WithoutValues(hidden)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._shown_decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._open = ""

    def add(self, data: bytes) -> str:
        """Add output. Return the text that is complete."""
        text = self._clean(self._decoder.decode(self._values.add(data)), ended=False)
        return self._shown_decoder.decode(self._shown_values.add(text.encode()))

    def end(self) -> str:
        """Return the retained text at the end of the output."""
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
            # With the carriage return before it, because a line feed can follow the sequence.
            while begun > 0 and text[begun - 1] == "\r":
                begun -= 1
            text, self._open = text[:begun], text[begun:]
        return text if "\x1b" not in text else text.replace("\x1b", "")


class _WithoutValues:
    """A stream of bytes without hidden values, which can extend over several pieces."""

    def __init__(self, hidden: HiddenValues) -> None:
        self._hidden = hidden
        # The last bytes of the input. The first ``_emitted`` of them were emitted, or hidden.
        self._context = b""
        self._emitted = 0

    def add(self, data: bytes) -> bytes:
        text = self._context + data
        known = len(text) - self._hidden.begun(text)
        out = self._without_emitted(text, self._hidden.in_bytes(text[:known]))
        start = max(0, known - _PLAIN_BYTES)
        self._emitted = max(self._emitted, known) - start
        self._context = text[start:]
        return out

    def end(self) -> bytes:
        """Return the retained bytes. The beginning of a value is hidden as well."""
        retained = len(self._context) - self._emitted
        self._context, self._emitted = b"", 0
        return _HIDDEN if retained else b""

    def _without_emitted(self, text: bytes, visible: bytes) -> bytes:
        emitted = self._emitted
        if visible.startswith(text[:emitted]):
            return visible[emitted:]
        # A value begins in emitted bytes, in so few of them that they do not reveal it.
        for size in range(emitted - 1, -1, -1):
            if visible.startswith(text[:size] + _HIDDEN):
                return visible[size:]
        return b""


_MAX_LINES = 20_000
# Lines can be long, and a worker has many processes.
_MAX_CHARS = 2 << 20
# A program that prints single characters must not create a block for each.
_BLOCK_CHARS = 4_096


@dataclass(frozen=True)
class Position:
    """A position in the output: the numbers of the line and of the character, from 0."""

    line: int
    char: int


START = Position(0, 0)


@dataclass(frozen=True)
class Piece:
    """Part of the output: ``text`` from ``begin`` to ``end``.

    ``lost`` is the number of dropped lines before ``begin``, ``left`` the number of lines after ``end``, including an
    incomplete one.
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
    """The last lines of the output: at most 20,000 lines and 2 Mi characters. The oldest are dropped.

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
        """The position after the last character."""
        return self._end

    def add(self, text: str) -> None:
        """Add output. The cost depends only on the length of ``text``."""
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
        """Return True if the output from ``begin`` on reaches a limit without the output before it."""
        return self._end.line - begin.line >= self._most_lines or self._end.char - begin.char >= self._most_chars

    def read(self, wanted: Position, *, lines: int | None = None, chars: int | None = None) -> Piece:
        """Return output from ``wanted`` on, at most so many lines and characters."""
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
        """Return the last ``chars`` characters after ``since``."""
        begin = max(since.char, self._end.char - chars)
        parts: list[str] = []
        for block in reversed(self._blocks):
            parts.append(block.text[max(0, begin - block.begin.char) :])
            if block.begin.char <= begin:
                break
        return "".join(reversed(parts))

    def _first_kept(self, wanted: Position) -> Position:
        """Return ``wanted``, or the position of the first stored line if that is later."""
        if not self._blocks:
            return wanted
        block = self._blocks[0]
        # Blocks are dropped as a whole, so the first one can have a few lines too many.
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
    """Return the number of characters in the first ``lines`` lines of ``text``, or in all if it has fewer."""
    if lines <= 0:
        return 0
    parts = text.split("\n", lines)
    return len(text) - (len(parts[-1]) if len(parts) > lines else 0)
