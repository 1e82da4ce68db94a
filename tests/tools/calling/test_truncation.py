"""Results that are longer than a model may read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flink_skills import SkillConfig, ToolContext
from flink_skills.manager import AgentSkillManager, SkillView
from flink_skills.tools import FunctionTool, SkillSettings, ToolSet
from flink_skills.tools.calling import CallGuard
from flink_skills.tools.files import FileToolSet
from tests.tools.conftest import Conversation


async def content_of(value: Any, most: int) -> str:
    """The text that a model reads of a tool that returned ``value``."""

    def shop() -> Any:
        return value

    tools = ToolSet([FunctionTool(shop)], CallGuard(SkillConfig({"skills.tool.max-output": most})))
    result = await tools.call("shop", {}, ToolContext())
    assert not result.is_error
    return result.content


def run_result(files: list[str], artifacts: list[str], stdout: str) -> dict[str, Any]:
    return {
        "exit_code": 3,
        "stdout": stdout,
        "duration_ms": 12,
        "output_files": [
            {
                "name": f"out/{number}.txt",
                "ref": f"workspace://out/{number}.txt",
                "content": content,
                "mime_type": "text/plain",
                "size_bytes": len(content),
            }
            for number, content in enumerate(files)
        ],
        "artifact_files": [{"name": name, "version": "7"} for name in artifacts],
        "warnings": ["outputs reached max_files (2)"],
    }


CONTENTS = st.lists(
    st.builds(lambda text, times: text * times, st.text(min_size=1, max_size=20), st.integers(0, 4000)), max_size=12
)


@given(
    files=CONTENTS,
    artifacts=st.lists(st.text('abcdef-_/.é"\\', min_size=1, max_size=200), max_size=300, unique=True),
    stdout=st.builds(lambda text, times: text * times, st.text(max_size=9), st.integers(0, 2000)),
    most=st.integers(2_000, 60_000),
)
@settings(max_examples=60, deadline=None)
async def test_a_long_result_of_a_run_is_valid_json_with_all_names(
    files: list[str], artifacts: list[str], stdout: str, most: int
) -> None:
    whole = run_result(files, artifacts, stdout)
    text = await content_of(whole, most)
    assert len(text) <= most
    read = json.loads(text)
    assert (read["exit_code"], read["duration_ms"], read["warnings"]) == (3, 12, whole["warnings"])
    for entry, was in zip(read["output_files"], whole["output_files"], strict=False):
        if isinstance(entry, str):
            continue
        assert {**entry, "content": ""} == {**was, "content": ""}
        if entry["content"] != was["content"]:
            assert was["ref"] in entry["content"]
            assert f"{len(was['content']):,} characters omitted" in entry["content"]
    assert_complete(read["output_files"], whole["output_files"])
    assert_complete(read["artifact_files"], whole["artifact_files"])
    names = json.dumps(run_result(["" for _ in files], artifacts, ""), ensure_ascii=False)
    if len(names) + 200 * (len(files) + 1) <= most:
        assert read["artifact_files"] == whole["artifact_files"]
        assert len(read["output_files"]) == len(files)


def assert_complete(read: list[Any], whole: list[Any]) -> None:
    if len(read) < len(whole) or (read and isinstance(read[-1], str)):
        left = len(whole) - (len(read) - 1)
        assert read[-1] == f"[… {left:,} of {len(whole):,} entries omitted …]"
        assert [entry["name"] for entry in read[:-1]] == [entry["name"] for entry in whole[: len(read) - 1]]
    else:
        assert [entry["name"] for entry in read] == [entry["name"] for entry in whole]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just("x" * 3000),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=60,
)


@given(value=st.lists(JSON, min_size=1) | st.dictionaries(st.text(), JSON, min_size=1), most=st.integers(100, 3000))
@settings(max_examples=80, deadline=None)
async def test_any_json_stays_json_within_the_limit(value: Any, most: int) -> None:
    text = await content_of(value, most)
    assert len(text) <= most
    json.loads(text)


async def test_the_longest_content_is_shortened_first() -> None:
    read = json.loads(await content_of(run_result(["a" * 50_000, "b" * 3_000], ["x.txt"], "c" * 900), 10_000))
    long, short = read["output_files"]
    assert short["content"] == "b" * 3_000
    assert read["stdout"] == "c" * 900
    assert long["content"].startswith("aaaa")
    assert "characters omitted: read workspace://out/0.txt …]" in long["content"]


async def test_the_end_of_printed_text_is_kept() -> None:
    read = json.loads(await content_of({"exit_code": 1, "stderr": "begin" + "x" * 9_000 + "the error"}, 1_000))
    assert read["stderr"].startswith("begin") and read["stderr"].endswith("the error")


async def test_a_flag_about_truncation_is_true() -> None:
    read = json.loads(await content_of({"url": "https://x.example/a", "content": "x" * 9_000, "truncated": False}, 500))
    assert read["truncated"] is True
    assert "read https://x.example/a" in read["content"]


async def test_a_list_that_is_too_long_has_the_number_of_omitted_entries() -> None:
    names = [f"docs/chapter-{number}.md" for number in range(5_000)]
    read = json.loads(await content_of(names, 10_000))
    assert read[:-1] == names[: len(read) - 1] and len(read) > 300
    assert read[-1] == f"[… {5_001 - len(read):,} of 5,000 entries omitted …]"


async def test_text_after_json_is_kept() -> None:
    text = await content_of(json.dumps({"name": "a", "content": "x" * 5_000}) + "\n(3 more are not shown)", 1_000)
    assert json.loads(text.partition("\n")[0])["name"] == "a"
    assert text.endswith("(3 more are not shown)")


@pytest.mark.parametrize("text", ["[12] a line of a log\n" * 500, "{not json " * 500, "[" * 5_000, '{"a": NaN}' * 900])
async def test_plain_text_keeps_its_beginning(text: str) -> None:
    read = await content_of(text, 1_000)
    assert read == f"{text[:1000]}\n[the result of shop has {len(text):,} characters; these are the first 1,000]"


async def test_each_output_of_a_command_keeps_its_ends(view: SkillView, shell_with: Any) -> None:
    talk = Conversation(view, await shell_with())
    talk.tools = limited(talk.tools, 2_000)
    command = "head -c 30000 /dev/zero | tr '\\0' x; echo; echo last line; echo Traceback >&2; exit 1"
    content = (await talk.call("execute_shell_command", command=command)).content
    assert len(content) <= 2_000
    assert content.startswith("exit code: 1\nstdout:\nxxx")
    assert content.endswith("x\nlast line\nstderr:\nTraceback\n")
    assert "characters, the middle is omitted …]" in content


def limited(tools: ToolSet, most: int) -> ToolSet:
    """Return the tools as a job with a limit has them."""
    found = [tools.get(name) for name in tools.names]
    return ToolSet([tool for tool in found if tool], CallGuard(SkillConfig({"skills.tool.max-output": most})))


async def test_a_run_with_large_files_has_all_names(view: SkillView, shell_with: Any) -> None:
    talk = Conversation(view, await shell_with(), settings=SkillSettings(tools=("skill_load", "skill_run")))
    talk.tools = limited(talk.tools, 200_000)
    await talk.call("skill_load", skill="billing")
    command = "for n in 1 2 3; do head -c 500000 /dev/zero | tr '\\0' '\"' > \"$OUTPUT_DIR/$n.txt\"; done"
    result = await talk.call("skill_run", skill="billing", command=command, output_files=["out/*"])
    assert len(result.content) <= 200_000
    read = json.loads(result.content)
    assert read["exit_code"] == 0
    assert [entry["ref"] for entry in read["output_files"]] == [f"workspace://out/{n}.txt" for n in (1, 2, 3)]
    for entry in read["output_files"]:
        assert f"of 500,000 characters omitted: read {entry['ref']} …]" in entry["content"]
    assert [len(entry["content"]) for entry in result.value["output_files"]] == [500_000] * 3


async def test_a_long_file_of_a_skill_is_read_in_pages_of_the_limit(skills: Any) -> None:
    text = "".join(f"{number:06} __BASE_DIR__\n" for number in range(3_000))
    (skills / "billing" / "long.txt").write_text(text)
    manager = AgentSkillManager(paths=[str(skills)])
    manager.load_skills()
    talk = Conversation(manager.view(), None)
    talk.tools = limited(talk.tools, 5_000)
    read, offset = "", 0
    while offset is not None:
        result = await talk.call("load_skill_resource", name="billing", path="long.txt", offset=offset)
        assert not result.is_error and len(result.content) <= 5_000
        read, offset = read + result.value["text"], result.value["next_offset"]
        assert offset is None or f"continue with offset={offset}]" in result.content
    assert read == text.replace("__BASE_DIR__", str(skills / "billing"))


async def test_lines_of_a_file_are_read_in_pages_of_the_limit(view: SkillView, shell_with: Any) -> None:
    talk = Conversation(view, await shell_with())
    assert talk.workspace is not None and talk.shell is not None
    talk.workspace.ensure()
    talk.context.shell = talk.shell
    lines = [f'{number} "{"x" * (number % 50)}"' for number in range(1, 2_001)]
    (talk.workspace.work_dir / "a.txt").write_text("\n".join(lines))
    tools = limited(ToolSet(FileToolSet().tools), 4_000)
    seen: list[str] = []
    start: int | None = 1
    while start:
        result = await tools.call("Read", {"path": "a.txt", "start_line": start}, talk.context)
        assert len(result.content) <= 4_000
        page = json.loads(result.content)
        seen += [line.partition(" | ")[2] for line in page["content"].split("\n")]
        start = page.get("next_line")
    assert seen == lines
