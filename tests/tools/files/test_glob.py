"""Glob: patterns and limits. Examines the internals of tools.files.file_search on purpose."""

from __future__ import annotations

import time

import pytest

from flink_skills.tools.files import file_search

from .conftest import Files


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


async def test_it_ends_when_time_is_up(tree: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_search, "_SECONDS", -1.0)
    value = await tree("Glob", pattern="**")
    assert (value["truncated"], value["count"]) == (True, 0)
    assert "the list is incomplete: the search took too long" in str(value["note"])
