"""Programs in the words of Flink's design of skills: how skills are given, declared, read and used.

Each test stands for one example or for a group of them, and looks at the next request of the model.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flink_skills import (
    Agent,
    AgentsExecutionEnvironment,
    AgentSkill,
    AgentSkillManager,
    ResourceDescriptor,
    ResourceName,
    SkillOptions,
    chat_model_connection,
    chat_model_setup,
    execute_shell_command,
    load_skill,
    load_skill_resource,
    skills,
)
from flink_skills.manager import parse_menu
from flink_skills.testing import Call, Reply, Rule, ScriptedModelServer, call, calls
from tests.kit.models import Script
from tests.sources.web import Page, Web

NAMES = ["my_skill_1", "my_skill_2", "my_skill_3"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three skills, each with a document and a script."""
    for name in NAMES:
        place = tmp_path / "opt/skills" / name
        (place / "scripts").mkdir(parents=True)
        (place / "references").mkdir()
        (place / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Counts in {name}.\n---\nSTEPS of {name}\n")
        (place / "references/rules.md").write_text(f"RULES of {name}")
        (place / "scripts/count.py").write_text(f"print('RAN {name}')\n")
    return tmp_path / "opt/skills"


@pytest.fixture
def archive(folder: Path, tmp_path: Path) -> Path:
    """A zip file of these skills."""
    file = tmp_path / "opt/skills.zip"
    with zipfile.ZipFile(file, "w") as made:
        for path in sorted(folder.rglob("*")):
            made.write(path, path.relative_to(folder.parent))
    return file


@pytest.fixture
def served(archive: Path) -> Any:
    """The address of the zip file on a web server."""
    web = Web()
    web.pages["/skills.zip"] = Page(archive.read_bytes())
    try:
        yield f"{web.url}/skills.zip"
    finally:
        web.close()


@pytest.fixture
def agents_env(tmp_path: Path) -> AgentsExecutionEnvironment:
    made = AgentsExecutionEnvironment.get_execution_environment(env=None, t_env=None)
    for key, value in {
        "skills.store.dir": str(tmp_path / "store"),
        "skills.shell.backend": "hygiene",
        "skills.shell.min-isolation": "HYGIENE",
        "skills.source.allow-http": "true",
        "skills.source.allow-private": "true",
    }.items():
        made.get_config().set(key, value)
    return made


class MyAgent(Agent):
    model = "copied:any"


def tools_in_order(request: Any) -> Any:
    """One call of each tool of skills, then an answer."""
    steps = [
        call("load_skill", name="my_skill_1"),
        call("load_skill_resource", name="my_skill_1", path="references/rules.md"),
        call("execute_shell_command", command="python3 scripts/count.py"),
    ]
    done = sum(type(message).__name__ == "ToolMessage" for message in request.messages)
    return calls(steps[done], prefix=f"c{done}") if done < len(steps) else "done"


def check_requests(model: Any) -> None:
    """Check that the first request has names and descriptions, and each later one the result of the last tool."""
    first, *later = model.requests
    assert parse_menu(first.system) == [(name, f"Counts in {name}.") for name in NAMES]
    assert "STEPS" not in f"{first.system}{first.messages}"
    last = [str(request.messages[-1].content) for request in later]
    assert [word in text for word, text in zip(("STEPS of", "RULES of", "RAN "), last, strict=True)] == [True] * 3
    assert not any(getattr(request.messages[-1], "is_error", False) for request in later)


# A folder, a zip file and an address of a zip file, each added to the environment.
@pytest.mark.parametrize("form", ["folder", "archive", "served"])
def test_skills_of_a_place(
    form: str, agents_env: AgentsExecutionEnvironment, script: Script, request: pytest.FixtureRequest
) -> None:
    place = str(request.getfixturevalue(form))
    if form == "served":
        agents_env.add_skills_from_urls([place])
    else:
        agents_env.add_skills_from_paths([place])
    model = script(tools_in_order)
    assert agents_env.from_list(["an event"]).apply(MyAgent).to_list() == ["done"]
    check_requests(model)


# The options of the configuration instead of the methods.
@pytest.mark.parametrize(("option", "form"), [("FROM_PATHS", "folder"), ("FROM_URLS", "served")])
def test_skills_of_options(
    option: str, form: str, agents_env: AgentsExecutionEnvironment, script: Script, request: pytest.FixtureRequest
) -> None:
    agents_env.get_config().set(getattr(SkillOptions, option), [str(request.getfixturevalue(form))])
    model = script(tools_in_order)
    assert agents_env.from_list(["an event"]).apply(MyAgent).to_list() == ["done"]
    check_requests(model)


@pytest.mark.parametrize("option", [SkillOptions.FROM_PATHS, SkillOptions.FROM_RESOURCES, SkillOptions.FROM_URLS])
def test_options_of_sources_have_keys_and_no_value(option: Any, agents_env: AgentsExecutionEnvironment) -> None:
    assert option.key in ("skills.from.paths", "skills.from.resources", "skills.from.urls")
    assert not agents_env.get_config().get(option)


# A declaration of the agent with sources of several kinds.
def test_skills_of_an_agent(folder: Path, served: str, agents_env: AgentsExecutionEnvironment, script: Script) -> None:
    class Declared(Agent):
        model = "copied:any"

        @skills
        @staticmethod
        def my_skills() -> ResourceDescriptor:
            return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, paths=[str(folder)], urls=[served])

    model = script(tools_in_order)
    assert agents_env.from_list(["an event"]).apply(Declared).to_list() == ["done"]
    check_requests(model)


