"""Write: files, folders, ends of files, limits, repeated calls.

Examines the internals of tools.files.write on purpose.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
from collections.abc import Callable
from dataclasses import replace

import pytest

from flink_skills.tools.files import write as write_module

from .conftest import Files


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
