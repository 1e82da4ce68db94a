"""Grep: matches, omissions, hostile expressions, and the search in blocks of lines.

Examines the internals of tools.files.file_search on purpose.
"""

from __future__ import annotations

import asyncio
import builtins
import os
import random
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
import re2

from flink_skills.errors import ConfigError
from flink_skills.execution import Workspace
from flink_skills.tools import ToolContext
from flink_skills.tools.files import MAX_BYTES, Grep, Read, file_search
from tests.kit.waiting import until
from tests.tools.files.conftest import Files

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


@pytest.fixture
def tree(files: Files) -> Files:
    for name in ("a.py", "b.txt", "src/a.py", "src/deep/er/b.js", "src/deep/c.ts", ".hidden/x.py"):
        path = files.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (files.workspace.out_dir / "r.csv").write_text("")
    return files


@pytest.mark.row("J19", "J32")
async def test_the_shape(tree: Files) -> None:
    assert await tree("Glob", pattern="*.py") == {
        "success": True,
        "matches": ["a.py"],
        "count": 1,
        "truncated": False,
        "pattern": "*.py",
    }


@pytest.mark.row("J19")
@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("**/*.py", [".hidden/x.py", "a.py", "src/a.py"]),
        ("src/**/*.{js,ts}", ["src/deep/c.ts", "src/deep/er/b.js"]),
        ("**/[ab].??", [".hidden/x.py", "a.py", "src/a.py", "src/deep/er/b.js"][1:]),
        ("./src/../*.txt", ["b.txt"]),
        ("$OUTPUT_DIR/**", ["$OUTPUT_DIR/r.csv"]),
        ("../out/*", ["$OUTPUT_DIR/r.csv"]),
        ("nothing*", []),
    ],
)
async def test_patterns(tree: Files, pattern: str, found: list[str]) -> None:
    assert (await tree("Glob", pattern=pattern))["matches"] == found


@pytest.mark.row("J19")
async def test_folders_and_limits(tree: Files) -> None:
    value = await tree("Glob", pattern="src/*", include_dirs=True)
    assert value["matches"] == ["src/a.py", "src/deep/"]
    value = await tree("Glob", pattern="**/*", max_results=2)
    assert (value["count"], value["truncated"]) == (2, True)
    assert "more than 2" in str(value["note"])


async def test_absolute_patterns(tree: Files) -> None:
    assert (await tree("Glob", pattern=f"{tree.work}/*.txt"))["matches"] == ["b.txt"]
    assert "outside the workspace" in await tree.error("Glob", pattern="/etc/*")
    assert "leads out" in await tree.error("Glob", pattern="../../**")


@pytest.mark.row("J19")
async def test_hostile_patterns_end(tree: Files) -> None:
    (tree.work / ("a" * 200)).write_text("")
    begun = time.process_time()
    assert "stands for more than 256" in await tree.error("Glob", pattern="{a,b}" * 12)
    assert "more than 1000 characters" in await tree.error("Glob", pattern="*" * 1001)
    assert (await tree("Glob", pattern="*a" * 90 + "b"))["count"] == 0
    assert (await tree("Glob", pattern="**/" * 60 + "x"))["success"] is not None
    assert time.process_time() - begun < 10


async def test_a_glob_ends_when_time_is_up(tree: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_search, "_SECONDS", -1.0)
    value = await tree("Glob", pattern="**")
    assert (value["truncated"], value["count"]) == (True, 0)
    assert "the list is incomplete: the search took too long" in str(value["note"])


class Held:
    """Keeps the threads of a tool until they are released, and counts them by key."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.released = threading.Event()
        self._lock = threading.Lock()

    def work(self, asked: Any, area: Any, root: int, context: ToolContext, stop: threading.Event) -> dict[str, Any]:
        with self._lock:
            self.running[context.key] += 1
            self.most[context.key] = max(self.most[context.key], self.running[context.key])
        self.released.wait(60)
        with self._lock:
            self.running[context.key] -= 1
        return {"success": True}


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    found = Held()
    monkeypatch.setattr(Grep, "_work", lambda self, *arguments: found.work(*arguments))
    return found


def context_of(files: Files, key: str) -> ToolContext:
    workspace: Workspace = files.shell.workspaces.for_key(key)
    workspace.ensure()
    return ToolContext(
        key=key, call_id="c", skill_state=files.context.skill_state, workspace=workspace, shell=files.shell
    )


async def test_many_searches_of_keys_use_few_threads_and_leave_reads_alone(files: Files, held: Held) -> None:
    contexts = [context_of(files, key) for key in "abc"]
    (contexts[2].workspace.work_dir / "x").write_text("text\n")  # type: ignore[union-attr]
    greps = [asyncio.ensure_future(files.tools.call("Grep", {"pattern": "x"}, of)) for of in contexts for _ in range(9)]
    await until(lambda: held.running.total() == Grep.max_threads)
    # Another tool has other threads, but not of a key that has too many calls.
    assert (await files.tools.call("Read", {"path": "x"}, context_of(files, "d"))).is_error
    blocked = asyncio.ensure_future(files.tools.call("Read", {"path": "x"}, contexts[0]))
    await asyncio.wait([blocked], timeout=0.2)
    assert not blocked.done()
    held.released.set()
    assert all(not result.is_error for result in await asyncio.gather(*greps))
    assert (await blocked).is_error
    assert held.most.total() >= Grep.max_threads
    assert max(held.most.values()) <= 2
    assert held.running.total() == 0


async def test_another_key_is_next(files: Files, held: Held) -> None:
    """The calls of a key wait for each other first: a key with many calls does not hold the places of others."""
    loud, other = context_of(files, "loud"), context_of(files, "other")
    greps = [asyncio.ensure_future(files.tools.call("Grep", {"pattern": "x"}, loud)) for _ in range(40)]
    await until(lambda: held.running["loud"] == 2)
    quiet = asyncio.ensure_future(files.tools.call("Grep", {"pattern": "x"}, other))
    order: list[str] = []
    quiet.add_done_callback(lambda _: order.append("other"))
    for grep in greps:
        grep.add_done_callback(lambda _: order.append("loud"))
    held.released.set()
    await asyncio.gather(quiet, *greps)
    assert order.index("other") <= 6


async def test_the_thread_of_an_ended_turn_keeps_its_place(files: Files, held: Held) -> None:
    context = context_of(files, "a")
    calls = [asyncio.ensure_future(files.tools.call("Grep", {"pattern": "x"}, context)) for _ in range(3)]
    await until(lambda: held.running["a"] == 2)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    later = asyncio.ensure_future(files.tools.call("Grep", {"pattern": "x"}, context))
    await asyncio.wait([later], timeout=0.2)
    assert held.running["a"] == 2
    held.released.set()
    assert not (await later).is_error
    assert held.most["a"] == 2
    assert Read.max_threads > Grep.max_threads
