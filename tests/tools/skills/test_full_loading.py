"""``skill_load`` and ``skill_unload``: rows C3, C8 and C9."""

from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills.manager import AgentSkillManager
from flink_skills.tools import PROFILES, FunctionTool, SkillSettings, ToolResult, load_effect
from flink_skills.tools.dynamic import ToolPool
from tests.tools.conftest import Conversation
from tests.tools.skills.conftest import Talking, full


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"{city}: sunny"


def get_tides(city: str) -> str:
    """The tides of a city."""
    return f"{city}: high"


@pytest.mark.row("C3")
@pytest.mark.parametrize("argument", ["skill", "skill_name", "name"])
async def test_a_load_is_a_line_and_an_effect(talk_full: Conversation, argument: str) -> None:
    result = await talk_full.call("skill_load", **{argument: "weather"})
    assert (result.content, result.is_error) == ("loaded: weather", False)
    view = talk_full.services.view
    assert result.effects == (load_effect("weather", view.get("weather").digest),)  # type: ignore[union-attr]
    assert talk_full.skill_state.names == ["weather"]


@pytest.mark.row("C3")
async def test_documents_are_selected_with_it(talk_full: Conversation) -> None:
    result = await talk_full.call("skill_load", skill="weather", docs=["guide.md", "./references/Units.md"])
    assert result.content == "loaded: weather, with guide.md, references/units.md"
    assert talk_full.skill_state["weather"].docs == ("guide.md", "references/units.md")


@pytest.mark.row("C3")
async def test_a_later_load_adds_documents(talk_full: Conversation) -> None:
    await talk_full.call("skill_load", skill="weather", docs="guide.md")
    again = await talk_full.call("skill_load", skill="weather", docs=["units.md"])
    assert again.content == "already loaded: weather, with guide.md, references/units.md"
    await talk_full.call("skill_load", skill="weather", include_all_docs=True)
    assert talk_full.skill_state["weather"].docs == "*"
    same = await talk_full.call("skill_load", skill="weather", docs=["guide.md"])
    assert same.effects == ({"op": "touch", "skill": "weather"},)
    assert talk_full.skill_state["weather"].docs == "*"


@pytest.mark.row("C3")
@pytest.mark.parametrize("docs", ['["guide.md"]', "guide.md", ["guide.md"], " guide.md , "])
async def test_documents_as_models_write_them(talk_full: Conversation, docs: object) -> None:
    await talk_full.call("skill_load", skill="weather", docs=docs, include_all_docs=None)
    assert talk_full.skill_state["weather"].docs == ("guide.md",)


@pytest.mark.row("C3", "C8")
async def test_unknown_names_are_answered_with_near_ones(talk_full: Conversation) -> None:
    skill = await talk_full.call("skill_load", skill="wether")
    assert skill.is_error and "Did you mean weather?" in skill.content
    doc = await talk_full.call("skill_load", skill="weather", docs=["guid.md"])
    assert doc.is_error and "no document 'guid.md' in skill weather. Did you mean guide.md" in doc.content
    assert talk_full.skill_state.names == []


@pytest.mark.row("C3")
async def test_a_name_that_two_documents_could_have_is_asked_for(talking: Talking, documented: Path) -> None:
    (documented / "weather/more").mkdir()
    (documented / "weather/more/units.md").write_text("Kelvin")
    talk = talking()
    result = await talk.call("skill_load", skill="weather", docs=["units.md"])
    assert (
        result.is_error
        and "several documents 'units.md': give one of more/units.md, references/units.md." in result.content
    )


@pytest.mark.row("C8", "C9")
async def test_already_loaded_and_not_loaded(talk_full: Conversation) -> None:
    await talk_full.call("skill_load", skill="weather")
    assert (await talk_full.call("skill_load", skill="weather")).content == "already loaded: weather"
    missing = await talk_full.call("skill_unload", skill="billing")
    assert (missing.is_error, missing.content) == (True, "Skill billing is not loaded. Loaded skills: weather.")
    assert not (await talk_full.call("skill_unload", skill_name="weather")).is_error
    assert talk_full.skill_state.names == []


