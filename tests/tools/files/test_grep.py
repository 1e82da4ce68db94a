"""Grep: matches, omissions, hostile expressions.

Examines the internals of tools.files.grep on purpose.
"""

from __future__ import annotations

import asyncio
import builtins
import os
import random
import time

import pytest

from flink_skills.errors import ConfigError
from flink_skills.tools.files import MAX_BYTES, Grep, grep

from .conftest import Files


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
    monkeypatch.setattr(grep, "_SECONDS", -1.0)
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
