"""Calls of tools that a model does not have: names of other agents, and misspelled names."""

from __future__ import annotations

from typing import Any

import pytest

from flink_skills.manager import SkillView
from flink_skills.skill import AgentSkill
from flink_skills.tools import PROFILES, FunctionTool, SkillSettings, ToolContext, ToolServices, ToolSet, profile_tools
from flink_skills.tools.files import FileToolSet
from flink_skills.tools.web import WebFetchTool, WebSearchTool


def price(article: str) -> float:
    """Return the price of an article."""
    return 1.0


@pytest.fixture
def tools_of(view: SkillView, shell_with: Any) -> Any:
    async def make(profile: str, *, files: bool = False, web: bool = False) -> ToolSet:
        services = ToolServices(view, settings=SkillSettings(tools=PROFILES[profile]), shell=await shell_with())
        more: list[Any] = list(FileToolSet().tools) if files else []
        more += [WebFetchTool(), WebSearchTool()] if web else []
        return ToolSet([*profile_tools(PROFILES[profile], services), FunctionTool(price), *more])

    return make


async def answer(tools: ToolSet, name: str) -> str:
    result = await tools.call(name, {}, ToolContext())
    assert result.is_error
    start = f"There is no tool {name!r}. "
    assert result.content.startswith(start)
    return result.content.removeprefix(start).partition("Tools: ")[0].strip()


COMMANDS = [
    *("Bash", "bash", "shell", "run_terminal_cmd", "run_in_terminal", "execute_command", "run_shell_command", "python"),
    *("code_execution", "code_interpreter", "execute_python", "container.exec", "bash_20250124", "local_shell", "exec"),
    *("run_skill_script", "mcp__shell__run_command", "functions.Bash", "code_execution_20250522"),
]


@pytest.mark.parametrize("name", COMMANDS)
async def test_a_tool_that_runs_commands(tools_of: Any, name: str) -> None:
    assert await answer(await tools_of("core"), name) == "Use execute_shell_command instead."
    assert await answer(await tools_of("full"), name) == "Use skill_run instead."
    without = await answer(await tools_of("knowledge_only"), name)
    assert "instead" not in without and "execute" not in without


@pytest.mark.parametrize(
    ("name", "with_files", "core"),
    [
        ("read_file", "Use Read instead.", "Use load_skill_resource or execute_shell_command instead."),
        ("view", "Use Read instead.", "Use load_skill_resource or execute_shell_command instead."),
        ("read", "Did you mean Read?", "Use load_skill_resource or execute_shell_command instead."),
        ("str_replace_editor", "Use Edit instead.", "Use execute_shell_command instead."),
        ("str_replace_based_edit_tool", "Use Edit instead.", "Use execute_shell_command instead."),
        ("apply_patch", "Use Edit instead.", "Use execute_shell_command instead."),
        ("create_file", "Use Write instead.", "Use execute_shell_command instead."),
        ("list_dir", "Use Glob instead.", "Use execute_shell_command instead."),
        ("LS", "Use Glob instead.", "Use execute_shell_command instead."),
        ("grep_search", "Use Grep instead.", "Use execute_shell_command instead."),
        ("grep", "Did you mean Grep?", "Use execute_shell_command instead."),
    ],
)
async def test_a_tool_for_files(tools_of: Any, name: str, with_files: str, core: str) -> None:
    assert await answer(await tools_of("core", files=True), name) == with_files
    assert await answer(await tools_of("core"), name) == core


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("WebSearch", "Did you mean web_search?"),
        ("web_search_20250305", "Did you mean web_search?"),
        ("google_search", "Use web_search instead."),
        ("WebFetch", "Did you mean web_fetch?"),
        ("fetch_url", "Use web_fetch instead."),
    ],
)
async def test_a_tool_for_the_web(tools_of: Any, name: str, use: str) -> None:
    assert await answer(await tools_of("core", web=True), name) == use
    assert "web_" not in await answer(await tools_of("core"), name)


@pytest.mark.parametrize(
    ("profile", "name", "said"),
    [
        ("core", "Skill", "Use load_skill instead."),
        ("core", "skill_load", "Did you mean load_skill?"),
        ("core", "loadSkill", "Did you mean load_skill?"),
        ("core", "functions.load_skill", "Did you mean load_skill?"),
        ("core", "skill_run", "Use execute_shell_command instead."),
        ("core", "read_skill_file", "Use load_skill_resource instead."),
        ("core", "executeShelCommand", "Did you mean execute_shell_command?"),
        ("core", "prise", "Did you mean price?"),
        ("core", "get_price", "Did you mean price?"),
        ("core", "TodoWrite", ""),
        ("full", "workspace_save_artifact", ""),
        ("full", "load_skill", "Did you mean skill_load?"),
        ("full", "use_skill", "Use skill_load instead."),
        ("full", "list_skills", "Use skill_list instead."),
        ("full", "execute_shell_command", "Use skill_run instead."),
        ("full", "skil_lode", "Did you mean skill_load?"),
        ("full", "BashOutput", "Use skill_poll_session instead."),
        ("knowledge_only", "load_skill", "Did you mean skill_load?"),
        ("knowledge_only", "load_skill_resource", "Use skill_load instead."),
        ("knowledge_only", "skill_lst", "Did you mean skill_list?"),
    ],
)
async def test_other_profiles_and_misspelled_names(tools_of: Any, profile: str, name: str, said: str) -> None:
    text = await answer(await tools_of(profile), name)
    assert text == said or (said != "" and text.startswith(said[:-1]))


async def test_the_same_of_a_model_with_tools_of_skills() -> None:
    from flink_skills.tools import SkillState
    from flink_skills.tools.dynamic import not_active

    view = SkillView([AgentSkill("weather", "Weather.", "Text.\n\n## Tools:\n- get_weather\n")])
    taken = ["load_skill", "execute_shell_command"]
    text = not_active("Bash", SkillState(), view, ["get_weather"], taken)
    assert text is not None and text.startswith("Tool 'Bash' not found. Use execute_shell_command instead. Tools: ")
    text = not_active("skill_load", SkillState(), view, ["get_weather"], taken)
    assert text == (
        "This model does not have the tool 'skill_load'. Did you mean load_skill? Tools: load_skill, "
        "execute_shell_command"
    )
