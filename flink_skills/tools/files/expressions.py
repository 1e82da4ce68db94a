"""Regular expressions of models, matched in time that grows with the text: by RE2, which cannot be made to backtrack.

Python's ``re`` takes exponential time for some short expressions, in which no thread can be stopped and no other one
runs. RE2 has no look-around and no back-references, as ``rg`` has none by default, and lets other threads run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from flink_skills.errors import ConfigError
from flink_skills.tools.arguments import ArgumentError

__all__ = ["LINE_BYTES", "LineSearch", "load_re2"]

_MAX_LENGTH = 1000
# Its steps grow with the size of the program times the text; this bounds one search to about a second.
_MAX_PROGRAM = 2000
#: Maximum number of bytes that are searched in a line, and the size that lines have together in a block.
LINE_BYTES = 32 << 10
# Anchors for a whole text, which is one line here, and a flag that disables anchors for lines.
_OF_TEXT = re.compile(rb"\\[Az]|\(\?[A-Za-z]*-[A-Za-z]*m")


def load_re2() -> Any:
    """The module ``re2``; raises :class:`ConfigError` where it is not installed."""
    try:
        import re2
    except ImportError as error:
        raise ConfigError(
            "the tool Grep needs google-re2, which is not installed: pip install 'flink-skills[files]'"
        ) from error
    return re2


class LineSearch:
    """Finds lines that match. Raises :class:`ArgumentError` for what is no expression, or too much of one.

    >>> list(LineSearch("err(or)?", case_sensitive=False).lines(b"no\\nan ERROR\\r\\n"))
    [(2, b'an ERROR')]
    """

    def __init__(self, pattern: str, *, case_sensitive: bool) -> None:
        re2 = load_re2()
        if len(pattern) > _MAX_LENGTH:
            raise ArgumentError(f"The pattern has more than {_MAX_LENGTH} characters: shorten it.")
        options = re2.Options()
        options.case_sensitive = case_sensitive
        options.log_errors = False
        options.never_capture = True
        try:
            encoded = pattern.encode()
            compiled = re2.compile(encoded, options)
        except re2.error as error:
            raise ArgumentError(_problem(error, pattern)) from None
        except UnicodeEncodeError:
            raise ArgumentError("The pattern holds half a character: write it without.") from None
        if compiled.programsize > _MAX_PROGRAM:
            raise ArgumentError("The pattern stands for too much: repeat less in it, or shorten it.")
        self._search = compiled.search
        self._search_lines = None
        if not _OF_TEXT.search(encoded):
            # In a block, anchors match at lines, and no match continues in the next line.
            options.never_nl = True
            self._search_lines = re2.compile(b"(?m)" + encoded, options).search

    def lines(self, text: bytes, continues: Callable[[], bool] = lambda: True) -> Iterator[tuple[int, bytes]]:
        """Yield number, from 1, and content for each line that matches in its first 32 KiB. ``text`` is UTF-8.

        The expression is applied to blocks: a call for each line would take Python's lock each time.
        ``continues`` is called before each block. The search ends if it returns False.
        """
        number, begin = 1, 0
        while begin <= len(text) and continues():
            end = text.find(b"\n", begin + LINE_BYTES)
            end = len(text) if end < 0 else end
            block = text[begin:end].replace(b"\r\n", b"\n").removesuffix(b"\r")
            lines = block.split(b"\n")
            if max(map(len, lines)) > LINE_BYTES:
                block = b"\n".join([line[:LINE_BYTES] for line in lines])
            for index in self._found(block, lines):
                yield number + index, lines[index]
            number += len(lines)
            begin = end + 1

    def _found(self, block: bytes, lines: list[bytes]) -> Iterator[int]:
        """Yield the positions at which ``lines`` match in ``block``."""
        if self._search_lines is None:
            yield from (index for index, line in enumerate(lines) if self._search(line[:LINE_BYTES]) is not None)
            return
        index = begin = 0
        while begin <= len(block) and (match := self._search_lines(block, begin)) is not None:
            index += block.count(b"\n", begin, match.start())
            yield index
            begin = block.find(b"\n", match.start()) + 1
            if not begin:
                return
            index += 1


def _problem(error: Exception, pattern: str) -> str:
    said = error.args[0] if error.args else error
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    hint = "write \\ before a sign that is meant itself, such as \\( or \\["
    if "perl operator" in text or "escape sequence" in text:
        hint = "look-around and back-references are not supported; " + hint
    return f"The pattern {pattern[:80]!r} is not a supported regular expression ({text}): {hint}."