@pytest.mark.row("C9")
async def test_a_skill_that_is_gone_can_still_be_put_away(talk_full: Conversation) -> None:
    talk_full.skill_state.apply(load_effect("removed", "digest"))
    assert not (await talk_full.call("skill_unload", skill="removed")).is_error


@pytest.mark.row("C8", "C17", "A9")
async def test_a_load_says_which_tools_there_are_now(talking: Talking) -> None:
    talk = talking(pool=ToolPool([get_weather, FunctionTool(get_tides)]))
    result = await talk.call("skill_load", skill="weather")
    assert result.content == "loaded: weather\nWith 1 tool: get_weather\nNot available here: get_forecast"
    assert (result.value["tools"], result.value["missing_tools"]) == (["get_weather"], ["get_forecast"])
    other = await talk.call("skill_load", skill="billing")
    assert other.content == "loaded: billing"


@pytest.mark.row("A9")
async def test_without_a_pool_declared_tools_are_for_information(talk_full: Conversation) -> None:
    assert (await talk_full.call("skill_load", skill="weather")).content == "loaded: weather"


@pytest.mark.row("C8")
async def test_a_tool_that_two_skills_declare_is_said_of_both(talking: Talking, documented: Path) -> None:
    (documented / "billing/SKILL.md").write_text(
        "---\nname: billing\ndescription: Reads invoices.\n---\nTools:\n- get_weather\n"
    )
    talk = talking(pool=ToolPool([get_weather]))
    for skill in ("billing", "weather"):
        assert "With 1 tool: get_weather" in (await talk.call("skill_load", skill=skill)).content


@pytest.mark.row("C8")
async def test_where_nothing_else_brings_the_content_the_result_has_it(talking: Talking) -> None:
    talk = talking(settings=full(lifetime="session", content="tool-result"))
    result = await talk.call("skill_load", skill="weather", docs=["references/units.md"])
    assert "Ask for a city first." in result.content
    assert "Celsius" in result.content
    more = await talk.call("skill_load", skill="weather", docs=["references/cities.txt"])
    assert "Oslo, Rome" in more.content and "Celsius" not in more.content and "Ask for" not in more.content
    assert "\n" not in (await talk.call("skill_load", skill="weather")).content


@pytest.mark.row("D8")
async def test_for_one_request_asking_again_means_once_more(talking: Talking) -> None:
    talk = talking(settings=full(lifetime="once"))
    await talk.call("skill_load", skill="weather", docs=["guide.md"])
    talk.skill_state.note_shown()
    await talk.call("skill_load", skill="weather")
    talk.skill_state.forget_shown()
    assert talk.skill_state["weather"].docs == ("guide.md",)


async def test_load_skill_is_a_line_where_the_system_text_has_the_content(talking: Talking) -> None:
    talk = talking(settings=full(tools=("load_skill",)))
    assert (await talk.call("load_skill", skill_name="weather")).content == "loaded: weather"


SUM_UP = 'def sum_up():\n    "Sums."\n    return 42\n'


class Brings:
    """Stands for the tools that skills bring, so that no process is needed here."""

    def __init__(self, failing: bool = False) -> None:
        self.failing = failing

    async def describe(self, skill: object, context: object) -> object:
        if self.failing:
            from flink_skills.errors import ExecutionError

            raise ExecutionError("there is no python3 in the sandbox")
        from flink_skills.tools.dynamic import Described

        return Described(({"name": "sum_up", "description": "Sums.", "parameters": {}},), ("'odd' has no name",))

    def tool(self, skill_name: str, spec: object, exposed: str) -> FunctionTool:
        def sum_up() -> str:
            """Sums."""
            return "42"

        return FunctionTool(sum_up, name=exposed)


@pytest.mark.row("C8")
async def test_the_tools_that_a_skill_brings_are_part_of_the_effect(talking: Talking, documented: Path) -> None:
    (documented / "billing/tools.py").write_text(SUM_UP)
    talk = talking(settings=full(), bundled=Brings())
    talk.context.workspace = object()  # type: ignore[assignment]
    result = await talk.call("skill_load", skill="billing")
    assert result.content == "loaded: billing\nWith 1 tool: sum_up\nOf the tools that it brings: 'odd' has no name"
    assert [spec["name"] for spec in talk.skill_state["billing"].bundled] == ["sum_up"]


