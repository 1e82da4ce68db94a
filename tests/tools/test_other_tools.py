"""Calls of tools that a model does not have: names of other agents, and misspelled names."""

from __future__ import annotations

import re
from typing import Annotated, Any

import pytest
from pydantic import Field, ValidationError

from flink_skills import AgentSkill
from flink_skills.manager import SkillView
from flink_skills.skill import check_support
from flink_skills.tools import (
    PROFILES,
    TOOL_NAMES,
    ArgumentError,
    Arguments,
    FunctionTool,
    SkillSettings,
    ToolContext,
    ToolServices,
    ToolSet,
    profile_tools,
)
from flink_skills.tools.argument_model import Also, ArgumentModel
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


READY_MADE = ["Edit", "Glob", "Grep", "Read", "Write", "web_fetch", "web_search"]
# As other agents call them.
FOREIGN = ["MultiEdit", "NotebookRead", "LS", "WebFetch", "WebSearch", "read_file", "str_replace", "view", "search"]


def diagnosed(*names: str) -> list[tuple[str, str]]:
    return [(each.code, each.message) for each in check_support(AgentSkill("a", "Does it.", allowed_tools=names))]


async def test_diagnostics_name_tools_that_exist() -> None:
    tools = [*await FileToolSet().get_tools(None), WebFetchTool(), WebSearchTool()]
    assert sorted({tool.spec.name for tool in tools} - {"Bash"}) == READY_MADE
    [(code, message)] = diagnosed(*READY_MADE)
    declares = re.search(r"an agent that declares (.+) has these tools", message)
    assert (code, declares is not None and sorted(declares[1].split(", "))) == ("U02", READY_MADE)


@pytest.mark.parametrize("name", sorted({*TOOL_NAMES, *READY_MADE, *FOREIGN}))
def test_no_tool_that_exists_is_called_missing(name: str) -> None:
    assert [code for code, _ in diagnosed(name)] in ([], ["U02"])


class Read(ArgumentModel):
    path: Annotated[str, Field(min_length=1), Also("file_path", "file")]
    skill_name: Annotated[str | None, Also("skill")] = None
    offset: int = 0


@pytest.mark.parametrize("name", ["path", "Path", "PATH", "file_path", "filePath", "FilePath", "file-path", "file"])
def test_every_spelling(name: str) -> None:
    assert Read.model_validate({name: "a.md"}).path == "a.md"


@pytest.mark.parametrize("first", ["file", "Path", "PATH", "filePath", "pa_th"])
def test_two_names_of_one_argument_are_an_error(first: str) -> None:
    for given in ({first: "b.md", "path": "a.md"}, {"path": "a.md", first: "a.md"}):
        with pytest.raises(ArgumentError, match=f"The argument path is given twice, as .*{first}"):
            Read.model_validate(given)


def test_a_name_that_is_null_or_blank_is_left_out() -> None:
    assert Read.model_validate({"path": "a.md", "skill": " ", "skill_name": "x"}).skill_name == "x"
    assert Read.model_validate({"path": None, "file": "b.md"}).path == "b.md"


def test_what_is_left_out() -> None:
    found = Read.model_validate({"path": "a.md", "skillName": " ", "offset": None})
    assert (found.skill_name, found.offset, found.model_fields_set) == (None, 0, {"path"})
    with pytest.raises(ValidationError):
        Read.model_validate({"path": ""})
    with pytest.raises(ValidationError):
        Read.model_validate({"offset": 1})


@pytest.mark.parametrize(("wrong", "right"), [("pth", "path"), ("offsets", "offset"), ("skil_name", "skill_name")])
def test_near_misses_are_errors(wrong: str, right: str) -> None:
    with pytest.raises(ArgumentError, match=f"There is no argument '{wrong}': did you mean {right}"):
        Read.model_validate({"path": "a.md", wrong: "x"})


@pytest.mark.parametrize("extra", ["reason", "description", "background", "thought", "", "_"])
def test_other_extras_are_ignored(extra: str) -> None:
    assert Read.model_validate({"path": "a.md", extra: "x"}).path == "a.md"


def test_the_schema_shows_one_name() -> None:
    schema = Arguments("read", Read).schema
    assert list(schema["properties"]) == ["path", "skill_name", "offset"]
    assert schema["required"] == ["path"]


def test_an_error_names_the_argument_as_the_schema_does() -> None:
    class Write(ArgumentModel):
        newline: bool = Field(False, alias="submit")

    with pytest.raises(ArgumentError, match="\n- submit: "):
        Arguments("write", Write).read({"submit": "perhaps"})
