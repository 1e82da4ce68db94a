"""``skill_names`` of an agent: each filter narrows, and an excluded skill is answered like one that does not exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flink_skills import (
    Agent,
    AgentContext,
    AgentPlan,
    AgentsExecutionEnvironment,
    ConfigError,
    PlanError,
    ResourceDescriptor,
    ResourceName,
    UnknownNameError,
    agent_tool,
    chat_model_setup,
    load_agent_yaml,
    skills,
)
from flink_skills.agents import compile_plan
from flink_skills.manager import SkillScope
from flink_skills.testing import call, calls
from tests.kit.agents import Bench, OpenAgent
from tests.kit.models import Script

pytestmark = pytest.mark.row("B22")

TOOLS = {"skills.tools": "full"}


@pytest.fixture
def three(tmp_path: Path) -> Path:
    for name in ("ants", "bees", "cats"):
        folder = tmp_path / "three" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: About {name}.\n---\nBody of {name}.\n")
        (folder / "more.md").write_text(f"More about {name}.\n")
    return tmp_path / "three"


def filtered(names: Any, *, setup: Any = ..., manager: Any = ...) -> type[Agent]:
    """An agent with filters: its own, that of its chat model and that of its ``@skills``."""

    class Filtered(Agent):
        name = "filtered"
        session = "key"
        skill_names = names

        @chat_model_setup
        @staticmethod
        def m() -> ResourceDescriptor:
            return ResourceDescriptor(clazz="scripted:m", **({} if setup is ... else {"skill_names": setup}))

        if manager is not ...:

            @skills
            @staticmethod
            def s() -> ResourceDescriptor:
                return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, skill_names=manager)

    return Filtered


def yaml_agent(folder: Path, text: str) -> Agent:
    (folder / "agent.yaml").write_text(f"name: filtered\nmodel: offline\n{text}")
    return load_agent_yaml(folder / "agent.yaml")


def plan_of(agent: Agent | type[Agent], folder: Path) -> AgentPlan:
    return compile_plan(agent, job_scopes=[SkillScope(level="job", paths=(str(folder),))])


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (filtered(None), None),
        (filtered(["bees", "ants"]), ("ants", "bees")),
        (filtered(("ants",)), ("ants",)),
        (filtered([]), ()),
        (filtered(None, manager=["ants"]), ("ants",)),
        (filtered(["ants", "bees"], manager=["bees", "cats"]), ("bees",)),
        (filtered(["ants", "bees"], setup=["bees", "cats"]), ("bees",)),
        (filtered(["ants"], setup=["bees"]), ()),
        (filtered(None, setup=["bees"], manager=["bees", "cats"]), ("bees",)),
        (filtered(["ants"], setup=None), ("ants",)),
    ],
)
def test_each_filter_narrows(script: Script, three: Path, agent: type[Agent], expected: tuple[str, ...] | None) -> None:
    plan = plan_of(agent, three)
    assert plan.filter_of(plan.models[0]) == expected
    again = AgentPlan.from_json(plan.to_json())
    assert again == plan
    assert again.filter_of(again.models[0]) == expected


@pytest.mark.parametrize("text", ["skill_names: [ants]\n", "skills: {skill_names: [ants]}\n"])
def test_yaml(tmp_path: Path, three: Path, text: str) -> None:
    plan = plan_of(yaml_agent(tmp_path, text), three)
    assert plan.filter_of(plan.models[0]) == ("ants",)
    assert plan.describe()["skill_names"] == ["ants"]
    assert "skills: ants;" in plan.summary()


def test_an_instance_has_its_own(three: Path, script: Script) -> None:
    agent = filtered(None)()
    agent.skill_names = ["cats"]
    plan = plan_of(agent, three)
    assert plan.filter_of(plan.models[0]) == ("cats",)


@pytest.mark.parametrize("wrong", ["ants", 3, ["ants", 3], {"ants": True}])
def test_other_values_than_lists_of_names_are_refused(three: Path, script: Script, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"agent filtered: skill_names is .*; give a list of names"):
        plan_of(filtered(wrong), three)


def test_a_filter_without_a_source_is_refused(script: Script) -> None:
    with pytest.raises(PlanError, match=r"agent filtered: skill_names=\['ants'\], but neither the job nor the agent"):
        compile_plan(filtered(["ants"]))


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (filtered(["ants", "beees"]), r"unknown skill 'beees' in skill_names of agent filtered: did you mean 'bees'"),
        (filtered(None, manager=["beees"]), r"unknown skill 'beees' in skill_names of agent filtered"),
        # A name that the other filter excludes is checked as well.
        (filtered(["ants"], manager=["ants", "beees"]), r"unknown skill 'beees' in skill_names of agent filtered"),
        (filtered(["ants"], setup=["beees"]), r"unknown skill 'beees' in skill_names of chat model 'm' of agent"),
    ],
)
def test_unknown_names_fail_at_apply(script: Script, three: Path, agent: type[Agent], message: str) -> None:
    env = AgentsExecutionEnvironment.get_execution_environment().add_skills_from_paths(str(three))
    with pytest.raises(UnknownNameError, match=message):
        env.from_list(["x"]).apply(agent)


async def test_an_excluded_skill_is_answered_like_one_that_does_not_exist(
    open_agent: OpenAgent, script: Script, three: Path
) -> None:
    def asked(name: str) -> Any:
        return calls(
            call("load_skill", name=name),
            call("load_skill_resource", name=name, path="more.md"),
            call("load_skill_resource", path=f"skill://{name}/more.md"),
            call("skill_run", skill=name, command="true"),
            call("skill_run", skill="ants", command="true", inputs=[{"from": f"skill://{name}/more.md"}]),
            call("unload_skill", name=name),
            call("skill_list_docs", skill=name),
            call("skill_select_docs", skill=name, docs=["more.md"]),
        )

    model = script([asked("bees"), "done", asked("mice"), "done"])
    bench = await open_agent(filtered(["ants", "cats"], setup=["ants", "bees"]), three, **TOOLS)
    results = []
    for number in (1, 2):
        await bench.turn("x", number=number)
        results.append([message.content for message in model.requests[-1].messages if hasattr(message, "is_error")])
    excluded, absent = results
    assert len(excluded) == 8
    assert excluded == [text.replace("mice", "bees") for text in absent]
    for request in model.requests:
        sent = request.system + str([(spec.description, spec.parameters) for spec in request.tools])
        assert "About ants." in sent
        assert "bees" not in sent and "cats" not in sent


async def test_a_skill_that_was_loaded_before_the_filter_is_gone(
    open_agent: OpenAgent, script: Script, three: Path
) -> None:
    model = script([calls(call("load_skill", name="bees")), "loaded", "next"])
    before = await (await open_agent(filtered(None), three)).turn("x")
    assert any("Body of bees." in str(message.content) for message in model.requests[-1].messages)
    bench = await open_agent(filtered(["ants"]), three)
    await bench.turn("y", number=2, session=before.session)
    assert "bees" not in model.requests[-1].system


async def test_an_agent_without_models_is_filtered(open_agent: OpenAgent, script: Script, three: Path) -> None:
    class Workflow(Agent):
        name = "workflow"
        skill_names = ("ants",)

        async def on_event(self, event: Any, ctx: AgentContext) -> Any:
            loaded = await ctx.call_tool("load_skill", name="ants")
            with pytest.raises(Exception, match="There is no skill 'bees'"):
                await ctx.call_tool("load_skill", name="bees")
            return loaded["name"]

    bench: Bench = await open_agent(Workflow, three)
    assert (await bench.turn("x")).outputs == (("", "ants"),)


async def test_an_agent_that_is_a_tool_has_its_own(open_agent: OpenAgent, script: Script, three: Path) -> None:
    class Callee(filtered(["bees"])):  # type: ignore[misc]
        """Answers."""

        name = "callee"
        instructions = "You answer."

    class Desk(filtered(["ants"])):  # type: ignore[misc]
        instructions = "You decide."

        @agent_tool
        def ask(self) -> Agent:
            return Callee()

    model = script([calls(call("ask", request="?")), "answer", "done"])
    bench = await open_agent(Desk, three)
    await bench.turn("x")
    menus = [("ants" in request.system, "bees" in request.system) for request in model.requests]
    assert menus == [(True, False), (False, True), (True, False)]
