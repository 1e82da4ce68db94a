"""What references of a job file stand for, and how to keep it out of every message."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from urllib.parse import quote, quote_plus

from flink_skills.job.terminal_text import visible

__all__ = ["InsertedValues"]

# Shorter values are found in too many words that have nothing to do with them.
_SHORTEST = 4
# A line of a value that has several; shorter ones, such as a brace, are found elsewhere too.
_SHORTEST_LINE = 16
_BOTH_QUOTES = "'\""


class InsertedValues:
    """Replaces values by the references that they came from: as they are, with other white space between their words,
    each long line of them, and as SQL, JSON, Java, Python, a URL or a terminal write them.

    Flink and its libraries repeat values with their line ends and runs of blanks made one, so white space is not
    compared. What is cut in two, encoded or reversed is not recognised. Values under 4 characters stay visible.

    >>> inserted = InsertedValues()
    >>> inserted.add("pl4nted  pass\\nword", "${env:A}")
    >>> inserted.hide("cannot parse 'pl4nted pass word'")
    "cannot parse '${env:A}'"
    """

    def __init__(self) -> None:
        self._references: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    def add(self, value: str, reference: str) -> None:
        """Hide ``value`` from now on."""
        for form in _forms(value):
            self._references.setdefault(_one_line(form), reference)
        self._pattern = None

    def hide(self, text: str) -> str:
        """``text`` without the values. Hiding a text again changes nothing."""
        if not self._references:
            return text
        if self._pattern is None:
            # A reference may hold what another one stands for, and is no secret.
            known = {*self._references, *self._references.values()}
            # The longest first: a value that begins another one must not leave the rest of it.
            longest_first = sorted(known, key=lambda form: (-len(form), form))
            self._pattern = re.compile("|".join(r"\s+".join(map(re.escape, form.split())) for form in longest_first))
        return self._pattern.sub(self._reference, text)

    def _reference(self, found: re.Match[str]) -> str:
        return self._references.get(_one_line(found[0]), found[0])


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _forms(value: str) -> Iterator[str]:
    for part in (value, *(line for line in value.splitlines() if len(line.strip()) >= _SHORTEST_LINE)):
        if len(part.strip()) < _SHORTEST:
            continue
        for write in _WRITTEN:
            form = write(part)
            yield form
            # An error's words are quoted once more where they stand in another one's.
            yield _in_python(form)
            yield _in_python_with_both_quotes(form)


def _in_sql(value: str) -> str:
    return value.replace("'", "''")


def _in_json(value: str) -> str:
    return json.dumps(value)[1:-1]


def _in_python(value: str) -> str:
    return repr(value)[1:-1]


def _in_python_with_both_quotes(value: str) -> str:
    """As a part of a text that has quotes of both kinds, all of which Python then writes in the same way."""
    return repr(value + _BOTH_QUOTES)[1 : -len("\\'\"'")]


_WRITTEN: tuple[Callable[[str], str], ...] = (
    str,
    _in_sql,
    _in_json,
    lambda value: json.dumps(value, ensure_ascii=False)[1:-1],
    # Flink's parser shows the word at which it stopped like this.
    lambda value: _in_json(_in_sql(value)).replace("'", "\\'"),
    visible,
    lambda value: quote(value, safe=""),
    quote,
    quote_plus,
)
