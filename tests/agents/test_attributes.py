"""Attributes, arguments and names that the product does not know are errors that give the right word."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

import flink_skills
from flink_skills import (
    Agent,
    AgentContext,
    AgentsConfiguration,
    AgentsExecutionEnvironment,
    ConfigError,
    PlanError,
    ResourceDescriptor,
    ResourceName,
    UnknownNameError,
    agent_tool,
    chat_model_connection,
    chat_model_setup,
    load_agent_yaml,
    prompt,
    tool,
)
from flink_skills.agents import compile_plan
from flink_skills.other_frameworks import AGENT_WORDS, CONTEXT_WORDS, IMPORTS, SETUP_WORDS
from flink_skills.testing import ScriptedModel
from tests.kit.agents import OpenAgent
from tests.kit.local import local_environment
from tests.kit.models import Script


class Answer(BaseModel):
    text: str


def made(**attributes: Any) -> Agent:
    return type("Made", (Agent,), {"model": "offline", **attributes})()  # type: ignore[no-any-return]


@pytest.mark.row("B23")
@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("instruction", "Be brief.", "use instructions"),
        ("system_prompt", "Be brief.", "use instructions"),
        ("tools", [print], "method with @tool"),
        ("sub_agents", [], "@agent_tool"),
        ("output_schema", Answer, "use output_type"),
        ("description", "Triages.", "docstring of the class"),
        ("temperature", 0.1, "set it on a chat model"),
        ("skills", ["a"], "skill_names"),
        ("skil_names", ["a"], "did you mean 'skill_names'"),
        ("skill_name", "a", "did you mean 'skill_names'"),
        ("out_type", Answer, "did you mean 'output_type'"),
        ("sesion", "key", "did you mean 'session'"),
        ("file_field", "files", "did you mean 'files_field'"),
    ],
)
def test_a_word_without_effect_is_an_error_at_apply(name: str, value: Any, right: str) -> None:
    agent = made(**{name: value})
    for one in (agent, type(agent)):
        with pytest.raises(PlanError, match=f"agent .*Made has attributes without an effect: attribute {name!r}: .*"):
            local_environment().from_list(["x"]).apply(one)
    with pytest.raises(PlanError) as caught:
        compile_plan(agent)
    assert right in str(caught.value)


@pytest.mark.row("B23")
def test_all_are_named_at_once_and_those_of_instances_too() -> None:
    agent = made(instruction="x", llm="y")
    agent.sub_agents = []  # type: ignore[attr-defined]
    with pytest.raises(PlanError, match=r"'instruction': use instructions.*'llm': .*'sub_agents': "):
        compile_plan(agent)


class Base(Agent):
    model = "offline"
    _tools: ClassVar[list[str]] = []
    temperature = 0.5
    goal = "to be read"
    role = "by a property"
    memory = "by a nested function"
    hooks = "by getattr"
    persona = "by a cached property"
    llm = "by a class method"
    threshold = 3
    model_path = "/opt/models"

    @property
    def described(self) -> str:
        return self.role

    @functools.cached_property
    def kept(self) -> str:
        return self.persona

    @classmethod
    def of_class(cls) -> str:
        return cls.llm

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        def inner() -> list[str]:
            return [self.memory for _ in (1,)]

        return self.goal, inner(), getattr(self, "hooks", None)


class Uses(Base):
    @tool
    def warm(self) -> float:
        """Say how warm it is."""
        return self.temperature

    def tools(self) -> list[str]:
        return self._tools


@pytest.mark.row("B23")
def test_own_attributes_stay_free() -> None:
    compile_plan(Uses)
    compile_plan(type("Plain", (Agent,), {"model": "offline", "threshold": 3, "MODEL": "x", "model_path": "/opt"}))


@pytest.mark.row("B23")
def test_an_attribute_that_is_only_written_has_no_effect() -> None:
    class Writes(Agent):
        model = "offline"

        def __init__(self) -> None:
            self.instruction = "Be brief."

    with pytest.raises(PlanError, match="'instruction': use instructions"):
        compile_plan(Writes)


@pytest.mark.row("B23")
def test_arguments_say_how_an_agent_is_configured() -> None:
    class Triage(Agent):
        pass

    with pytest.raises(PlanError, match=r"Triage\(name=…\): an agent is configured by attributes of a class"):
        Triage(name="triage")  # type: ignore[call-arg]
    with pytest.raises(PlanError, match=r"Triage\(…, key=…\)") as caught:
        Triage("pl4nted", key="pl4nted")  # type: ignore[call-arg]
    assert "pl4nted" not in str(caught.value)

    class Own(Agent):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    assert Own("mine").name == "mine"


def setup(**arguments: Any) -> type[Agent]:
    class Declared(Agent):
        @chat_model_setup
        @staticmethod
        def m() -> ResourceDescriptor:
            return ResourceDescriptor(clazz="offline.setup", **arguments)

        @prompt
        @staticmethod
        def short() -> str:
            return "Be brief."

    return Declared


@pytest.mark.row("B23")
@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("skills", ["a"], r"use skill_names=\[…\]"),
        ("allowed_commands", ["ls"], r"set the option skills\.shell\.allowed-commands"),
        ("extract_reasoning", True, "use thinking=True"),
        ("request_timeout", 3, r"set the option skills\.model\.timeout"),
        ("skill_nams", ["a"], "did you mean 'skill_names'"),
        ("promt", "short", "did you mean 'prompt'"),
        ("skill_tool", "full", "did you mean 'skill_tools'"),
    ],
)
def test_arguments_of_a_chat_model_get_the_right_word(name: str, value: Any, right: str) -> None:
    with pytest.raises(UnknownNameError, match=f"unknown model setting {name!r} in chat model 'm' of .*{right}"):
        compile_plan(setup(**{name: value}))


@pytest.mark.row("B23")
def test_the_valid_names_include_those_of_the_setup_itself() -> None:
    with pytest.raises(UnknownNameError) as caught:
        compile_plan(setup(zzz=1))
    listed = str(caught.value)
    assert all(name in listed for name in ("connection", "price", "prompt", "run_code", "skill_names", "temperature"))


@pytest.mark.row("B23")
def test_arguments_of_a_connection_get_the_right_word() -> None:
    class Declared(Agent):
        @chat_model_connection
        @staticmethod
        def c() -> ResourceDescriptor:
            return ResourceDescriptor(clazz="openai.connection", request_timeout=3)

        @chat_model_setup
        @staticmethod
        def m() -> ResourceDescriptor:
            return ResourceDescriptor(clazz="openai.setup", connection="c", model="m")

    with pytest.raises(UnknownNameError, match=r"unknown argument 'request_timeout'.*skills\.model\.timeout"):
        compile_plan(Declared)


@pytest.mark.row("B23")
@pytest.mark.parametrize("name", ["Skills", "ReActAgent", "action", "OutputEvent", "RunnerContext"])
def test_imports_of_flink_agents_name_ours(name: str) -> None:
    with pytest.raises(ImportError) as caught:
        exec(f"from flink_skills import {name}")
    assert str(caught.value) == f"flink_skills has no {name}: {IMPORTS[name]}"


@pytest.mark.row("B23")
def test_other_names_are_missing_as_usual() -> None:
    assert not hasattr(flink_skills, "Nothing")
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        exec("from flink_skills import Nothing")


@pytest.mark.row("B23")
@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("send_event", "call ctx.emit(value)"),
        ("short_term_memory", "use ctx.state"),
        ("durable_execute", "use await ctx.step"),
        ("emitt", "did you mean 'emit'"),
        ("nothing_like_it", "AgentContext has no attribute 'nothing_like_it'"),
    ],
)
async def test_attributes_of_the_context_name_ours(
    open_agent: OpenAgent, script: Script, tmp_path: Path, name: str, right: str
) -> None:
    class Ported(Agent):
        async def on_event(self, event: Any, ctx: AgentContext) -> Any:
            return getattr(ctx, name)

    outcome = await (await open_agent(Ported)).turn("x")
    [(tag, record)] = outcome.outputs
    assert tag == "errors"
    assert right in record["error"]


@pytest.mark.row("B23")
def test_the_tables_name_what_exists() -> None:
    known = {name for name in vars(Agent) if not name.startswith("_")}
    assert not known & AGENT_WORDS.keys()
    assert not set(flink_skills.__all__) & IMPORTS.keys()
    assert not set(dir(AgentContext)) & CONTEXT_WORDS.keys()
    options = {option.key for option in flink_skills.SkillOptions.all()}
    for advice in (*AGENT_WORDS.values(), *SETUP_WORDS.values()):
        for word in advice.replace("(", " ").split():
            assert not word.startswith("skills.") or word.rstrip(".,;") in options, advice


class Judge(Agent):
    name = "judge"
    model = "offline"


def env() -> AgentsExecutionEnvironment:
    return local_environment()


@pytest.mark.parametrize(
    ("made", "name", "value", "problem"),
    [
        (env, "parallelism", 2, "AgentsExecutionEnvironment.parallelism cannot be set: set options"),
        (env, "skills", ["/opt/skills"], "AgentsExecutionEnvironment.skills cannot be set"),
        (env, "get_config", {}, "AgentsExecutionEnvironment.get_config cannot be set"),
        (AgentsConfiguration, "turn_timeout", "1 s", r"set an option with set\('skills.turn.timeout', …\)"),
        (AgentsConfiguration, "anything", 1, "AgentsConfiguration.anything cannot be set"),
    ],
)
def test_an_attribute_that_nothing_reads_cannot_be_set(made: Any, name: str, value: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        setattr(made(), name, value)


def test_a_misspelled_method_comes_with_near_names() -> None:
    with pytest.raises(AttributeError, match="did you mean 'add_skills_from_paths'"):
        env().add_skill_from_paths(["/opt/skills"])  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="AgentsConfiguration has no attribute 'sett': did you mean 'set'"):
        env().get_config().sett("skills.turn.timeout", "1 s")  # type: ignore[attr-defined]


def test_an_environment_of_a_user_has_attributes() -> None:
    class Own(AgentsExecutionEnvironment):
        def __init__(self) -> None:
            super().__init__()
            self.more = 1

    assert Own().more == 1


def test_an_attribute_of_an_agent_of_yaml_cannot_be_set(tmp_path: Path) -> None:
    file = tmp_path / "judge.yaml"
    file.write_text("name: judge\nmodel: offline\n", encoding="utf-8")
    agent = load_agent_yaml(file)
    for name, value in (("instructions", "Be brief."), ("output_type", int), ("anything", 1)):
        with pytest.raises(ConfigError, match=f"agent judge: {name} cannot be set, because .* its YAML: write it"):
            setattr(agent, name, value)
    assert env().from_list(["x"]).apply(agent).to_list() == ["No skill fits this event."]


def test_options_after_apply_are_errors() -> None:
    agents_env = env()
    agents_env.from_list(["x"]).apply(Judge)
    for late in (
        lambda: agents_env.get_config().set("skills.turn.timeout", "1 s"),
        lambda: agents_env.add_skills_from_paths(["/opt/skills"]),
        lambda: agents_env.add_skills_from_urls(["https://skills.example/a.zip"]),
        lambda: agents_env.add_skills_from_resources(["skills"]),
        lambda: agents_env.add_skills([]),
        lambda: agents_env.add_resource("tone", "Be brief."),
    ):
        with pytest.raises(ConfigError, match="agent judge is compiled already and would not have it"):
            late()


class Desk(Agent):
    name = "desk"
    instructions = "You answer."

    @chat_model_setup
    @staticmethod
    def model() -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.ChatModel.OPENAI_SETUP, connection="none", model="gpt")


class Plain(Agent):
    name = "plain"
    model = "offline"


def answers(agent: Any, *events: Any) -> list[Any]:
    return list(local_environment().from_list(list(events)).apply(agent).to_list(raise_on_error=True))


@pytest.mark.parametrize("agent", [Plain, Plain()], ids=["class", "instance"])
def test_all_models_of_an_agent_are_replaced_meanwhile(agent: Any) -> None:
    with Plain.override(model=ScriptedModel(["scripted"])):
        assert answers(agent, "hello") == ["scripted"]
    assert answers(agent, "hello") != ["scripted"]


def test_a_model_can_be_replaced_by_name_and_by_a_text() -> None:
    with Plain.override(model={"model": ScriptedModel(["by name"])}):
        assert answers(Plain, "hello") == ["by name"]
    with Plain.override(model="offline"):
        assert answers(Plain, "hello")


def test_an_agent_that_is_a_tool_has_the_replacement_of_its_caller() -> None:
    class Caller(Agent):
        name = "caller"
        model = "offline"

        async def on_event(self, event: Any, ctx: Any) -> Any:
            return await ctx.call_tool("plain", {"request": event})

        @agent_tool
        @staticmethod
        def plain() -> Any:
            return Plain

    with Caller.override(model=ScriptedModel(["from the callee"])):
        (found,) = answers(Caller, "hello")
    assert "from the callee" in str(found)


def test_what_cannot_replace_a_model_is_rejected() -> None:
    with pytest.raises(ConfigError, match="override of agent plain: model is of type int"), Plain.override(model=3):
        pass
    with (
        Plain.override(model={"modle": ScriptedModel(["x"])}),
        pytest.raises(UnknownNameError, match="override of agent plain"),
    ):
        answers(Plain, "hello")
