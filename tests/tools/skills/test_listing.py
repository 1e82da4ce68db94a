"""The tools ``skill_list``, ``skill_list_docs`` and ``skill_list_tools``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flink_skills.manager import SkillView
from flink_skills.skill import AgentSkill
from tests.tools.conftest import Conversation
from tests.tools.skills.conftest import Talking, full
from tests.tools.skills.test_full_loading import Brings


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
