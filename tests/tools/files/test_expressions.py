"""Search of expressions in blocks of lines: the result is that of a search in each line.

Examines the internals of tools.files.expressions on purpose.
"""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
import re2

from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.files import expressions
from flink_skills.tools.files.expressions import LINE_BYTES, LineSearch

_PIECES = ["a", "b", ".", "^", "$", "|", r"\b", r"\B", r"\s", r"\S", r"\W", "[^a]", "[^b\n]", "\n", "\r", r"\n", r"\r"]
_MORE = [
    "x*",
    "a+",
    "(?s).",
    "(?s:.)*",
    "(?i)A",
    "ä",
    "[ä-ü]",
    r"\x{e4}",
    r"\pL",
    "(a|b)",
    "a??",
    "{2}",
    "()",
    r"\Q.\E",
]
_RARE = [r"\A", r"\z", r"\Q.\E", "(?-m)", "(?m)", "(?-s:.)", r"\\A", "(?i-m:^a)", "(?U)"]
_TEXTS = [
    b"a",
    b"b",
    b"ab",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b" ",
    b"\t",
    "ä".encode(),
    "ü日".encode(),
    b"\xff",
    b"\xe4",
    b"A",
]


def reference(pattern: str, text: bytes, *, case_sensitive: bool) -> list[tuple[int, bytes]]:
    """Return the lines that match, with one search for each line."""
    options = re2.Options()
    options.case_sensitive, options.log_errors, options.never_capture = case_sensitive, False, True
    search = re2.compile(pattern.encode(), options).search
    lines = [line.removesuffix(b"\r") for line in text.split(b"\n")]
    return [(number, line) for number, line in enumerate(lines, 1) if search(line[:LINE_BYTES]) is not None]


def pattern_of(chance: random.Random) -> str:
    while True:
        pieces = chance.choices(_PIECES + _MORE + _RARE, k=chance.randint(1, 5))
        pattern = "".join(pieces)
        with suppress(ArgumentError):  # not an expression, or a large one
            LineSearch(pattern, case_sensitive=True)
            return pattern


@pytest.mark.parametrize("block", [1, 7, LINE_BYTES])
@pytest.mark.parametrize("seed", range(4))
def test_random_expressions_in_random_texts(block: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks also truncate lines."""
    monkeypatch.setattr(expressions, "LINE_BYTES", block)
    monkeypatch.setitem(globals(), "LINE_BYTES", block)
    chance = random.Random(f"{block} {seed}")
    found = 0
    for _ in range(400):
        pattern, case_sensitive = pattern_of(chance), chance.random() < 0.7
        for _ in range(5):
            text = b"".join(chance.choices(_TEXTS, k=chance.randint(0, 40)))
            lines = list(LineSearch(pattern, case_sensitive=case_sensitive).lines(text))
            assert lines == reference(pattern, text, case_sensitive=case_sensitive), (pattern, text)
            found += len(lines)
    assert found > 1000


@pytest.mark.parametrize("pattern", ["a$", "^a", "x", "", "^$", "[^y]", r"\s*$", "(?s).*z", r"\Aa", r"a\z", "(?-m)^a$"])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\r"])
def test_long_lines_and_ends_of_files(pattern: str, end: bytes) -> None:
    long = b"a" * (LINE_BYTES - 1)
    text = (
        b"\n".join([b"a", long, long + b"a", long + b"ax", b"", long + "ä".encode(), b"b" * 3 * LINE_BYTES, b"a\r"])
        + end
    )
    for repeated in (text, text * 7):
        lines = list(LineSearch(pattern, case_sensitive=True).lines(repeated))
        assert lines == reference(pattern, repeated, case_sensitive=True)


def test_the_search_ends_between_blocks() -> None:
    asked = []

    def continues() -> bool:
        asked.append(1)
        return len(asked) < 3

    found = list(LineSearch("a", case_sensitive=True).lines(b"a\n" * LINE_BYTES, continues))
    assert 0 < len(found) <= LINE_BYTES + 2
    assert [number for number, _ in found] == list(range(1, len(found) + 1))
