"""Bash: where and how commands run (rows J18, J32)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Files


@pytest.mark.row("J18", "J32")
async def test_the_shape(files: Files) -> None:
    assert await files("Bash", command="echo out; echo err >&2") == {
        "success": True,
        "stdout": "out\n",
        "stderr": "err\n",
        "return_code": 0,
        "command": "echo out; echo err >&2",
        "cwd": ".",
    }


@pytest.mark.row("J18")
async def test_what_fails(files: Files) -> None:
    value = await files("Bash", command="echo no; exit 3")
    assert (value["success"], value["return_code"], value["stdout"]) == (False, 3, "no\n")
    assert value["error"] == "the command ended with exit code 3"
    value = await files("Bash", command="sleep 30", timeout=0.2)
    assert (value["success"], value["error"]) == (
        False,
        "the command was ended because it ran longer than 0.2 s: do it in parts",
    )
    value = await files("Bash", command="kill -9 $$")
    assert (value["return_code"], value["error"]) == (-9, "the command was ended by signal 9")
    assert "NUL" in await files.error("Bash", command="echo \0")
    assert "at least 1 character" in await files.error("Bash", command="")


@pytest.mark.row("J18")
async def test_outside_of_its_folder_commands_only_look(shell_with: Callable[..., object]) -> None:
    files = Files(await shell_with(), cwd="mine")  # type: ignore[misc]
    await files("Write", path="$OUTPUT_DIR/a.txt", content="one\ntwo\n")
    for command, out in (
        ("ls", "a.txt\n"),
        ("cat a.txt", "one\ntwo\n"),
        ("grep -n 'two' a.txt", "2:two\n"),
        ("find . -name '*.txt'", "./a.txt\n"),
        ("head -n 1 a.txt", "one\n"),
        ("tail -n 1 a.txt", "two\n"),
        ("wc -l a.txt", "2 a.txt\n"),
        ("echo 'a b'", "a b\n"),
        ("pwd", f"{files.workspace.out_dir}\n"),
    ):
        value = await files("Bash", command=command, cwd="$OUTPUT_DIR")
        assert (value["stdout"], value["cwd"]) == (out, "$OUTPUT_DIR")
    for command, said in (
        ("rm a.txt", "where only these run: ls, pwd"),
        ("cat a.txt | sh", "no shell here"),
        ("echo x > a.txt", "no shell here"),
        ("ls; rm a.txt", "no shell here"),
        ("cat $(rm a.txt)", "no shell here|begins with"),
        ("find . -delete", "find only looks"),
        ("find . -exec rm a.txt +", "find only looks"),
        ("./ls", "where only these run"),
        ("PATH=. ls", "where only these run"),
    ):
        error = await files.error("Bash", command=command, cwd="$OUTPUT_DIR")
        assert any(one in error for one in said.split("|")), error
    assert (files.workspace.out_dir / "a.txt").read_text() == "one\ntwo\n"
    assert (await files("Bash", command="mkdir sub && cd sub && pwd"))["success"]
    assert (await files("Bash", command="touch x", cwd="sub"))["success"]


@pytest.mark.row("J18")
async def test_outside_of_the_workspace_nothing_runs(files: Files) -> None:
    for cwd, said in (("/etc", "outside the workspace"), ("../..", "leads out"), ("none", "does not exist")):
        assert said in await files.error("Bash", command="ls", cwd=cwd)


async def test_the_policy_of_the_job_holds(shell_with: Callable[..., object]) -> None:
    files = Files(await shell_with(**{"skills.shell.allowed-commands": "/bin/echo"}))  # type: ignore[misc]
    assert (await files("Bash", command="echo hi"))["stdout"] == "hi\n"
    assert "cat" in await files.error("Bash", command="cat x")


async def test_the_skill_loaded_last_lends_its_name(files: Files) -> None:
    files.context.skill_state.apply({"op": "load", "skill": "log-triage"})  # type: ignore[union-attr]
    value = await files(
        "Bash", command='echo "$SKILL_NAME $FLINK_SKILLS_CALL_ID"; sh $SKILLS_DIR/$SKILL_NAME/scripts/where.sh'
    )
    assert value["stdout"] == f"log-triage call-1\n{files.work}\nlog-triage\n"


async def test_a_job_without_commands(files: Files) -> None:
    files.context.shell = None
    assert "skills.shell.enabled" in await files.error("Bash", command="ls")
    assert (await files("Write", path="a", content="x"))["success"]
