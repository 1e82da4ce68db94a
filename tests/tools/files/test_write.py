"""Write: files, folders, ends of files, limits, repeated calls.

Examines the internals of tools.files.write on purpose.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import random
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from flink_skills.tools.files import write as write_module
from flink_skills.tools.files.edit import changed_lines, loose, nearest
from flink_skills.tools.files.write import FileChanges
from tests.tools.files.conftest import NOBODY, Files, as_root


@pytest.mark.row("J15", "J32")
async def test_it_writes_a_file_and_the_folders_above(files: Files) -> None:
    assert await files("Write", path="a/b/c.txt", content="grün\n") == {
        "success": True,
        "message": "SUCCESS: file a/b/c.txt written to successfully (6 bytes)",
        "path": "a/b/c.txt",
    }
    assert (files.work / "a" / "b" / "c.txt").read_bytes() == "grün\n".encode()
    value = await files("Write", path="a/b/c.txt", content="")
    assert (value["success"], (files.work / "a/b/c.txt").read_bytes()) == (True, b"")
    assert sorted(path.name for path in files.workspace.root.iterdir() if path.name.startswith(".input")) == []


@pytest.mark.row("J15")
async def test_it_adds_to_the_end(files: Files) -> None:
    for number in range(3):
        value = await files("Write", path="log.txt", content=f"{number}\n", append=True)
        assert "(2 bytes)" in str(value["message"])
    assert (files.work / "log.txt").read_text() == "0\n1\n2\n"
    (files.work / "wide.txt").write_bytes("a\n".encode("utf-16"))
    await files("Write", path="wide.txt", content="grün\n", append=True)
    assert (files.work / "wide.txt").read_bytes().decode("utf-16") == "a\ngrün\n"


async def test_a_script_stays_one(files: Files) -> None:
    path = files.work / "run.sh"
    path.write_text("#!/bin/sh\necho 1\n")
    path.chmod(0o700)
    await files("Write", path="run.sh", content="#!/bin/sh\necho 2\n")
    assert stat.S_IMODE(path.stat().st_mode) & 0o100
    assert (await files("Bash", command="./run.sh"))["stdout"] == "2\n"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/etc/passwd", "outside the workspace"),
        ("../x", "in none of the folders"),
        ("../../x", "leads out of the workspace"),
        ("folder", "is a folder"),
        (".", "is a folder"),
        ("inputs/event.json", "read-only"),
        ("$SKILLS_DIR/billing/SKILL.md", "read-only"),
        ("$WORKSPACE_DIR/metadata.json", "in none of the folders"),
        ("$OTHER/x", "a variable that is not known"),
        ("file/x", "is a file"),
        ("pipe", "is a pipe"),
    ],
)
async def test_where_nothing_is_written(files: Files, path: str, said: str) -> None:
    (files.work / "folder").mkdir()
    (files.work / "file").write_text("")
    os.mkfifo(files.work / "pipe")
    before = sorted(files.workspace.root.rglob("*"))
    for append in (False, True):
        assert said in await files.error("Write", path=path, content="x", append=append)
    left = [path for path in sorted(files.workspace.root.rglob("*")) if not path.name.startswith(".file-tools")]
    assert left == before


async def test_half_a_character_is_no_text(files: Files) -> None:
    assert "half a character" in await files.error("Write", path="a", content="\ud800")


async def test_the_limits_of_the_workspace_hold(shell_with: Callable[..., object]) -> None:
    options = {"skills.workspace.max-size": "64 kb", "skills.workspace.max-files": 30}
    files = Files(await shell_with(**options))  # type: ignore[misc]
    await files("Write", path="a", content="x" * 20_000)
    for append in (False, True):
        assert "the workspace contains" in await files.error("Write", path="b", content="x" * 60_000, append=append)
    assert "the workspace contains" in await files.error("Write", path="a", content="x" * 60_000, append=True)
    assert (files.work / "a").stat().st_size == 20_000
    assert (await files("Write", path="a", content="x" * 30_000))["success"]
    results = [await files("Write", path=f"f/{number}", content="") for number in range(40)]
    assert "its maximum of 30 files and folders" in str(results[-1]["error"])
    assert (await files("Write", path="a", content="less"))["success"], "what needs no more room is written"


async def test_the_longest_file(shell_with: Callable[..., object]) -> None:
    files = Files(await shell_with(**{"skills.shell.max-file-size": "10 kb"}))  # type: ignore[misc]
    await files("Write", path="a", content="x" * 9000)
    assert "the maximum is 10240" in await files.error("Write", path="a", content="x" * 9000, append=True)


async def test_a_full_disk_is_a_result(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    await files("Write", path="a", content="before")
    real = os.write

    def full(descriptor: int, data: bytes) -> int:
        real(descriptor, data[:2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        said = await files.error("Write", path="a", content="after")
        assert "no space left (No space left on device). Remove files" in said
        # The note of the call is a file, too.
        assert (await files("Write", path="a", content="more", append=True))["success"] is False
    assert (files.work / "a").read_text() == "before"
    assert [path.name for path in files.workspace.root.iterdir() if path.name.startswith(".input")] == []


@pytest.mark.row("J15")
@pytest.mark.parametrize("written", [0, 3, 6])
async def test_a_call_made_again_adds_what_is_missing(
    files: Files, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    (files.work / "log").write_text("first\n")
    real = write_module.FileChanges.append

    def killed(self: write_module.FileChanges, target: object, data: bytes) -> None:
        real(self, target, data[:written])  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(write_module.FileChanges, "append", killed)
        with pytest.raises(KeyboardInterrupt):
            await files("Write", path="log", content="again\n", append=True)
    files.context = replace(files.context, attempt=2)
    for _ in range(2):
        assert (await files("Write", path="log", content="again\n", append=True))["success"]
        assert (files.work / "log").read_text() == "first\nagain\n"
    files.context = replace(files.context, call_id="call-2")
    await files("Write", path="log", content="again\n", append=True)
    assert (files.work / "log").read_text() == "first\nagain\nagain\n", "another call is another one"


async def test_a_note_that_a_command_wrote_does_no_harm(files: Files) -> None:
    files.context = replace(files.context, attempt=2)
    for note in ("{", "[1, 2]", '[{"call_id": "call-1", "op": "append", "at": "x"}]', "[" * 100_000):
        (files.workspace.root / ".file-tools.json").write_text(note)
        assert (await files("Write", path="log", content="x", append=True))["success"]
    assert (files.work / "log").read_text() == "xxxx"


async def test_a_lock_that_a_command_holds_blocks_no_call(files: Files) -> None:
    await files("Write", path="work/a.txt", content="1")
    # A command of the key can lock the files that it can open.
    held = [os.open(path, os.O_RDONLY) for path in files.workspace.root.iterdir() if path.is_file()]
    try:
        for descriptor in held:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert (await asyncio.wait_for(files("Write", path="work/a.txt", content="2"), 30))["success"]
    finally:
        for descriptor in held:
            os.close(descriptor)


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


async def test_an_edited_script_stays_one(files: Files) -> None:
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


@pytest.mark.row("J15", "J16")
async def test_tools_and_commands_share_their_files(shared_files: Files) -> None:
    files = shared_files
    await files("Write", path="a/b/c.txt", content="one\n")
    value = await files(
        "Bash", command="id -u; umask 077; echo two >> a/b/c.txt; mkdir d; echo x > d/mine; chmod 600 d/mine"
    )
    assert value["success"], value
    owner = os.geteuid() if files.workspace.user is None else NOBODY.uid
    assert value["stdout"] == f"{owner}\n"
    assert (await files("Read", path="a/b/c.txt"))["content"] == "1 | one\n2 | two"
    for arguments in ({"content": "y\n", "append": True}, {"content": "x\ny\n"}):
        assert (await files("Write", path="d/mine", **arguments))["success"]
        assert (await files("Bash", command="cat d/mine && echo z >> d/mine"))["stdout"] == "x\ny\n"
    assert (await files("Edit", path="d/mine", old_string="z", new_string="Z"))["success"]
    assert (await files("Bash", command="rm -r a d"))["success"]


@as_root
@pytest.mark.parametrize("shared_files", ["another user"], indirect=True)
async def test_files_of_others_are_not_lent(shared_files: Files, shared_folder: Path) -> None:
    """A hard link is made to what a command could not read itself."""
    files = shared_files
    secret = shared_folder / "jobs" / "secret"
    secret.write_text("of root\n")
    secret.chmod(0o600)
    os.link(secret, files.work / "link")
    for tool, more in (
        ("Read", {}),
        ("Write", {"content": "x", "append": True}),
        ("Edit", {"old_string": "of", "new_string": "x"}),
        ("Grep", {"pattern": "."}),
    ):
        said = await files.error(tool, path="link", **more)
        assert "another user" in said or "hard links" in said
    assert (await files("Grep", pattern="of root"))["total_matches"] == 0
    assert secret.read_text() == "of root\n"
    await files("Write", path="link", content="mine\n")
    assert secret.read_text() == "of root\n", "the name has a file of its own now"


async def test_a_file_with_two_names_is_not_written_through(files: Files) -> None:
    await files("Write", path="a", content="x\n")
    os.link(files.work / "a", files.work / "b")
    assert "hard links" in await files.error("Write", path="b", content="y\n", append=True)
    await files("Edit", path="b", old_string="x", new_string="y")
    assert ((files.work / "a").read_text(), (files.work / "b").read_text()) == ("x\n", "y\n")
