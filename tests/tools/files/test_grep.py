"""Grep: matches, omissions, hostile expressions, and the search in blocks of lines.

Examines the internals of tools.files.file_search on purpose.
"""

from __future__ import annotations

import asyncio
import builtins
import os
import random
import time
from contextlib import suppress

import pytest
import re2

from flink_skills.errors import ConfigError
from flink_skills.tools.files import MAX_BYTES, Grep, file_search

from .conftest import Files

LINE_BYTES = 32 << 10
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


def _tree(files: Files, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        path = files.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.row("J17", "J32")
async def test_lines_are_found(files: Files) -> None:
    _tree(files, {"a.log": "ok\nERROR one\r\nerror two\n", "b/c.log": "no ERROR here\n", "d.txt": "nothing\n"})
    assert await files("Grep", pattern=r"ERROR \w+$") == {
        "success": True,
        "matches": [
            {"file": "a.log", "line": 2, "content": "ERROR one"},
            {"file": "b/c.log", "line": 1, "content": "no ERROR here"},
        ],
        "total_matches": 2,
    }
    assert (await files("Grep", pattern="error", case_sensitive=False, path="a.log"))["total_matches"] == 2
    assert (await files("Grep", pattern="ERROR", path="b"))["total_matches"] == 1
    assert (await files("Grep", pattern="^$"))["matches"] == []


@pytest.mark.row("J17")
async def test_results_are_limited(files: Files) -> None:
    _tree(files, {"a": "x\n" * 120 + "y" * 5000 + "z\n"})
    value = await files("Grep", pattern="x")
    assert (len(value["matches"]), value["total_matches"]) == (50, 120)  # type: ignore[arg-type]
    assert "the first 50 of 120" in str(value["note"])
    assert len((await files("Grep", pattern="x", max_results=70))["matches"]) == 70  # type: ignore[arg-type]
    [match] = (await files("Grep", pattern="z"))["matches"]  # type: ignore[misc]
    assert len(match["content"]) == 501


@pytest.mark.row("J17")
async def test_what_is_left_out(files: Files, outside: object) -> None:
    hidden = {f"{folder}/x.txt": "needle\n" for folder in (".git", ".venv", "node_modules", "__pycache__")}
    _tree(files, {**hidden, ".env": "needle\n", "src/a.txt": "needle\n", "src/.b/c.txt": "needle\n"})
    (files.work / "binary").write_bytes(b"needle\0needle\n")
    (files.work / "big").write_bytes(b"needle\n" + b"x" * MAX_BYTES)
    (files.work / "link").symlink_to(str(outside))
    (files.work / "folder").symlink_to("/etc")
    os.mkfifo(files.work / "pipe")
    value = await files("Grep", pattern="needle|not for models|root:")
    assert value["matches"] == [{"file": "src/a.txt", "line": 1, "content": "needle"}]
    assert (await files("Grep", pattern="needle", path=".env"))["total_matches"] == 1
    assert (await files("Grep", pattern="needle", path="node_modules"))["total_matches"] == 1
    assert "is binary" in await files.error("Grep", pattern="needle", path="binary")
    assert "more than 10485760 bytes" in await files.error("Grep", pattern="needle", path="big")


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(unclosed", "missing )"),
        ("(?=a)b", "look-around and back-references are not supported"),
        (r"(a)\1", "look-around and back-references are not supported"),
        ("a" * 1001, "more than 1000 characters"),
        ("((ab|cd){300}){3}", "not a supported regular expression|stands for too much"),
        ("", "at least 1 character"),
        ("\ud800", "half a character|unicode"),
    ],
)
async def test_what_is_no_expression(files: Files, pattern: str, said: str) -> None:
    error = await files.error("Grep", pattern=pattern)
    assert any(one in error for one in said.split("|"))


@pytest.mark.row("J17")
async def test_hostile_expressions_block_nobody(files: Files) -> None:
    chance = random.Random(1)
    _tree(files, {"a": "a" * 60_000 + "!\n", "b": "".join(chance.choices("ab", k=60_000)) + "\n"})
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.ensure_future(tick())
    begun = time.monotonic()
    for pattern in ("(a+)+$", "(a|aa)+$", "(.*)*x", "(a|b)*a(a|b){200}c", "(x+x+)+y"):
        assert (await files("Grep", pattern=pattern))["success"]
    taken = time.monotonic() - begun
    ticking.cancel()
    assert taken < 60
    assert ticks > taken * 5, "other turns go on meanwhile"


async def test_it_ends_when_time_is_up(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    _tree(files, {f"{number}": "x\n" for number in range(50)})
    monkeypatch.setattr(file_search, "_SECONDS", -1.0)
    value = await files("Grep", pattern="x")
    assert value["total_matches"] == 0
    assert "the search is incomplete: the search took too long" in str(value["note"])


async def test_without_re2_it_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: object, **more: object) -> object:
        if name == "re2":
            raise ImportError(name)
        return real(name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"pip install 'flink-skills\[files\]'"):
        Grep()


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
        with suppress(Exception):  # not an expression, or a large one
            file_search.LineSearch(pattern, case_sensitive=True)
            return pattern


@pytest.mark.parametrize("block", [1, 7, LINE_BYTES])
@pytest.mark.parametrize("seed", range(4))
def test_random_expressions_in_random_texts(block: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks also truncate lines."""
    monkeypatch.setattr("flink_skills.tools.files.file_search.LINE_BYTES", block)
    monkeypatch.setitem(globals(), "LINE_BYTES", block)
    chance = random.Random(f"{block} {seed}")
    found = 0
    for _ in range(400):
        pattern, case_sensitive = pattern_of(chance), chance.random() < 0.7
        for _ in range(5):
            text = b"".join(chance.choices(_TEXTS, k=chance.randint(0, 40)))
            lines = list(file_search.LineSearch(pattern, case_sensitive=case_sensitive).lines(text))
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
        lines = list(file_search.LineSearch(pattern, case_sensitive=True).lines(repeated))
        assert lines == reference(pattern, repeated, case_sensitive=True)


def test_the_search_ends_between_blocks() -> None:
    asked = []

    def continues() -> bool:
        asked.append(1)
        return len(asked) < 3

    found = list(file_search.LineSearch("a", case_sensitive=True).lines(b"a\n" * LINE_BYTES, continues))
    assert 0 < len(found) <= LINE_BYTES + 2
    assert [number for number, _ in found] == list(range(1, len(found) + 1))
