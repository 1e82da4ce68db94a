"""How a model gets skills: defaults by profile, the job's options, and what a model says itself (rows K3 and K4)."""

from __future__ import annotations

from typing import Any

import pytest

from flink_skills import Agent, ConfigError, PlanError, ResourceDescriptor, SkillConfig, chat_model_setup
from flink_skills.agents import compile_plan
from flink_skills.testing import call, calls
from flink_skills.tools import PROFILES, SkillSettings
from tests.features.conftest import Plain, Run
from tests.kit.models import Script


def agent_with(**settings: Any) -> type[Agent]:
    """An agent whose model says ``settings``."""

    class Said(Agent):
        @chat_model_setup
        @staticmethod
        def judge() -> ResourceDescriptor:
            return ResourceDescriptor(clazz="features.setup", model="any", **settings)

    return Said


@pytest.mark.row("K4", "D7", "D9")
@pytest.mark.parametrize(
    ("tools", "lifetime", "content", "bundled"),
    [
        ("core", "session", "tool-result", True),
        ("full", "turn", "system", True),
        ("knowledge_only", "turn", "system", False),
        ("load_skill", "session", "tool-result", False),
        ("[skill_load, skill_run]", "turn", "system", True),
    ],
)
def test_defaults_follow_the_tools(tools: str, lifetime: str, content: str, bundled: bool) -> None:
    settings = SkillSettings.of(SkillConfig({"skills.tools": tools}))
    assert (settings.lifetime, settings.content, settings.bundled) == (lifetime, content, bundled)
    assert (settings.max_loaded, settings.guidance) == (0, None)
    assert settings.profile == (tools if tools in PROFILES else "")


@pytest.mark.row("K4", "B21")
def test_a_model_wins_over_the_job(run: Run, script: Script) -> None:
    model = script(["done"])
    assert run(agent=agent_with(skill_tools="knowledge_only"), tools="full") == ["done"]
    assert [tool.name for tool in model.requests[0].tools] == list(PROFILES["knowledge_only"])
    own = {"skill_lifetime": "once", "skill_content": "system", "max_loaded_skills": 2, "skill_guidance": ""}
    job = SkillConfig({"skills.load.lifetime": "turn", "skills.max-loaded": "7", "skills.prompt.guidance": "Hm."})
    settings = SkillSettings.of(job, own)
    assert (settings.lifetime, settings.content, settings.max_loaded, settings.guidance) == ("once", "system", 2, "")
    assert SkillSettings.of(job).max_loaded == 7


@pytest.mark.row("K4")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"skill_tools": ["skill_rum"]}, "skill_tools: .*did you mean 'skill_run'"),
        ({"skill_lifetime": "day"}, "skill_lifetime='day'"),
        ({"max_loaded_skills": -1}, "max_loaded_skills=-1"),
        ({"skill_content": "user"}, "skill_content='user'"),
    ],
)
def test_what_a_model_cannot_say_is_named_at_submit(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        compile_plan(agent_with(**settings))


def test_what_a_job_cannot_say_names_the_option() -> None:
    with pytest.raises(ConfigError, match=r"option skills\.tools: .*did you mean 'core'"):
        SkillSettings.of(SkillConfig({"skills.tools": "corr"}))


@pytest.mark.row("K3", "E9")
@pytest.mark.parametrize("profile", PROFILES)
def test_tools_are_those_of_the_option_and_no_more(profile: str, run: Run, script: Script) -> None:
    model = script([calls(call("skill_list"), call("load_skill", name="shout")), "done"])
    assert run(tools=profile) == ["done"]
    # No skill has tools, so the tools that list or select tools are not offered.
    assert [tool.name for tool in model.requests[0].tools] == [
        name for name in PROFILES[profile] if name not in ("skill_list_tools", "skill_select_tools")
    ]
    first, second = (str(message.content) for message in model.requests[1].messages[-2:])
    assert ("shout" in first and "count" in first) == ("skill_list" in PROFILES[profile])
    assert ("Run sh scripts/run.sh" in second) == ("load_skill" in PROFILES[profile])


class Blind(Plain):
    """Sees no skill."""

    def visible_skills(self, event: Any, ctx: Any) -> Any:
        return []


@pytest.mark.row("K3", "E9")
def test_without_execution_no_tool_that_runs_is_there(run: Run, script: Script) -> None:
    model = script(["done"])
    assert run(tools="[core, full]", **{"shell.enabled": "false"}) == ["done"]
    names = {tool.name for tool in model.requests[0].tools}
    assert {"load_skill", "skill_load", "skill_select_docs"} <= names
    assert not [name for name in names if "exec" in name or "run" in name]


@pytest.mark.row("E9", "K3")
def test_a_model_without_skills_has_only_the_commands_that_are_named(run: Run, script: Script) -> None:
    model = script(["done"])
    assert run(agent=Blind, tools="[knowledge_only, full, execute_shell_command]") == ["done"]
    names = {tool.name for tool in model.requests[0].tools}
    assert names == {"execute_shell_command"}


@pytest.mark.row("F18", "E9")
@pytest.mark.parametrize("tools", [["skill_run"], ["skill_exec", "skill_list"]])
def test_what_runs_once_loaded_needs_a_tool_that_loads(tools: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"option skills\.tools: skill_\w+ can never run.*add skill_load"):
        SkillSettings.of(SkillConfig({"skills.tools": tools}))
    with pytest.raises(PlanError, match=r"skill_tools: .*skills\.run\.require-loaded to false"):
        compile_plan(agent_with(skill_tools=tools))
    for more in ({"skills.run.require-loaded": "false"}, {"skills.shell.enabled": "false"}):
        assert SkillSettings.of(SkillConfig({"skills.tools": tools, **more})).tools
    assert SkillSettings.of(SkillConfig(), {"skill_tools": [*tools, "load_skill"]}).tools


class Tells(Plain):
    """Answers with the skills that its turn loaded."""

    async def on_event(self, event: Any, ctx: Any) -> Any:
        await ctx.chat(event)
        return ctx.skills


@pytest.mark.row("D12")
def test_an_agent_knows_what_its_turn_loaded(run: Run, script: Script) -> None:
    script([calls(call("load_skill", name="shout")), calls(call("load_skill", name="count")), "done"])
    assert run(agent=Tells) == [["shout", "count"]]
