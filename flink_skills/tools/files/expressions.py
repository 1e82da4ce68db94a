"""Regular expressions of models, matched in time that grows with the text: by RE2, which cannot be made to backtrack.

Python's ``re`` takes exponential time for some short expressions, in which no thread can be stopped and no other one
runs. RE2 has no look-around and no back-references, as ``rg`` has none by default, and lets other threads run.
"""

from __future__ import annotations

from typing import Any

from flink_skills.errors import ConfigError
from flink_skills.tools.arguments import ArgumentError

__all__ = ["LINE_BYTES", "LineSearch", "load_re2"]

_MAX_LENGTH = 1000
# Its steps grow with the size of the program times the text; this bounds one search to about a second.
_MAX_PROGRAM = 2000
#: So many bytes of a line are searched.
LINE_BYTES = 32 << 10


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

    >>> LineSearch("err(or)?", case_sensitive=False).matches(b"an ERROR")
    True
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
            compiled = re2.compile(pattern.encode(), options)
        except re2.error as error:
            raise ArgumentError(_problem(error, pattern)) from None
        except UnicodeEncodeError:
            raise ArgumentError("The pattern holds half a character: write it without.") from None
        if compiled.programsize > _MAX_PROGRAM:
            raise ArgumentError("The pattern stands for too much: repeat less in it, or shorten it.")
        self._search = compiled.search

    def matches(self, line: bytes) -> bool:
        """Whether a line of UTF-8 matches, in its first 32 KiB."""
        return self._search(line[:LINE_BYTES]) is not None


def _problem(error: Exception, pattern: str) -> str:
    said = error.args[0] if error.args else error
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    hint = "write \\ before a sign that is meant itself, such as \\( or \\["
    if "perl operator" in text or "escape sequence" in text:
        hint = "look-around and back-references are not supported; " + hint
    return f"The pattern {pattern[:80]!r} is not a supported regular expression ({text}): {hint}."
