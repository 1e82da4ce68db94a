"""Feature rows A5 to A11: names, the ``Tools:`` section, documents, files without front matter."""

import os
from pathlib import Path

import pytest

from flink_skills.skill import AgentSkill
from tests.skill.writing import codes, load, write

HEAD = "---\nname: weather\ndescription: d\n---\n"


@pytest.mark.row("A6")
@pytest.mark.parametrize(
    ("body", "tools"),
    [
        ("", ()),
        ("No section.\n- get_weather", ()),
        ("Tools:\n- get_weather\n- find_city", ("get_weather", "find_city")),
        ("tools:\n- a\n", ("a",)),
        ("TOOLS: what it may use\n- a\n", ("a",)),
        ("Text.\n\nTools:\n\n- a\n\n- b\n", ("a", "b")),
        ("Tools:\n- a\n# - hidden\n#- hidden_too\n- b\n", ("a", "b")),
        ("Tools:\n# only these\n- a\n", ("a",)),
        ("Tools:\n- a\n\nOverview\n- no tool\n", ("a",)),
        ("Tools:\n- a\nOverview:\n- no_tool\n", ("a",)),
        ("Tools:\n- a\n\n# Heading\n- no_tool\n", ("a",)),
        ("Tools:\n- a\n## Heading\n- no_tool\n", ("a",)),
        ("Tools:\n- a\nprose\n- no_tool\n", ("a",)),
        ("Tools:\n- a\n- a sentence in prose\n- no_tool\n", ("a",)),
        ("Tools:\n- `a`\n- b: what it does\n- c (often)\n- d - what it does\n- e # why\n", ("a", "b", "c", "d", "e")),
        ("Tools:\n- a\n- a\n", ("a",)),
        ("Tools:\n  - server:tool\n  - mcp__server__tool\n", ("server:tool", "mcp__server__tool")),
        ("Tools:\nOverview\n", ()),
        ("My tools: none\n- a", ()),
    ],
)
def test_the_tools_section(tmp_path: Path, body: str, tools: tuple[str, ...]) -> None:
    result = load(write(tmp_path / "weather", HEAD + body))
    assert result.skill is not None
    assert result.skill.tools == tools
    assert AgentSkill("weather", "d", body).tools == tools


@pytest.mark.row("A7")
def test_documents_are_listed_in_the_order_of_their_paths(tmp_path: Path) -> None:
    place = write(tmp_path / "weather", HEAD)
    for path in ("b.md", "a.txt", "references/deep/z.md", "references/a.MD", "references-a.md", "x.json", "run.py"):
        write((place / path).parent, "x", (place / path).name)
    for path in (".hidden.md", ".git/a.md", ".notes/a.md", "docs/.draft.md"):
        write((place / path).parent, "x", (place / path).name)
    write(place / "nested", "---\nname: nested\ndescription: d\n---\n")
    write(place / "nested", "x", "own.md")
    (place / "out.md").symlink_to("/etc/hostname")
    skill = load(place).skill
    assert skill is not None
    assert skill.docs == ("a.txt", "b.md", "references-a.md", "references/a.MD", "references/deep/z.md")
    in_memory = AgentSkill("weather", "d", "", {"b.md": "", "a/c.txt": "", ".x.md": "", "z.json": ""})
    assert in_memory.docs == ("a/c.txt", "b.md")


@pytest.mark.row("A7")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_documents_that_may_not_be_read_are_left_out(tmp_path: Path) -> None:
    place = write(write(tmp_path / "weather", HEAD), "x", "a.md")
    (place / "a.md").chmod(0)
    skill = load(place).skill
    assert skill is not None
    assert skill.docs == ()


PAGE = "\n```sh\n# install it\n```\n## When to Use\n\n# Weather tools ##\n\nTools:\n- get_weather\n\n# Conventions\n"


@pytest.mark.row("A10")
def test_a_page_without_front_matter_is_a_skill_where_it_is_asked_for(tmp_path: Path) -> None:
    place = write(tmp_path / "weather", PAGE)
    refused = load(place)
    assert (refused.skill, codes(refused, "error")) == (None, ["F02"])
    result = load(place, format="heading")
    assert result.skill is not None
    assert (result.skill.name, result.skill.description, result.skill.form) == ("weather", "Weather tools", "heading")
    assert result.skill.instructions == PAGE.strip("\n")
    assert result.skill.tools == ("get_weather",)
    assert [(each.code, each.severity) for each in result.diagnostics] == [("L13", "info")]
    assert not result.strict_valid
    strict = load(place, format="heading", strict=True)
    assert (strict.skill, codes(strict, "error")) == (None, ["L13"])


@pytest.mark.row("A10")
@pytest.mark.parametrize("beside", ["schema.json", "tools.py"])
def test_and_where_the_files_of_that_form_stand_beside(tmp_path: Path, beside: str) -> None:
    place = write(tmp_path / "weather", "\ufeff# Weather\r\n\r\nSay it.\r\n")
    assert load(place).skill is None
    write(place, "", beside)
    result = load(place)
    assert result.skill is not None
    assert (result.skill.description, result.skill.form) == ("Weather", "heading")
    assert result.skill.instructions == "# Weather\n\nSay it."


def test_a_page_is_judged_like_any_skill(tmp_path: Path) -> None:
    result = load(write(tmp_path / "My Tools", f"# {'long ' * 300}\u200b\n"), format="heading")
    assert result.skill is not None
    assert codes(result) == ["F05", "F09", "L13"]
    nothing = load(write(tmp_path / "nothing", "No heading here.\n#hashtag\n"), format="heading")
    assert (nothing.skill, codes(nothing, "error")) == (None, ["F08"])


def test_front_matter_counts_in_every_format(tmp_path: Path) -> None:
    result = load(write(tmp_path / "weather", HEAD + "# Other\n"), format="heading")
    assert result.skill is not None
    assert (result.skill.form, result.skill.description, result.diagnostics) == ("skill", "d", ())
    broken = load(write(tmp_path / "weather", "---\nmetadata: {a: [b}\n---\n# Other\n"), format="heading")
    assert (broken.skill, codes(broken, "error")) == (None, ["L10"])
