"""``skill_names`` of an agent: each filter narrows, and an excluded skill is answered like one that does not exist."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from flink_skills import (
    Agent,
    AgentContext,
    AgentPlan,
    AgentsExecutionEnvironment,
    AgentSkill,
    ConfigError,
    PlanError,
    ResourceDescriptor,
    ResourceName,
    UnknownNameError,
    UnsupportedSkillError,
    agent_tool,
    chat_model_setup,
    load_agent_yaml,
    skills,
    tool,
)
from flink_skills.agents import compile_plan
from flink_skills.errors import SkillLockError
from flink_skills.manager import SkillLock, SkillScope
from flink_skills.skill import load_folder
from flink_skills.testing import call, calls
from tests.kit.agents import Bench, OpenAgent
from tests.kit.local import local_environment
from tests.kit.models import Script
from tests.kit.skills import skill_text, write_skill

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


@pytest.mark.row("B22")
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


@pytest.mark.row("B22")
@pytest.mark.parametrize("text", ["skill_names: [ants]\n", "skills: {skill_names: [ants]}\n"])
def test_yaml(tmp_path: Path, three: Path, text: str) -> None:
    plan = plan_of(yaml_agent(tmp_path, text), three)
    assert plan.filter_of(plan.models[0]) == ("ants",)
    assert plan.describe()["skill_names"] == ["ants"]
    assert "skills: ants;" in plan.summary()


@pytest.mark.row("B22")
def test_an_instance_has_its_own(three: Path, script: Script) -> None:
    agent = filtered(None)()
    agent.skill_names = ["cats"]
    plan = plan_of(agent, three)
    assert plan.filter_of(plan.models[0]) == ("cats",)


@pytest.mark.row("B22")
@pytest.mark.parametrize("wrong", ["ants", 3, ["ants", 3], {"ants": True}])
def test_other_values_than_lists_of_names_are_refused(three: Path, script: Script, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"agent filtered: skill_names is .*; give a list of names"):
        plan_of(filtered(wrong), three)


@pytest.mark.row("B22")
def test_a_filter_without_a_source_is_refused(script: Script) -> None:
    with pytest.raises(PlanError, match=r"agent filtered: skill_names=\['ants'\], but neither the job nor the agent"):
        compile_plan(filtered(["ants"]))


@pytest.mark.row("B22")
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
    env = local_environment().add_skills_from_paths(str(three))
    with pytest.raises(UnknownNameError, match=message):
        env.from_list(["x"]).apply(agent)


@pytest.mark.row("B22")
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


@pytest.mark.row("B22")
async def test_a_skill_that_was_loaded_before_the_filter_is_gone(
    open_agent: OpenAgent, script: Script, three: Path
) -> None:
    model = script([calls(call("load_skill", name="bees")), "loaded", "next"])
    before = await (await open_agent(filtered(None), three)).turn("x")
    assert any("Body of bees." in str(message.content) for message in model.requests[-1].messages)
    bench = await open_agent(filtered(["ants"]), three)
    await bench.turn("y", number=2, session=before.session)
    assert "bees" not in model.requests[-1].system


@pytest.mark.row("B22")
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


@pytest.mark.row("B22")
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


class Desk(Agent):
    name = "desk"
    session = "key"

    @chat_model_setup
    @staticmethod
    def model() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="scripted:m", skill_names=["count", "hooked", "orders"])

    @tool
    @staticmethod
    def find_order(number: int) -> str:
        """Find an order."""
        return f"order {number}"


@pytest.fixture
def folder(skill_folder: Path) -> Path:
    for name, more in (("hooked", "hooks: {Stop: []}\n"), ("orders", "allowed-tools: find_order\n")):
        (skill_folder / name).mkdir()
        (skill_folder / name / "SKILL.md").write_text(skill_text(name, f"About {name}.", f"Body of {name}.", more))
    return skill_folder


async def test_a_hidden_skill_is_answered_like_one_that_does_not_exist(
    open_agent: OpenAgent, folder: Path, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    model = script(
        [
            calls(
                call("load_skill", name="hooked"),
                call("load_skill", name="no-such"),
                call("load_skill_resource", name="hooked", path="SKILL.md"),
                call("load_skill", name="orders"),
            ),
            "done",
        ]
    )
    with caplog.at_level(logging.WARNING):
        bench = await open_agent(Desk, folder, **{"skills.unsupported": "hide"})
    assert bench.runtime.generation.model(None).view.names == ("count", "orders")
    assert "U11: skill 'hooked' is hidden: U05 the skill declares hooks, which are never run" in caplog.text
    assert (await bench.turn("go")).outputs[0][1] == "done"
    system = model.requests[0].system
    assert "orders" in system and "hooked" not in system
    hidden, unknown, resource, orders = [message.content for message in model.requests[1].messages[-4:]]
    assert hidden.replace("hooked", "no-such") == unknown
    assert "There is no skill 'hooked'" in resource
    assert "Body of orders." in orders


async def test_refusing_fails_the_open_with_all_reasons(open_agent: OpenAgent, folder: Path) -> None:
    (folder / "shout" / "scripts" / "run.bat").write_text("dir\n")
    with pytest.raises(UnsupportedSkillError) as failure:
        await open_agent(Desk, folder, **{"skills.unsupported": "refuse"})
    assert "- hooked: U05" in str(failure.value) and "- shout: U03" in str(failure.value)
    assert "orders" not in str(failure.value)


async def test_a_refresh_that_brings_one_is_refused(
    open_agent: OpenAgent, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = (folder / "hooked" / "SKILL.md").read_text()
    (folder / "hooked" / "SKILL.md").write_text(text.replace("hooks: {Stop: []}\n", ""))
    bench = await open_agent(Desk, folder, **{"skills.unsupported": "refuse"})
    before = bench.runtime.generation
    (folder / "hooked" / "SKILL.md").write_text(text)
    assert not await bench.runtime.skills.refresh()
    assert bench.runtime.generation is before
    assert bench.runtime.figures()["refreshFailures"] == 1
    assert "hooked: U05" in caplog.text


GREET = AgentSkill("greet", "Says hello.", "Run it.", {"hello.sh": "#!/bin/sh\necho hello from $SKILL_NAME\n"})
SECRET = AgentSkill("secret", "Not for every model.", "Secret text.")
LARGE = AgentSkill("large", "Is large.", resources={"a.txt": "x" * (1 << 20)})


class Greeter(Agent):
    name = "desk"

    @chat_model_setup
    @staticmethod
    def model() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="scripted:m", skill_names=["greet"])

    @skills
    @staticmethod
    def own() -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, skills=[GREET])


def agent_with(**arguments: Any) -> type[Agent]:
    class Declares(Agent):
        name = "declares"
        model = "offline"

        @skills
        @staticmethod
        def own() -> ResourceDescriptor:
            return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, **arguments)

    return Declares


@pytest.fixture
def environment(tmp_path: Path) -> AgentsExecutionEnvironment:
    return local_environment(
        {
            "skills.store.dir": str(tmp_path / "store"),
            "skills.shell.backend": "hygiene",
            "skills.shell.min-isolation": "HYGIENE",
        }
    )


def test_skills_travel_with_the_plan_and_are_described_by_name(script: Script) -> None:
    plan = compile_plan(Greeter, job_scopes=[SkillScope("job", skills=[SECRET])])
    sealed, secrets = plan.seal()
    again = AgentPlan.from_json(json.loads(json.dumps(sealed.to_json()))).unseal(secrets)
    assert again.scopes == plan.scopes
    assert [skill.digest for scope in again.scopes for skill in scope.skills] == [SECRET.digest, GREET.digest]
    described = json.dumps(plan.describe())
    assert [source["skills"] for source in plan.describe()["sources"]] == [["secret"], ["greet"]]
    assert "Secret text." not in described


def test_a_model_gets_the_skills_that_it_may_have_and_runs_them(
    script: Script, environment: AgentsExecutionEnvironment
) -> None:
    answers = [
        calls(call("load_skill", name="secret")),
        calls(call("load_skill", name="greet")),
        calls(call("execute_shell_command", command="./hello.sh")),
        "done",
    ]
    model = script(answers)
    assert environment.add_skills([SECRET]).from_list(["x"]).apply(Greeter).to_list() == ["done"]
    told = str(model.requests[-1])
    assert "There is no skill 'secret'" in told
    assert "hello from greet" in told
    assert "Secret text." not in told


def test_names_and_locks_hold(tmp_path: Path, environment: AgentsExecutionEnvironment, script: Script) -> None:
    lock = tmp_path / "skills.lock"
    lock.write_text(SkillLock.of([GREET.model_copy(update={"instructions": "Other."})]).to_text())
    environment.get_config().set("skills.lock", str(lock))
    with pytest.raises(SkillLockError, match="greet"):
        environment.from_list(["x"]).apply(Greeter)
    other = local_environment({"skills.store.dir": str(tmp_path / "store")})
    with pytest.raises(UnknownNameError, match="gret"):
        other.from_list(["x"]).apply(agent_with(skills=[GREET], skill_names=["gret"]))


def test_skills_that_are_too_large_to_travel() -> None:
    environment = local_environment()
    with pytest.raises(ConfigError, match=r"add_skills: the skills created in code have \d+ bytes as JSON \(large 10"):
        environment.add_skills([GREET, LARGE])
    with pytest.raises(PlanError, match=r"large \d+.*Put them into a folder or an archive"):
        compile_plan(agent_with(skills=[LARGE]))
    half = AgentSkill("half", "Is half of it.", resources={"a.txt": "x" * (1 << 19)})
    environment.add_skills([half])
    with pytest.raises(ConfigError, match="agent declares: the skills created in code"):
        environment.from_list(["x"]).apply(agent_with(skills=[half]))


def test_a_binary_file_does_not_travel(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "b")
    (folder / "logo.png").write_bytes(b"\xff\x00")
    skill = load_folder(str(folder)).skill
    assert skill is not None
    with pytest.raises(ConfigError, match=r"add_skills: skill 'b': 'logo\.png' is not UTF-8 text"):
        local_environment().add_skills([skill])


@pytest.mark.parametrize("value", [GREET, "greet", ["greet"]])
def test_other_values_than_lists_of_skills_are_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="Give"):
        local_environment().add_skills(value)
    with pytest.raises(PlanError, match="Give"):
        compile_plan(agent_with(skills=value))


def test_no_skill_and_no_source() -> None:
    with pytest.raises(PlanError, match="names no source; give paths=, resources=, urls= or skills="):
        compile_plan(agent_with(skills=[]))
