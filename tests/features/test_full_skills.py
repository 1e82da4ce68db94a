"""The tools about skills of the profile ``full``, over whole turns (sections C, D and E)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flink_skills import tool
from flink_skills.models import ToolCall
from flink_skills.testing import call
from tests.features.conftest import Answer, Ask, Plain

LOAD = call("skill_load", skill="shout")


@pytest.fixture
def skills(skills: Path) -> Path:
    (skills / "shout/more.txt").write_text("MORE TEXT")
    (skills / "count/SKILL.md").write_text(
        "---\nname: count\ndescription: Counts letters.\n---\n"
        "Tools:\n- add\n# - hidden\n- multiply\n\nOverview\n- none\n"
    )
    return skills


@pytest.mark.row("C1", "C2", "C6", "A6", "A7")
def test_lists(ask: Ask) -> None:
    names, tools, none, docs, no_docs, unknown = ask(
        call("skill_list"),
        call("skill_list_tools", skill_name="count"),
        call("skill_list_tools", skill="shout"),
        call("skill_list_docs", skill="shout"),
        call("skill_list_docs", skill_name="count"),
        call("skill_list_docs", skill="shuot"),
    )
    assert names.value == ["count", "shout"]
    assert tools.value == ["add", "multiply"]
    assert none.value == []
    assert docs.value == ["more.txt", "notes.md"]
    assert no_docs.value == []
    assert unknown.is_error
    assert "Did you mean shout?" in unknown.text


@pytest.mark.row("C3", "C9", "E3", "E13")
def test_a_load_is_a_line_and_the_next_request_has_the_instructions(ask: Ask) -> None:
    wrong, loaded, docs, again, gone, twice = ask(
        call("skill_load", skill="shuot"),
        LOAD,
        call("skill_load", skill_name="shout", docs=["notes.md"]),
        call("skill_load", skill="shout", include_all_docs=True),
        call("skill_unload", skill="shout"),
        call("skill_unload", skill="shout"),
    )
    assert wrong.is_error
    assert "Did you mean shout?" in wrong.text
    assert loaded.text == "loaded: shout"
    assert [answer.request.system.count("Run sh scripts/run.sh") for answer in (wrong, loaded, docs)] == [0, 1, 1]
    assert ["LOUD NOTES" in answer.request.system for answer in (loaded, docs, again, gone)] == [
        False,
        True,
        True,
        False,
    ]
    assert ["MORE TEXT" in answer.request.system for answer in (loaded, docs, again, gone)] == [
        False,
        False,
        True,
        False,
    ]
    assert "Run sh scripts/run.sh" not in gone.request.system
    assert not gone.is_error
    assert twice.is_error
    assert "not loaded" in twice.text


@pytest.mark.row("C5", "C7", "C16")
def test_documents_are_added_replaced_and_cleared(ask: Ask) -> None:
    def select(**arguments: Any) -> ToolCall:
        return call("skill_select_docs", skill="shout", **arguments)

    _, added, replaced, all_, cleared, odd, missing = ask(
        call("skill_load", skill="shout", docs=["more.txt"]),
        select(docs=["notes.md"], mode="add"),
        select(docs=["notes.md"]),
        select(include_all_docs=True),
        select(mode="clear"),
        select(docs=["more.txt"], mode="raplace"),
        select(docs=["mroe.txt"]),
    )
    keys = ("skill", "mode", "selected_docs", "include_all_docs")
    assert [tuple(answer.value[key] for key in keys) for answer in (added, replaced, all_, cleared)] == [
        ("shout", "add", ["more.txt", "notes.md"], False),
        ("shout", "replace", ["notes.md"], False),
        ("shout", "replace", ["more.txt", "notes.md"], True),
        ("shout", "clear", [], False),
    ]
    shown = [
        ("MORE TEXT" in a.request.system, "LOUD NOTES" in a.request.system) for a in (added, replaced, all_, cleared)
    ]
    assert shown == [(True, True), (False, True), (True, True), (False, False)]
    assert odd.value["mode"] == "replace"
    assert odd.value["selected_docs"] == ["more.txt"]
    assert "more.txt" in missing.text


@pytest.mark.row("C13")
def test_names_are_an_enumeration_while_they_are_few(ask: Ask, skills: Path) -> None:
    (few,) = ask(LOAD)
    enums = {
        tool.name: tool.parameters["properties"]["skill"].get("enum")
        for tool in few.request.tools
        if "skill" in tool.parameters["properties"]
    }
    assert len(enums) >= 8
    assert set(map(tuple, enums.values())) == {("count", "shout")}
    for number in range(255):
        place = skills / f"s{number:03}"
        place.mkdir()
        (place / "SKILL.md").write_text(f"---\nname: s{number:03}\ndescription: d\n---\n")
    (many,) = ask(LOAD)
    assert "enum" not in str([tool.parameters["properties"].get("skill") for tool in many.request.tools])


@pytest.mark.row("C14", "F30", "G8")
def test_the_guidance_goes_from_the_list_to_a_run(ask: Ask) -> None:
    (loaded,) = ask(LOAD)
    text = loaded.request.system.partition("</available_skills>")[2]
    order = ["skill_list", "skill_list_docs", "skill_load", "skill_select_tools", "skill_select_docs", "skill_run"]
    assert [text.index(name) for name in order] == sorted(text.index(name) for name in order)
    assert text.index("skill_run") < text.index("skill_exec")
    assert "editor_text" in text


@pytest.mark.row("C15")
def test_no_tool_promises_a_saving(ask: Ask) -> None:
    (loaded,) = ask(LOAD)
    assert not [tool.name for tool in loaded.request.tools if "%" in f"{tool.description}{tool.parameters}"]


class Calculates(Plain):
    """Has tools that wait for a skill."""

    @tool(dynamic=True)
    def add(self, a: int, b: int) -> int:
        """Add."""
        return a + b

    @tool(dynamic=True)
    def hidden(self) -> str:
        """Is commented out in the skill."""
        return "found"


def tools_of(answer: Answer) -> set[str]:
    return {spec.name for spec in answer.request.tools} & {"add", "hidden", "multiply"}


@pytest.mark.row("C4", "C8", "I4", "I7", "A9")
def test_tools_come_and_go_with_the_skill(ask: Ask) -> None:
    def select(**arguments: Any) -> ToolCall:
        return call("skill_select_tools", skill="count", **arguments)

    loaded, added, more, found, fewer, cleared, own, gone = ask(
        call("skill_load", skill="count"),
        call("add", a=1, b=2),
        select(tools=["hidden"], mode="add"),
        call("hidden"),
        select(tools=["hidden"]),
        select(mode="clear"),
        select(include_all_tools=True),
        call("skill_unload", skill="count"),
        agent=Calculates,
    )
    assert loaded.text.splitlines() == ["loaded: count", "With 1 tool: add", "Not available here: multiply"]
    assert added.text == "3"
    assert sorted(more.value["selected_tools"]) == ["add", "hidden", "multiply"]
    assert found.text == "found"
    assert (fewer.value["selected_tools"], cleared.value["selected_tools"]) == (["hidden"], [])
    wanted = [{"add"}, {"add"}, {"add", "hidden"}, {"add", "hidden"}, {"hidden"}, set(), {"add"}, set()]
    assert [tools_of(answer) for answer in (loaded, added, more, found, fewer, cleared, own, gone)] == wanted


@pytest.mark.row("C10", "C17", "I4")
def test_tools_that_are_not_there_are_told_apart(ask: Ask) -> None:
    early, unloaded, loaded, _, unselected, nonsense = ask(
        call("add", a=1, b=2),
        call("skill_select_tools", skill="count", tools=["add"]),
        call("skill_load", skill="count"),
        call("skill_select_tools", skill="count", mode="clear"),
        call("add", a=1, b=2),
        call("nonsense"),
        agent=Calculates,
    )
    assert all(answer.is_error for answer in (early, unloaded, unselected, nonsense))
    assert "Skill count has it: call skill_load with it first." in early.text
    assert "Skill count is not loaded: load it first" in unloaded.text
    assert "Not available here: multiply" in loaded.text
    assert "it is not selected: call skill_select_tools with mode add." in unselected.text
    assert "count" not in nonsense.text.partition("Tools:")[0]
