"""Properties that hold for every file: found by search, for hours with ``HYPOTHESIS_PROFILE=nightly``.

Examines the internals of skill.tools_section on purpose.
"""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flink_skills.skill import (
    AgentSkill,
    Fields,
    Limits,
    LoadResult,
    Report,
    check_support,
    file_references,
    find_block,
    inspect_skill,
    judge_fields,
    load_folder,
    read_front_matter,
    without_code,
)
from flink_skills.skill.skill_body import tools_section

# Pieces that front matter is made of, so that a search meets YAML's corners and what people write.
_PIECES = st.sampled_from(
    ["name", "description", "metadata", "allowed-tools", "license", ":", ": ", " #", "#", "- ", "-", "\n", "\n  ",
     "\n    ", "|", ">", "|-", "'", '"', "\\", "\\u", "\\ud83d\\ude80", "[", "]", "{", "}", ",", "&a", "*a", "**b**",
     "!", "!!str", "%", "@", "`", "?", "~", "null", "yes", "1.0", "0x1F", "text", "two words", "é", "日本", "\u200b",
     "\ufeff", "\x85", "\u2028", "\t", "\r", "\r\n", "\x00", "---", "...", "...\n", "\n---\n", " ", "  ",
     "Use when: asked", "it's", '"q"']
)  # fmt: skip
_YAMLISH = st.lists(_PIECES, max_size=30).map("".join)
_LINES = st.lists(
    st.tuples(
        st.sampled_from(["", "", "", "  ", "  ", "    ", "  - ", "- "]),
        st.sampled_from(["name", "description", "metadata", "x", "x-y", "", "1a", "key with words"]),
        st.sampled_from([": ", ": ", ": ", ":", ":  ", ": '", ': "', ": - ", ""]),
        st.sampled_from(
            ["text", "two words", "1.10", "yes", "~", "", "a: b", "a #b", "'q'", '"q"', "(x)", "a:", "it's", "/x"]
        )
        | st.text(max_size=12),
        st.sampled_from(["", "", "", " ", "'", '"', " # c"]),
    ).map("".join),
    max_size=6,
).map("\n".join)


def parse(data: bytes, folder: str, strict: bool = False) -> tuple[Fields | None, Report]:
    report, limits = Report("SKILL.md", strict=strict), Limits()
    block = find_block(data, report, limits)
    entries = read_front_matter(block, report, limits) if block else None
    if block is None or entries is None:
        return None, report
    return judge_fields(entries, report, first_line=block.line, folder=folder), report


@given(_YAMLISH | _LINES, _YAMLISH)
def test_lenient_and_strict_are_the_same_pass(front: str, body: str) -> None:
    data = f"---\n{front}\n---\n{body}".encode()
    lenient, found = parse(data, "a")
    strict, said = parse(data, "a", strict=True)
    assert [(each.code, each.line, each.message) for each in found.diagnostics] == [
        (each.code, each.line, each.message) for each in said.diagnostics
    ]
    assert found.strict_valid == said.strict_valid == (not said.has_errors)
    assert strict == lenient
    if said.strict_valid:
        assert not found.has_errors
        assert lenient is not None
    assert (lenient is None) == found.has_errors
    for each in (*found.diagnostics, *said.diagnostics):
        assert each.fix
        assert 1 <= each.line <= data.decode().replace("\r", "\n").count("\n") + 1


@given(_YAMLISH | _LINES)
def test_what_was_read_is_written_and_read_again_the_same(front: str) -> None:
    fields, _ = parse(f"---\ndescription: d\n{front}\n---\nBody".encode(), "a")
    # A file may have a longer name, which is reported; a skill made in code may not.
    if fields is None or len(fields.name) > 64:
        return
    skill = AgentSkill(
        fields.name,
        fields.description,
        "Body",
        license=fields.license,
        compatibility=fields.compatibility,
        metadata=fields.metadata,
        allowed_tools=fields.allowed_tools,
        extra=fields.extra,
    )
    text = skill.to_markdown()
    again, report = parse(text.encode(), "a")
    assert again == fields
    assert not {each.code for each in report.diagnostics} & {"L04", "L05", "L06", "L07", "L10", "L11", "L14"}
    assert AgentSkill.body_of(text.encode()) == "Body"


def load_bytes(data: bytes, **options: Any) -> LoadResult:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "SKILL.md").write_bytes(data)
        result = load_folder(folder, **options)
        if result.skill is not None:
            assert isinstance(inspect_skill(result.skill, Limits(), strict=True), list)
            assert isinstance(check_support(result.skill), list)
            assert isinstance(result.skill.tools, tuple)
        return result


_FILES = st.binary(max_size=200) | st.tuples(
    st.sampled_from([b"", b"\xef\xbb\xbf", b"\n", b"# Title\n"]),
    st.sampled_from([b"---\n", b"---\r\n", b"--- \n", b"---"]),
    st.binary(max_size=60) | _YAMLISH.map(str.encode) | st.just(b"name: a\ndescription: d"),
    st.sampled_from([b"\n---\n", b"\n---", b"\r\n---\r\n", b"\n----\n", b""]),
    st.binary(max_size=60) | _YAMLISH.map(str.encode),
).map(b"".join)


@given(_FILES, st.sampled_from(["skill", "heading"]))
def test_no_file_raises_anything(data: bytes, form: str) -> None:
    lenient = load_bytes(data, format=form)
    strict = load_bytes(data, format=form, strict=True)
    assert (lenient.skill is not None) or any(each.severity == "error" for each in lenient.diagnostics)
    assert lenient.strict_valid == strict.strict_valid == (strict.skill is not None)
    assert lenient.skill is not None or strict.skill is None


@given(
    st.lists(
        st.sampled_from(["`", "``", "```", "~~~", "\n", "[", "](", ")", "a/b.md", "scripts/x.py", "<", ">", " ", "x"])
    )
)
def test_no_body_raises_anything(pieces: list[str]) -> None:
    body = "".join(pieces)
    assert len(without_code(body)) == body.count("\n") + 1
    lines = body.split("\n")
    assert all(0 <= reference.line < len(lines) for reference in file_references(body))


@given(
    st.lists(st.sampled_from(["Tools:", "- a", "# - b", "# c", "## d", "", "- `e`", "text", "- f: g", "-h", "- i j"]))
)
def test_tools_are_names_of_items(lines: list[str]) -> None:
    body = "\n".join(lines)
    tools = tools_section(body)
    assert set(tools) <= {"a", "e", "f"}
    assert len(set(tools)) == len(tools)
    if "Tools:" not in lines:
        assert tools == ()
