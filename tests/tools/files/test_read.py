"""Read: lines, pages, encodings (rows J14, J32)."""

from __future__ import annotations

import codecs
import os
import random
import re
from collections.abc import Callable

import pytest

from flink_skills.manager import SkillView
from flink_skills.tools import load_effect
from flink_skills.tools.files import MAX_BYTES, MAX_CHARS, MAX_LINES
from tests.tools.files.conftest import Files


@pytest.mark.parametrize("block", [1, 3, 64 << 10])
async def test_a_page_is_that_of_a_split(block: int, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flink_skills.tools.files.text_files._BLOCK", block)
    chance = random.Random(block)
    for _ in range(150):
        text = "".join(chance.choices(["a", "\n", "\r", "\r\n", "bc", "ü", "\u2028"], k=chance.randint(1, 14)))
        (files.work / "a").write_bytes(text.encode())
        every = re.split(r"\r\n|\n|\r", text)
        every = every if every[-1] else every[:-1]
        start = chance.randint(1, len(every))
        end = start + chance.randint(0, 5)
        value = await files("Read", path="a", start_line=start, end_line=end)
        wanted = "\n".join(f"{number} | {line}" for number, line in enumerate(every[start - 1 : end], start))
        assert (value["content"], value["total_lines"]) == (wanted, len(every)), (text, start, end)


@pytest.mark.row("J14", "J32")
async def test_lines_have_their_numbers(files: Files) -> None:
    (files.work / "a.txt").write_text("one\ntwo\nthree\n")
    assert await files("Read", path="a.txt") == {
        "success": True,
        "content": "1 | one\n2 | two\n3 | three",
        "total_lines": 3,
        "read_range": "1-3",
    }
    part = await files("Read", path="a.txt", start_line=2, end_line=2)
    assert (part["content"], part["total_lines"], part["read_range"]) == ("2 | two", 3, "2-2")
    last = await files("Read", path="a.txt", start_line=2, end_line=99)
    assert (last["read_range"], "next_line" in last) == ("2-3", False)


@pytest.mark.row("J14")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"path": "none.txt"}, "does not exist"),
        ({"path": "."}, "is a folder"),
        ({"path": ""}, "path is empty"),
        ({"path": "a.txt", "start_line": 5}, "has 1 lines, and start_line is 5"),
        ({"path": "a.txt", "start_line": 0}, "greater than or equal to 1"),
        ({"path": "a.txt", "start_line": 3, "end_line": 2}, "swap them"),
        ({"path": "a.txt/b"}, "not a folder"),
        ({"path": "x\0"}, "characters that no path can have"),
        ({"path": "x" * 300}, "too long"),
    ],
)
async def test_what_cannot_be_read_is_told(files: Files, arguments: dict[str, object], said: str) -> None:
    (files.work / "a.txt").write_text("one\n")
    assert said in await files.error("Read", **arguments)


async def test_an_empty_file(files: Files) -> None:
    (files.work / "a.txt").write_text("")
    value = await files("Read", path="a.txt")
    assert (value["content"], value["total_lines"], value["read_range"]) == ("", 0, "0-0")


@pytest.mark.row("J14")
async def test_a_long_file_is_paged(files: Files) -> None:
    (files.work / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, MAX_LINES + 3)))
    first = await files("Read", path="a.txt")
    assert (first["read_range"], first["next_line"]) == (f"1-{MAX_LINES}", MAX_LINES + 1)
    assert f"continue with start_line={MAX_LINES + 1}" in str(first["note"])
    rest = await files("Read", path="a.txt", start_line=first["next_line"])
    assert rest["content"] == f"{MAX_LINES + 1} | line {MAX_LINES + 1}\n{MAX_LINES + 2} | line {MAX_LINES + 2}"
    assert "note" not in rest


