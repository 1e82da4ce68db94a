"""What Write made a command can change, and the other way round, whoever runs it (rows J15, J16)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .conftest import NOBODY, Files, as_root


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
