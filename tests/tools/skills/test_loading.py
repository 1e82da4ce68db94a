from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills.manager import AgentSkillManager, SkillView
from flink_skills.skill import AgentSkill
from flink_skills.tools import PROFILES, ShellRunner, Tool, ToolContext, ToolServices, ToolSet, profile_tools
from tests.tools.conftest import Conversation


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
