"""Edit: unique places, blanks, hints, preserved content.

Examines the internals of tools.files.edit and tools.files.write on purpose.
"""

from __future__ import annotations

import asyncio
import random
import stat
import time
from dataclasses import replace

import pytest

from flink_skills.tools.files.edit import changed_lines, loose, nearest
from flink_skills.tools.files.write import FileChanges

from .conftest import Files

CODE = "def f(x):\n    if x:\n        return 1\n    return 2\n"


@pytest.mark.row("J16", "J32")
async def test_a_text_is_replaced(files: Files) -> None:
    (files.work / "a.py").write_text(CODE)
    assert await files("Edit", path="a.py", old_string="return 1", new_string="return 10") == {
        "success": True,
        "message": "SUCCESS: file a.py edited, lines 3-3",
        "line_range": "3-3",
        "changed_line_ranges": [[3, 3]],
    }
    assert (files.work / "a.py").read_text() == CODE.replace("return 1", "return 10")


@pytest.mark.row("J16")
async def test_the_lines_that_changed(files: Files) -> None:
    (files.work / "a").write_text("".join(f"{number}\n" for number in range(1, 11)))
    value = await files("Edit", path="a", old_string="2\n3\n4\n5\n6\n", new_string="2\nthree\n4\n5\nsix\nand\n")
    assert (value["line_range"], value["changed_line_ranges"]) == ("2-7", [[3, 3], [6, 7]])
    value = await files("Edit", path="a", old_string="three\n4\n", new_string="")
    assert value["changed_line_ranges"] == [[3, 3]]
    assert (files.work / "a").read_text() == "1\n2\n5\nsix\nand\n7\n8\n9\n10\n"


@pytest.mark.row("J16")
@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("return", "occurs 2 times, from lines 3, 4"),
        ("nothing like it at all", "not in the file, nor anything that is like it"),
        ("", "at least 1 character"),
        ("x", "the same"),
    ],
)
async def test_what_cannot_be_replaced(files: Files, old: str, said: str) -> None:
    (files.work / "a.py").write_text(CODE)
    assert said in await files.error("Edit", path="a.py", old_string=old, new_string="x")
    assert (files.work / "a.py").read_text() == CODE


@pytest.mark.row("J16")
async def test_other_blanks_are_no_difference(files: Files) -> None:
    (files.work / "a.py").write_text(CODE)
    value = await files("Edit", path="a.py", old_string="if  x:\n  return 1\n", new_string="if not x:\n  return 1\n")
    assert value["line_range"] == "2-3"
    assert (files.work / "a.py").read_text() == CODE.replace("if x", "if not x")
    (files.work / "b.py").write_text("\tcall(a)\n\n\tcall( b )\n\tcall(a)\n")
    said = await files.error("Edit", path="b.py", old_string="  call(a)", new_string="x")
    assert "occurs 2 times, from lines 1, 4" in said


@pytest.mark.row("J16")
async def test_each_line_keeps_its_own_indentation(files: Files) -> None:
    path = files.work / "a.py"
    path.write_text(CODE)
    flat = "if x:\nreturn 1\nreturn 2\n"
    await files("Edit", path="a.py", old_string=flat, new_string="if x:\nreturn 1\n\nreturn 2\n")
    assert path.read_text() == CODE.replace("return 1\n", "return 1\n\n")
    said = await files.error("Edit", path="a.py", old_string="if x:\nreturn 1", new_string="if x:\nreturn 3")
    assert "indentation is not known" in said
    assert "return 1" in path.read_text()


@pytest.mark.row("J16")
async def test_what_is_nearly_the_same_is_shown(files: Files) -> None:
    (files.work / "a.py").write_text("import os\n\ndef compute_total(prices):\n    return sum(prices)\n")
    said = await files.error("Edit", path="a.py", old_string="def compute_totals(prices):", new_string="x")
    assert "lines 3-3 are 98 % like it:\ndef compute_total(prices):" in said


