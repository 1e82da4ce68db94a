"""The tools ``skill_list``, ``skill_list_docs`` and ``skill_list_tools``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flink_skills.manager import SkillView
from flink_skills.skill import AgentSkill
from flink_skills.tools.dynamic import ToolPool
from tests.tools.conftest import Conversation
from tests.tools.skills.conftest import Talking, full
from tests.tools.skills.test_loading import Brings, get_tides, get_weather


@pytest.mark.row("C1")
async def test_names_as_a_json_array(talk_full: Conversation) -> None:
    result = await talk_full.call("skill_list")
    assert result.content == '["billing", "log-triage", "weather"]'
    assert result.value == ["billing", "log-triage", "weather"]


@pytest.mark.row("C10")
async def test_the_menu_marks_what_is_loaded(talk_full: Conversation) -> None:
    await talk_full.call("skill_load", skill="weather")
    result = await talk_full.call("skill_list", menu=True)
    assert result.content.splitlines() == [
        "- billing: Reads invoices.",
        "- log-triage: Finds the root cause in a Flink log.",
        "- weather [loaded]: Knows the weather.",
    ]
    assert [entry["name"] for entry in result.value if entry["loaded"]] == ["weather"]


@pytest.mark.row("C10")
async def test_a_long_menu_shortens_descriptions(talking: Talking) -> None:
    view = SkillView([AgentSkill(f"s-{n:03}", "long " * 100, "Do.") for n in range(200)])
    result = await Conversation(view, None, settings=full()).call("skill_list", menu=True)
    assert len(result.content) < 20_000
    assert result.content.count("…") == 200


@pytest.mark.row("B12", "C1")
async def test_what_hides_from_the_menu_is_not_listed_until_it_is_loaded() -> None:
    skills = [
        AgentSkill("a", "Does a.", "Do."),
        AgentSkill("b", "Does b.", "Do.", extra={"disable-model-invocation": True}),
    ]
    talk = Conversation(SkillView(skills), None, settings=full())
    assert (await talk.call("skill_list")).value == ["a"]
    await talk.call("skill_load", skill="b")
    assert (await talk.call("skill_list")).value == ["a", "b"]


@pytest.mark.row("C6")
async def test_documents_sorted_by_path_and_nothing_else(talk_full: Conversation) -> None:
    result = await talk_full.call("skill_list_docs", skill="weather")
    assert json.loads(result.content) == ["guide.md", "references/cities.txt", "references/units.md"]
    assert (await talk_full.call("skill_list_docs", skill_name="billing")).content == "[]"
    assert (await talk_full.call("skill_list_docs", skill="wether")).is_error


@pytest.mark.row("C2")
async def test_tools_are_those_that_the_section_declares(talk_full: Conversation) -> None:
    result = await talk_full.call("skill_list_tools", skill="weather")
    assert json.loads(result.content) == ["get_weather", "get_forecast"]
    assert (await talk_full.call("skill_list_tools", name="billing")).content == "[]"
    assert "Did you mean weather?" in (await talk_full.call("skill_list_tools", skill="wether")).content


@pytest.mark.row("C6")
async def test_of_very_many_documents_the_first(talking: Talking, documented: Path) -> None:
    for number in range(600):
        (documented / "weather/references" / f"doc-{number:03}.md").write_text("x")
    result = await talking().call("skill_list_docs", skill="weather")
    assert len(result.value) == 603
    assert result.content.endswith("\n(103 more are not shown)")


@pytest.mark.parametrize("tool", ["skill_list_docs", "skill_list_tools", "skill_load", "skill_unload"])
@pytest.mark.row("B12", "C13")
async def test_a_skill_outside_of_the_set_is_one_that_does_not_exist(talk_full: Conversation, tool: str) -> None:
    filtered = await talk_full.call(tool, skill="secret-ops")
    missing = await talk_full.call(tool, skill="public-ops")
    assert filtered.is_error
    assert filtered.content.replace("secret", "public") == missing.content
    enum = talk_full.tools.specs([tool])[0].parameters["properties"]["skill"]["enum"]
    assert enum == ["billing", "log-triage", "weather"]


@pytest.mark.row("C13")
def test_names_are_enums_up_to_256() -> None:
    def enums(count: int) -> list[object]:
        view = SkillView([AgentSkill(f"s-{n}", "Does it.", "Tools:\n- a\n\nDo it.") for n in range(count)])
        specs = Conversation(view, None, settings=full()).tools.specs()
        schemas = [spec.parameters["properties"] for spec in specs if spec.name != "skill_list"]
        return [schema.get("skill", schema.get("name", {})).get("enum") for schema in schemas]

    assert all(len(names) == 256 for names in enums(256))  # type: ignore[arg-type]
    assert enums(257) == [None] * 6


@pytest.mark.row("C2")
async def test_tools_that_a_skill_brings_are_known_once_it_is_loaded(talking: Talking, documented: Path) -> None:
    (documented / "billing/tools.py").write_text("def sum_up(): ...")
    talk = talking(settings=full(), bundled=Brings())
    talk.context.workspace = object()  # type: ignore[assignment]
    before = await talk.call("skill_list_tools", skill="billing")
    assert (before.content, before.value) == ("[]\n(It also has its own tools: load it to see them.)", [])
    assert "\n" not in (await talk.call("skill_list_tools", skill="weather")).content
    await talk.call("skill_load", skill="billing")
    assert (await talk.call("skill_list_tools", skill="billing")).content == "[]"
    off = talking(settings=full(bundled_off="skills.bundled-tools is false"), bundled=Brings())
    assert (await off.call("skill_list_tools", skill="billing")).content == (
        "[]\n(The tools that it brings (sum_up) are not available: skills.bundled-tools is false.)"
    )


@pytest.fixture
async def loaded(talk_full: Conversation) -> Conversation:
    await talk_full.call("skill_load", skill="weather", docs=["guide.md"])
    return talk_full


@pytest.mark.row("C5", "C7")
@pytest.mark.parametrize(
    ("mode", "docs", "selected"),
    [
        ("add", ["references/units.md"], ["guide.md", "references/units.md"]),
        ("replace", ["references/units.md"], ["references/units.md"]),
        (None, ["units.md"], ["references/units.md"]),
        ("clear", ["guide.md"], []),
        ("replace", [], []),
        (" ADD ", "units.md", ["guide.md", "references/units.md"]),
    ],
)
async def test_documents(loaded: Conversation, mode: str | None, docs: object, selected: list[str]) -> None:
    given = {} if mode is None else {"mode": mode}
    result = await loaded.call("skill_select_docs", skill="weather", docs=docs, **given)
    mode = (mode or "replace").strip().lower()
    expected = {"skill": "weather", "mode": mode, "selected_docs": selected, "include_all_docs": False}
    assert json.loads(result.content) == result.value == expected
    assert list(loaded.skill_state["weather"].docs) == selected


@pytest.mark.row("C5", "C7")
@pytest.mark.parametrize("asked", [{"include_all_docs": True}, {"docs": ["*"]}, {"docs": "*", "mode": "add"}])
async def test_all_documents_are_named(loaded: Conversation, asked: dict[str, object]) -> None:
    result = await loaded.call("skill_select_docs", skill_name="weather", **asked)
    assert result.value["selected_docs"] == ["guide.md", "references/cities.txt", "references/units.md"]
    assert result.value["include_all_docs"] is True
    assert loaded.skill_state["weather"].docs == "*"
    more = await loaded.call("skill_select_docs", skill="weather", docs=["guide.md"], mode="add")
    assert more.value["include_all_docs"] is True


@pytest.mark.row("C4", "C5")
@pytest.mark.parametrize("tool", ["skill_select_docs", "skill_select_tools"])
async def test_an_unknown_mode_replaces_and_says_so(loaded: Conversation, tool: str) -> None:
    what = tool.rpartition("_")[2]
    name = {"docs": "references/units.md", "tools": "get_weather"}[what]
    result = await loaded.call(tool, skill="weather", mode="merge", **{what: [name]})
    assert not result.is_error
    assert result.value[f"selected_{what}"] == [name]
    assert result.value["mode"] == "replace"
    assert result.value["note"] == "There is no mode 'merge': took replace. Modes: add, replace, clear."


@pytest.mark.row("C4", "C5")
@pytest.mark.parametrize("tool", ["skill_select_docs", "skill_select_tools"])
async def test_a_skill_that_is_not_loaded(talk_full: Conversation, tool: str) -> None:
    result = await talk_full.call(tool, skill="weather")
    assert result.is_error and "not loaded: load it first" in result.content
    assert not result.effects


@pytest.mark.row("C5")
async def test_an_unknown_document(loaded: Conversation) -> None:
    result = await loaded.call("skill_select_docs", skill="weather", docs=["unit.md", "guide.md"], mode="add")
    assert result.is_error and "Did you mean references/units.md" in result.content
    assert loaded.skill_state["weather"].docs == ("guide.md",)


@pytest.mark.row("C4", "C7", "C16")
async def test_tools_as_in_the_sample(loaded: Conversation) -> None:
    result = await loaded.call("skill_select_tools", skill_name="weather", tools=["get_weather"])
    assert result.content == (
        '{"skill": "weather", "mode": "replace", "selected_tools": ["get_weather"], "include_all_tools": false}'
    )
    assert loaded.skill_state["weather"].tools == ("get_weather",)
    added = await loaded.call("skill_select_tools", skill="weather", tools="get_forecast", mode="add")
    assert added.value["selected_tools"] == ["get_weather", "get_forecast"]
    cleared = await loaded.call("skill_select_tools", skill="weather", mode="clear")
    assert cleared.value["selected_tools"] == []
    assert loaded.skill_state["weather"].tools == ()
    every = await loaded.call("skill_select_tools", skill="weather", include_all_tools=True)
    assert every.value["selected_tools"] == ["get_weather", "get_forecast"]
    assert every.value["include_all_tools"] is True


@pytest.mark.row("C4")
async def test_adding_begins_with_what_the_skill_declares(talking: Talking) -> None:
    talk = talking(pool=ToolPool([get_weather, get_tides]))
    await talk.call("skill_load", skill="weather")
    result = await talk.call("skill_select_tools", skill="weather", tools=["get_tides"], mode="add")
    assert result.value["selected_tools"] == ["get_weather", "get_forecast", "get_tides"]
    assert result.value["missing_tools"] == ["get_forecast"]


@pytest.mark.row("C4", "C17")
async def test_an_unknown_tool_is_answered_with_near_ones(loaded: Conversation) -> None:
    result = await loaded.call("skill_select_tools", skill="weather", tools=["get_wether"])
    assert result.is_error and "Did you mean get_weather?" in result.content
    # It is there in the text, but as a comment.
    assert (await loaded.call("skill_select_tools", skill="weather", tools=["get_history"])).is_error


@pytest.mark.row("D3")
@pytest.mark.parametrize("tool", ["skill_select_docs", "skill_select_tools", "skill_load"])
async def test_selecting_is_using(loaded: Conversation, tool: str) -> None:
    await loaded.call("skill_load", skill="billing")
    assert loaded.skill_state.last == "billing"
    await loaded.call(tool, skill="weather", **({"mode": "add"} if "select" in tool else {}))
    assert loaded.skill_state.last == "weather"


@pytest.mark.row("C5")
async def test_where_nothing_else_brings_documents_the_result_has_them(talking: Talking) -> None:
    talk = talking(settings=full(lifetime="session", content="tool-result"))
    await talk.call("skill_load", skill="weather", docs=["guide.md"])
    result = await talk.call("skill_select_docs", skill="weather", docs=["guide.md", "units.md"], mode="add")
    assert "Celsius" in result.content
    assert "The guide is in" not in result.content


def test_the_tools_change_the_state(talk_full: Conversation) -> None:
    changing = {name for name in talk_full.tools.names if talk_full.tools.get(name).changes_state}  # type: ignore[union-attr]
    assert changing == {"skill_load", "skill_unload", "skill_select_docs", "skill_select_tools"}


@pytest.mark.row("C15")
async def test_a_selection_stays_until_it_is_changed(loaded: Conversation) -> None:
    assert "fewer cost less" in loaded.tools.specs(["skill_select_tools"])[0].description
    await loaded.call("skill_select_tools", skill="weather", tools=["get_weather"])
    await loaded.call("skill_load", skill="weather", docs=["units.md"])
    await loaded.call("skill_select_docs", skill="weather", mode="clear")
    assert loaded.skill_state["weather"].tools == ("get_weather",)


@pytest.mark.row("C5", "C7")
@pytest.mark.parametrize("argument", ["docs", "Docs", "selected_docs", "selectedDocs", "documents", "document"])
@pytest.mark.parametrize("skill", ["skill", "skillName", "SkillName", "name"])
async def test_names_of_the_argument_for_documents(loaded: Conversation, argument: str, skill: str) -> None:
    result = await loaded.call("skill_select_docs", **{skill: "weather", argument: ["units.md"]})
    assert result.value["selected_docs"] == ["references/units.md"]


@pytest.mark.row("C4", "C5", "C7")
@pytest.mark.parametrize("what", ["docs", "tools"])
@pytest.mark.parametrize("form", ["include_all_{}", "includeAll{}", "IncludeAll{}", "all_{}"])
async def test_names_of_the_argument_for_all(loaded: Conversation, what: str, form: str) -> None:
    switch = form.format(what if "_" in form else what.capitalize())
    result = await loaded.call(f"skill_select_{what}", skill="weather", **{switch: True})
    assert result.value[f"include_all_{what}"] is True
    assert len(result.value[f"selected_{what}"]) > 1


@pytest.mark.row("C4", "C5", "C7")
@pytest.mark.parametrize("what", ["docs", "tools"])
async def test_nothing_given_is_no_wish_to_clear(loaded: Conversation, what: str) -> None:
    tool = f"skill_select_{what}"
    await loaded.call("skill_select_tools", skill="weather", tools=["get_weather"])
    before = loaded.skill_state["weather"]
    for given in ({}, {"mode": "replace"}, {what: None}, {what: ""}, {f"include_all_{what}": False}, {"mode": "merge"}):
        result = await loaded.call(tool, skill="weather", **given)
        assert result.is_error and not result.effects, given
        assert f"give {what}=[…] or include_all_{what}=true" in result.content
    assert loaded.skill_state["weather"] == before
    assert (await loaded.call(tool, skill="weather", mode="add")).value[f"selected_{what}"]
    assert not (await loaded.call(tool, skill="weather", **{what: []})).is_error
    assert getattr(loaded.skill_state["weather"], what) == ()


@pytest.mark.row("C4", "C5")
async def test_an_argument_that_is_nearly_one(loaded: Conversation) -> None:
    for tool, wrong, right in (
        ("skill_select_docs", "selectd_docs", "docs"),
        ("skill_select_docs", "include_all_doc", "include_all_docs"),
        ("skill_select_tools", "tool_name", "tools"),
        ("skill_load", "documnts", "docs"),
    ):
        result = await loaded.call(tool, skill="weather", **{wrong: ["x"]})
        assert result.is_error
        assert result.content.startswith(f"There is no argument {wrong!r}: did you mean {right}"), result.content
    fine = await loaded.call("skill_select_docs", skill="weather", docs=["guide.md"], reason="to know", thought="hm")
    assert not fine.is_error
