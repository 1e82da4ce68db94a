from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills.manager import AgentSkillManager, SkillView
from flink_skills.skill import AgentSkill
from flink_skills.tools import (
    PROFILES,
    FunctionTool,
    ShellRunner,
    SkillSettings,
    Tool,
    ToolContext,
    ToolResult,
    ToolServices,
    ToolSet,
    load_effect,
    profile_tools,
)
from flink_skills.tools.dynamic import ToolPool
from tests.tools.conftest import Conversation
from tests.tools.skills.conftest import Talking, full


@pytest.fixture
def talk(view: SkillView) -> Conversation:
    return Conversation(view, None)


def core_tools(view: SkillView, shell: ShellRunner | None) -> list[Tool]:
    return profile_tools(PROFILES["core"], ToolServices(view, shell=shell))


def names(tools: list) -> list[str]:  # type: ignore[type-arg]
    return [tool.spec.name for tool in tools]


async def test_which_tools_there_are(view: SkillView, shell_with) -> None:  # type: ignore[no-untyped-def]
    shell = await shell_with()
    assert set(names(core_tools(view, shell))) == set(PROFILES["core"])
    assert "execute_shell_command" not in names(core_tools(view, None))
    assert names(core_tools(SkillView([]), shell)) == ["execute_shell_command"]
    assert names(core_tools(SkillView([]), None)) == []


@pytest.mark.row("C13")
def test_names_are_in_the_schema_up_to_256() -> None:
    def enum(count: int) -> object:
        view = SkillView([AgentSkill(f"s-{n}", "Does it.", "Do it.") for n in range(count)])
        return [tool.spec.parameters["properties"]["name"].get("enum") for tool in core_tools(view, None)]

    assert enum(2) == [["s-0", "s-1"]] * 3
    assert all(len(found) == 256 for found in enum(256))  # type: ignore[attr-defined]
    assert enum(257) == [None] * 3


@pytest.mark.row("C12", "C8")
async def test_load_gives_the_body_and_an_effect(talk: Conversation, view: SkillView) -> None:
    result = await talk.call("load_skill", name="log-triage")
    assert not result.is_error
    assert "sh scripts/where.sh" in result.content
    assert "description:" not in result.content
    assert "references/levels.md" in result.content
    digest = view.get("log-triage").digest  # type: ignore[union-attr]
    assert result.effects == ({"op": "load", "skill": "log-triage", "digest": digest},)
    assert result.value["name"] == "log-triage"


@pytest.mark.parametrize("argument", ["path", "file_path", "resource"])
async def test_a_path_belongs_to_another_tool(talk: Conversation, argument: str) -> None:
    result = await talk.call("load_skill", name="log-triage", **{argument: "references/levels.md"})
    assert result.is_error
    assert result.content == (
        f"load_skill has no argument {argument!r}: it gives the instructions of a skill. To read a file of a skill, "
        "call load_skill_resource with name and path."
    )
    assert not (await talk.call("load_skill", name="log-triage", **{argument: ""})).is_error


@pytest.mark.row("C8")
async def test_loading_again_costs_one_line(talk: Conversation) -> None:
    await talk.call("load_skill", name="log-triage")
    await talk.call("load_skill", name="billing")
    again = await talk.call("load_skill", name="log-triage")
    assert "loaded already" in again.content
    assert "\n" not in again.content
    assert not again.is_error
    assert talk.skill_state.last == "log-triage"


async def test_a_changed_skill_is_loaded_anew(talk: Conversation) -> None:
    await talk.call("load_skill", name="log-triage")
    talk.skill_state.apply({"op": "load", "skill": "log-triage", "digest": "of-an-older-version"})
    again = await talk.call("load_skill", name="log-triage")
    assert "sh scripts/where.sh" in again.content
    assert talk.skill_state.digest("log-triage") != "of-an-older-version"


async def test_tools_do_not_change_the_activations_themselves(talk: Conversation) -> None:
    await talk.tools.call("load_skill", {"name": "billing"}, talk.context)
    assert talk.skill_state.names == []


@pytest.mark.row("B12")
@pytest.mark.parametrize("tool", ["load_skill", "unload_skill", "load_skill_resource"])
async def test_filtered_and_missing_skills_get_the_same_answer(talk: Conversation, tool: str) -> None:
    more = {"path": "SKILL.md"} if tool == "load_skill_resource" else {}
    filtered = await talk.call(tool, name="secret-ops", **more)
    missing = await talk.call(tool, name="public-ops", **more)
    assert filtered.is_error
    assert filtered.content.replace("secret", "public") == missing.content
    assert "Skills: billing, log-triage." in filtered.content
    assert "Secret text" not in filtered.content


@pytest.mark.row("H13")
async def test_near_names_are_proposed(talk: Conversation) -> None:
    result = await talk.call("load_skill", name="log_triag")
    assert result.is_error
    assert "Did you mean log-triage?" in result.content


async def test_case_and_blanks_do_not_matter(talk: Conversation) -> None:
    assert not (await talk.call("load_skill", name=" Log-Triage ")).is_error
    assert talk.skill_state.names == ["log-triage"]