@pytest.mark.row("J14")
async def test_a_file_of_more_than_10_mb_is_read_in_parts(files: Files) -> None:
    lines = [f"{number:07} {'x' * 90}" for number in range(1, 150_001)]
    (files.work / "big.log").write_text("\n".join(lines))
    assert (files.work / "big.log").stat().st_size > MAX_BYTES
    value = await files("Read", path="big.log", start_line=140_000, end_line=140_002)
    assert value["content"] == "\n".join(f"{number} | {lines[number - 1]}" for number in range(140_000, 140_003))
    assert (value["total_lines"], value["read_range"]) == (150_000, "140000-140002")
    seen, start = 0, 1
    while start:
        page = await files("Read", path="big.log", start_line=start, end_line=5000)
        content = str(page["content"]).split("\n")
        assert content[0].endswith(lines[start - 1])
        seen += len(content)
        start = int(str(page.get("next_line", 0)))
    assert seen == 5000


async def test_a_huge_line_is_cut(files: Files) -> None:
    for size in (MAX_CHARS * 2, MAX_BYTES + 10):
        (files.work / "a.txt").write_text("x" * size + "\nnext\n")
        value = await files("Read", path="a.txt")
        assert len(str(value["content"])) == MAX_CHARS + len("1 | ")
        assert (value["total_lines"], value["read_range"], value["next_line"]) == (2, "1-1", 2)
        assert "is cut" in str(value["note"])
        assert (await files("Read", path="a.txt", start_line=2))["content"] == "2 | next"


@pytest.mark.row("J14")
@pytest.mark.parametrize(
    ("data", "text", "encoding"),
    [
        ("grün\n".encode(), "grün", None),
        (codecs.BOM_UTF8 + "grün\n".encode(), "grün", None),
        ("grün\n".encode("utf-16"), "grün", "utf-16-le"),
        (codecs.BOM_UTF16_BE + "grün\n".encode("utf-16-be"), "grün", "utf-16-be"),
        ("plain text\n".encode("utf-16-le"), "plain text", "utf-16-le"),
        ("grün\n".encode("utf-32"), "grün", "utf-32-le"),
        (
            "Die Straße ist grün und schön, sagte er.\n".encode("latin-1"),
            "Die Straße ist grün und schön, sagte er.",
            ...,
        ),
        (("Привет, как дела? Сегодня хорошая погода. " * 9).encode("cp1251"), "Привет, как дела?", "cp1251"),
        (("今天天气很好 我们去公园散步 " * 9).encode("gb18030"), "今天天气很好", "gb18030"),
        (b"a\xff\xfe\x80\x81\x8d\x90", "a", ...),
    ],
)
async def test_encodings(files: Files, data: bytes, text: str, encoding: object) -> None:
    (files.work / "a.txt").write_bytes(data)
    value = await files("Read", path="a.txt")
    assert str(value["content"]).startswith(f"1 | {text}")
    if encoding is not ...:
        assert value.get("encoding") == encoding


async def test_line_ends_of_all_kinds(files: Files) -> None:
    (files.work / "a.txt").write_bytes(b"a\r\nb\rc\nd")
    assert (await files("Read", path="a.txt"))["content"] == "1 | a\n2 | b\n3 | c\n4 | d"


async def test_binary_files_are_told_apart(files: Files) -> None:
    (files.work / "a.bin").write_bytes(os.urandom(3000) + b"\0")
    (files.work / "a.bin").write_bytes(b"\x7fELF\0\0\1\2\3" * 100)
    assert "is binary (900 bytes)" in await files.error("Read", path="a.bin")


async def test_values_of_secrets_are_hidden(files: Files) -> None:
    files.shell.hidden.add("skills.env.s.TOKEN", "t0k3n-12345")
    (files.work / "a.txt").write_text("it is t0k3n-12345\n")
    result = await files.result("Read", path="a.txt")
    assert result.value["content"] == "1 | it is [hidden]"
    assert "t0k3n" not in result.content
    assert "t0k3n" not in (await files.result("Grep", pattern="it is")).content


async def test_the_folder_of_a_skill_loaded_or_not(files: Files, view: SkillView) -> None:
    folder = view.get("billing").path  # type: ignore[union-attr]
    assert (await files("Read", path=f"{folder}/scripts/sum.sh"))["content"] == "1 | echo 42"
    files.context.skill_state.apply(load_effect("billing", "digest"))  # type: ignore[union-attr]
    assert (await files("Read", path=f"{folder}/scripts/sum.sh"))["content"] == "1 | echo 42"
    assert "outside the workspace" in await files.error("Read", path=f"{folder}/../secret-ops/SKILL.md")


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
