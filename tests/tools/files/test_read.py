"""Read: lines, pages, encodings (rows J14, J32)."""

from __future__ import annotations

import codecs
import os
import random
import re

import pytest

from flink_skills.manager import SkillView
from flink_skills.tools import load_effect
from flink_skills.tools.files import MAX_BYTES, MAX_CHARS, MAX_LINES

from .conftest import Files


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