@pytest.mark.parametrize("arguments", [{}, {"name": ""}, {"name": 3}, {"name": None}])
async def test_wrong_arguments_are_explained(talk: Conversation, arguments: dict[str, object]) -> None:
    result = await talk.call("load_skill", **arguments)
    assert result.is_error
    assert "- name: " in result.content


@pytest.mark.row("B12")
async def test_the_view_of_the_caller_counts(view: SkillView, manager) -> None:  # type: ignore[no-untyped-def]
    tools = ToolSet(core_tools(manager.view(None), None))
    result = await tools.call("load_skill", {"name": "secret-ops"}, ToolContext(skills=view))
    assert result.is_error


@pytest.mark.row("C9")
async def test_unload(talk: Conversation) -> None:
    await talk.call("load_skill", name="billing")
    missing = await talk.call("unload_skill", name="log-triage")
    assert missing.is_error
    assert "Loaded skills: billing" in missing.content
    done = await talk.call("unload_skill", name="billing")
    assert (done.content, done.effects) == (
        "Skill billing is unloaded.",
        ({"op": "unload", "skill": "billing"},),
    )
    assert talk.skill_state.names == []


@pytest.mark.row("C12")
async def test_resource_in_parts(talk: Conversation, skills: Path) -> None:
    whole = (skills / "log-triage/references/levels.md").read_text()
    result = await talk.call("load_skill_resource", name="log-triage", path="references/levels.md")
    assert result.content == whole
    assert result.value == {"text": whole, "offset": 0, "next_offset": None, "total_bytes": len(whole)}
    rest = await talk.call("load_skill_resource", name="log-triage", path="references/levels.md", offset=3000)
    assert rest.content == whole[3000:]

    talk.context.max_output = 1120
    part = await talk.call("load_skill_resource", name="log-triage", path="references/levels.md", offset=500)
    assert part.content.startswith(whole[500:1500])
    assert part.content.endswith(f"[bytes 500 to 1500 of {len(whole)}; continue with offset=1500]")


@pytest.mark.parametrize("path", ["../billing/SKILL.md", "/etc/passwd", "references/nothing.md", "references"])
async def test_resources_outside_of_the_skill_or_missing(talk: Conversation, path: str) -> None:
    result = await talk.call("load_skill_resource", name="log-triage", path=path)
    assert result.is_error
    assert "Reads invoices" not in result.content
    assert "root:" not in result.content


async def test_negative_offset(talk: Conversation) -> None:
    result = await talk.call("load_skill_resource", name="log-triage", path="SKILL.md", offset=-1)
    assert "- offset: " in result.content


async def test_a_body_that_cannot_be_read_is_a_result(talk: Conversation, skills: Path) -> None:
    (skills / "billing/SKILL.md").unlink()
    assert (await talk.call("load_skill", name="billing")).is_error


@pytest.mark.row("A8")
async def test_the_base_dir_is_the_folder_of_the_skill(talk: Conversation, skills: Path, manager) -> None:  # type: ignore[no-untyped-def]
    folder = skills / "billing"
    text = "---\nname: billing\ndescription: Reads invoices.\n---\nRun sh __BASE_DIR__/scripts/sum.sh.\n"
    (folder / "SKILL.md").write_text(text)
    (folder / "notes.md").write_text("All of it is in __BASE_DIR__.")
    manager.refresh()
    new = Conversation(manager.view(["billing"]), None)
    assert f"Run sh {folder}/scripts/sum.sh." in (await new.call("load_skill", name="billing")).content
    notes = await new.call("load_skill_resource", name="billing", path="notes.md")
    assert notes.content == f"All of it is in {folder}."


async def test_a_skill_that_changed_is_a_result_that_says_so(talk: Conversation, skills: Path, manager) -> None:  # type: ignore[no-untyped-def]
    assert not (await talk.call("load_skill", name="billing")).is_error
    (skills / "billing/SKILL.md").write_text("---\nname: billing\ndescription: Reads invoices.\n---\nNew text.\n")
    (skills / "billing/scripts/sum.sh").write_text("echo 43 and more\n")
    for tool, more in (("load_skill", {}), ("load_skill_resource", {"path": "scripts/sum.sh"})):
        result = await talk.call(tool, name="billing", **more)
        assert result.is_error
        assert "billing" in result.content
        assert "has changed since" in result.content
    assert manager.refresh().changed == ("billing",)
    new = Conversation(manager.view(["billing"]), None)
    new.skill_state.apply({"op": "load", "skill": "billing", "digest": talk.skill_state.digest("billing")})
    assert "New text." in (await new.call("load_skill", name="billing")).content


async def test_a_binary_file_is_a_result_with_advice(skills: Path) -> None:
    (skills / "log-triage/logo.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    talk = Conversation(AgentSkillManager([str(skills)]).view(), None)
    result = await talk.call("load_skill_resource", name="log-triage", path="logo.png")
    assert result.is_error
    assert "binary file of 16 bytes; use it through a command" in result.content


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