@pytest.mark.row("C8")
@pytest.mark.parametrize("workspace", [True, False])
async def test_a_skill_whose_tools_cannot_be_had_is_loaded_all_the_same(
    talking: Talking, documented: Path, workspace: bool
) -> None:
    (documented / "billing/tools.py").write_text(SUM_UP)
    talk = talking(settings=full(), bundled=Brings(failing=True))
    talk.context.workspace = object() if workspace else None  # type: ignore[assignment]
    result: ToolResult = await talk.call("skill_load", skill="billing")
    assert not result.is_error
    assert "The tools that it brings cannot be used: " in result.content
    assert talk.skill_state.names == ["billing"]


async def test_a_load_says_which_option_keeps_the_tools_of_a_skill_away(talking: Talking, documented: Path) -> None:
    (documented / "billing/tools.py").write_text(SUM_UP)
    off = "skills.bundled-tools is false"
    talk = talking(settings=full(bundled_off=off), bundled=Brings(failing=True))
    assert (await talk.call("skill_load", skill="billing")).content == (
        f"loaded: billing\nThe tools that it brings (sum_up) are not available: {off}."
    )
    assert (await talk.call("skill_load", skill="weather")).content.startswith("loaded: weather")
    assert off not in (await talk.call("skill_load", skill="weather")).content


@pytest.mark.row("C3")
@pytest.mark.parametrize("skill", ["skillName", "SkillName", "Skill", "Name"])
@pytest.mark.parametrize("switch", ["includeAllDocs", "IncludeAllDocs"])
async def test_names_of_arguments(talk_full: Conversation, skill: str, switch: str) -> None:
    await talk_full.call("skill_load", **{skill: "weather", switch: True})
    assert talk_full.skill_state["weather"].docs == "*"


@pytest.mark.row("C3", "I7")
async def test_loading_again_says_that_the_tools_were_cleared(talking: Talking) -> None:
    for settings in (full(), full(lifetime="session", content="tool-result")):
        talk = talking(settings=settings, pool=ToolPool([get_weather]))
        await talk.call("skill_load", skill="weather")
        await talk.call("skill_select_tools", skill="weather", mode="clear")
        again = await talk.call("skill_load", skill="weather")
        assert again.content.endswith("\nTools selected: none (skill_select_tools adds them)")
        await talk.call("skill_select_tools", skill="weather", tools=["get_weather"])
        assert "Tools selected" not in (await talk.call("skill_load", skill="weather")).content


@pytest.mark.row("C8", "E9")
@pytest.mark.parametrize("tools", [PROFILES["knowledge_only"], ("load_skill", "execute_shell_command")])
@pytest.mark.parametrize("file", ["tools.py", "schema.json"])
async def test_tools_that_a_skill_brings_where_nothing_runs(
    talking: Talking, documented: Path, tools: tuple[str, ...], file: str
) -> None:
    (documented / "billing" / file).write_text("")
    load = next(name for name in tools if "load" in name and "unload" not in name)
    talk = talking(settings=full(tools=tools))
    note = "The tools that it brings are not available: no sandbox is open here."
    assert (await talk.call(load, skill="billing")).content == f"loaded: billing\n{note}"
    assert (await talk.call(load, skill="weather")).content == "loaded: weather"


@pytest.mark.row("E9")
async def test_a_model_that_can_run_the_file_itself_is_told_to(documented: Path, tmp_path: Path, shell_with) -> None:  # type: ignore[no-untyped-def]
    (documented / "billing/tools.py").write_text("")
    view = AgentSkillManager(paths=[str(documented)], store_dir=str(tmp_path / "store")).view()
    talk = Conversation(view, await shell_with(), settings=SkillSettings(bundled_off="it is off"))
    text = "The tools that it brings are not available: it is off. Run its files with commands instead."
    assert text in (await talk.call("load_skill", name="billing")).content