# A chat model that sees two of the skills of the job, on a connection of Ollama.
def test_skills_of_a_chat_model(folder: Path, agents_env: AgentsExecutionEnvironment) -> None:
    rules = [Rule(Reply(tool_calls=(Call("load_skill", {"name": "my_skill_3"}),)), tool_results=0), Rule(Reply("done"))]
    with ScriptedModelServer(rules) as server:
        url = server.url

        class Chats(Agent):
            @chat_model_connection
            @staticmethod
            def ollama_connection() -> ResourceDescriptor:
                return ResourceDescriptor(clazz=ResourceName.ChatModel.OLLAMA_CONNECTION, base_url=url)

            @chat_model_setup
            @staticmethod
            def my_chat_model() -> ResourceDescriptor:
                return ResourceDescriptor(
                    clazz=ResourceName.ChatModel.OLLAMA_SETUP,
                    connection="ollama_connection",
                    model="qwen3:8b",
                    skill_names=["my_skill_1", "my_skill_2"],
                )

        agents_env.add_skills_from_paths([str(folder)])
        assert agents_env.from_list(["an event"]).apply(Chats).to_list() == ["done"]
        first, second = server.requests
    assert first["model"] == "qwen3:8b"
    assert [name for name, _ in parse_menu(first["messages"][0]["content"])] == NAMES[:2]
    assert "STEPS" not in second["messages"][-1]["content"]


# The class of a skill: its fields, and no resources by default.
def test_a_skill_is_made_of_its_fields() -> None:
    made = AgentSkill(name="my_skill", description="Counts.", instructions="STEPS")
    assert (made.name, made.description, made.instructions) == ("my_skill", "Counts.", "STEPS")
    assert not made.resources
    more = AgentSkill(name="my_skill", description="Counts.", instructions="STEPS", resources={"a.md": "RULES"})
    assert load_skill_resource(AgentSkillManager(skills=[more]), "my_skill", "a.md").count("RULES") == 1


# The manager: sources by keyword, its methods, and the prompt for some names.
@pytest.mark.parametrize("form", ["folder", "archive"])
def test_the_manager(form: str, request: pytest.FixtureRequest) -> None:
    manager = AgentSkillManager(paths=[str(request.getfixturevalue(form))])
    manager.load_skills()
    assert [skill.name for skill in manager.get_skills()] == NAMES == [skill.name for skill in manager.skills]
    assert [name for name, _ in parse_menu(str(manager.get_system_prompt()))] == NAMES
    assert [name for name, _ in parse_menu(str(manager.get_system_prompt(names=NAMES[:1])))] == NAMES[:1]
    assert [name for name, _ in parse_menu(str(manager.get_system_prompt(None)))] == NAMES


# The three tools as functions.
def test_the_tools_as_functions(folder: Path) -> None:
    manager = AgentSkillManager(paths=[str(folder)])
    assert "STEPS of my_skill_1" in load_skill(manager, "my_skill_1")
    assert "RULES of my_skill_1" in load_skill_resource(manager, "my_skill_1", "references/rules.md")
    run: Callable[..., str] = execute_shell_command
    said = run("echo out; echo err >&2; exit 3", timeout=300)
    assert [word in said for word in ("out", "err", "3")] == [True] * 3