@pytest.mark.row("J16")
async def test_encoding_mark_and_line_ends_stay(files: Files) -> None:
    path = files.work / "a.txt"
    path.write_bytes("one\r\ngrün\r\nthree\r\n".encode("utf-16"))
    await files("Edit", path="a.txt", old_string="grün\nthree", new_string="blau\nund\ndrei")
    assert path.read_bytes().decode("utf-16") == "one\r\nblau\r\nund\r\ndrei\r\n"
    assert path.read_bytes()[:2] == b"\xff\xfe"
    path.write_bytes(b"a\r\nb\nc\rd\r\ne\r\n")
    await files("Edit", path="a.txt", old_string="d", new_string="D\nE")
    assert path.read_bytes() == b"a\r\nb\nc\rD\r\nE\r\ne\r\n"
    path.write_bytes("Größe: schön, über, grün, Straße\nzwei\n".encode("latin-1"))
    await files("Edit", path="a.txt", old_string="zwei", new_string="fünf")
    assert path.read_bytes() == "Größe: schön, über, grün, Straße\nfünf\n".encode("latin-1")
    said = await files.error("Edit", path="a.txt", old_string="fünf", new_string="五")
    assert "which has no '五'" in said


async def test_random_edits_change_nothing_else(files: Files) -> None:
    chance = random.Random(7)
    path = files.work / "a.txt"
    for _ in range(60):
        parts = [f"w{number}" + chance.choice([" ", "\n", "\r\n", "\r\n", "\t", "é"]) for number in range(40)]
        at = chance.randrange(40)
        path.write_bytes("".join(parts).encode())
        old = parts[at][:-1] if not parts[at].endswith("\r\n") else parts[at][:-2]
        if sum(part.startswith(old) for part in parts) > 1:
            continue
        assert (await files("Edit", path="a.txt", old_string=old, new_string="NEW"))["success"]
        parts[at] = parts[at].replace(old, "NEW")
        assert path.read_bytes() == "".join(parts).encode()


async def test_a_script_stays_one(files: Files) -> None:
    path = files.work / "run.sh"
    path.write_text("#!/bin/sh\necho 1\n")
    path.chmod(0o700)
    await files("Edit", path="run.sh", old_string="echo 1", new_string="echo 2")
    assert stat.S_IMODE(path.stat().st_mode) & 0o100


@pytest.mark.row("J16")
async def test_a_call_made_again_changes_nothing_twice(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    path = files.work / "a"
    path.write_text("x\n")
    real = FileChanges.replace

    def killed(self: FileChanges, target: object, data: bytes) -> None:
        real(self, target, data)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(FileChanges, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            await files("Edit", path="a", old_string="x", new_string="xx")
    files.context = replace(files.context, attempt=2)
    assert (await files("Edit", path="a", old_string="x", new_string="xx"))["line_range"] == "1-1"
    assert path.read_text() == "xx\n"


async def test_edits_at_the_same_time_are_all_there(files: Files) -> None:
    (files.work / "a").write_text("".join(f"<{number}>\n" for number in range(30)))
    calls = [files("Edit", path="a", old_string=f"<{number}>", new_string=f"[{number}]") for number in range(30)]
    appends = [files("Write", path="b", content=f"{number}\n", append=True) for number in range(30)]
    assert all(value["success"] for value in await asyncio.gather(*calls, *appends))
    assert (files.work / "a").read_text() == "".join(f"[{number}]\n" for number in range(30))
    assert sorted(map(int, (files.work / "b").read_text().split())) == list(range(30))


async def test_hostile_texts_take_no_long_time(files: Files) -> None:
    chance = random.Random(3)
    texts = {
        "same": "a" * 200_000,
        "lines": "aaaaaaaaab\n" * 100_000,
        "random": "".join(chance.choices("ab\n", k=300_000)),
        "wide": "\n".join("".join(map(chr, chance.choices(range(0x4E00, 0x4F00), k=500))) for _ in range(300)),
    }
    for name, text in texts.items():
        (files.work / name).write_text(text)
        lines = text.split("\n")
        for old in (
            "a" * 5000,
            "\n".join(lines[:200])[:-1] + "c",
            "\n".join(["b a"] * 2000),
            lines[len(lines) // 2] + "?",
        ):
            begun = time.process_time()
            await files("Edit", path=name, old_string=old, new_string="x")
            assert time.process_time() - begun < 7, (name, old[:20])
            (files.work / name).write_text(text)


def test_ranges_of_much_are_those_of_all() -> None:
    assert changed_lines(["a"] * 300, ["b"] * 300, 5) == [[5, 304]]
    assert changed_lines([], ["x"], 3) == [[3, 3]]


def test_the_search_for_what_is_like_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10**6))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    text = "\n".join(f"some text {number}" for number in range(1000))
    assert nearest(text, "some text 500 ") == []
    assert loose("a\n" * 10, "a", "b")[9].start == 18
