"""Arguments and attributes of a wrong kind: one sentence with the right one, where they are written."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, model_validator

from flink_skills import (
    Agent,
    AgentContext,
    AgentsExecutionEnvironment,
    AgentSkillManager,
    ChatModel,
    ConfigError,
    FunctionTool,
    Prompt,
    ResourceDescriptor,
    SkillConfig,
    SkillsError,
    agent_tool,
    chat_model_connection,
    chat_model_setup,
    load_agent_yaml,
    mcp_server,
    prompt,
    register_tools,
    skills,
    tool,
    tool_pool,
    tool_set,
)
from flink_skills.agents import compile_plan
from flink_skills.tools import ToolContext
from tests.kit.local import local_environment


class NotAnAgent:
    pass


class Judge(Agent):
    name = "judge"
    model = "offline"


class Model(BaseModel):
    number: int


class Filled(BaseModel):
    number: int

    @model_validator(mode="before")
    @classmethod
    def _with_number(cls, data: Any) -> Any:
        return {"number": 0, **data}


@dataclass
class Needs:
    number: int


async def asynchronous(event: Any) -> Any:
    return event


async def annotated(self: Any, first: AgentContext, second: Any) -> Any:
    return second


def weather_of(days: int, city: str) -> str:
    """Return the weather.

    Args:
        days: Number of days.
        city: The city.
    """
    return city * days


async def generated() -> AsyncIterator[int]:
    yield 1


class AsyncCall:
    async def __call__(self, event: Any) -> Any:
        return event


class Keyed:
    def get_key(self, event: Any) -> Any:
        return event


def env() -> AgentsExecutionEnvironment:
    return local_environment()


def applied(**members: Any) -> Any:
    return env().from_list([1]).apply(type("Made", (Agent,), {"name": "made", "model": "offline", **members}))


def declared(mark: Any, value: Any) -> Any:
    """Apply an agent with a marked method that returns ``value``."""
    return applied(of=mark(staticmethod(lambda: value)))


def setup(clazz: Any, **arguments: Any) -> Any:
    return declared(chat_model_setup, ResourceDescriptor(clazz=clazz, **arguments))


def frame() -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"a": [1]})


INPUTS: list[tuple[str, Callable[[], Any], str]] = [
    (
        "a list as a stream",
        lambda: env().from_datastream([1], "k"),
        "stream is of type list instead of a DataStream: use from_list",
    ),  # type: ignore[arg-type]
    ("a text as a stream", lambda: env().from_datastream("a", "k"), "stream is of type str instead of a DataStream"),  # type: ignore[arg-type]
    (
        "a list as a table",
        lambda: env().from_table([1], "k"),
        "table is of type list instead of a Table: use from_list",
    ),  # type: ignore[arg-type]
    ("a name as a table", lambda: env().from_table("orders", "k"), "t_env.from_path('orders')"),  # type: ignore[arg-type]
    ("a number", lambda: env().from_list(3), "events is of type int: give a list of events"),  # type: ignore[arg-type]
    ("nothing", lambda: env().from_list(None), "events is None: give a list of events"),  # type: ignore[arg-type]
    ("a text", lambda: env().from_list("abc"), "events is one str, whose characters would be the events"),
    ("bytes", lambda: env().from_list(b"abc"), "events is one bytes"),
    (
        "a dict",
        lambda: env().from_list({"a": 1}),
        "events is a dict, whose keys would be the events: write from_list([{…}])",
    ),
    ("a class", lambda: env().from_list(list), "events is the class list"),  # type: ignore[arg-type]
    ("a data frame", lambda: env().from_list(frame()), "from_list(frame.to_dict('records'))"),
    ("asynchronous", lambda: env().from_list(generated()), "asynchronous iterator"),  # type: ignore[arg-type]
    ("an environment", lambda: AgentsExecutionEnvironment.get_execution_environment("local"), "env is of type str"),  # type: ignore[arg-type]
    ("a name that is a number", lambda: env().from_list([1]).apply(Judge, 5), "apply: name is 5"),  # type: ignore[arg-type]
    ("an empty name", lambda: env().from_list([1]).apply(Judge, ""), "apply: name is ''"),
]

KEYS: list[tuple[str, Any, str]] = [
    ("async", asynchronous, "key_selector is an async function, whose result is a coroutine: write it with 'def'"),
    ("async object", AsyncCall(), "key_selector is an async function"),
    ("number", 5, "key_selector is of type int: give a function"),
    ("dict", {"a": 1}, "key_selector is of type dict"),
    ("empty list", [], "a list holds the names of fields"),
    ("list of numbers", ["a", 1], "a list holds the names of fields"),
    ("empty", "", "key_selector is empty"),
    ("no arguments", lambda: 1, "key_selector does not accept one argument: write it as 'lambda event: …'"),
    ("class of a selector", Keyed, "key_selector is the class Keyed: give an instance of it"),
]

AGENTS: list[tuple[str, Any, str]] = [
    ("text", "judge", "not 'judge': give the class of the agent instead of its name"),
    ("file", "judge.yaml", "load the file with load_agent_yaml('judge.yaml')"),
    ("instance", NotAnAgent(), "not an object of NotAnAgent: declare an agent as 'class Triage(Agent)'"),
    ("class", NotAnAgent, "not the class NotAnAgent: declare it as 'class NotAnAgent(Agent)'"),
    ("nothing", None, "not None: declare an agent"),
    ("function", asynchronous, "not the function asynchronous: make it the method on_event"),
    ("list", [Judge], "not an object of list: call apply for each agent"),
    ("dict", {"name": "judge"}, "load it with load_agent_yaml"),
]

ATTRIBUTES: list[tuple[str, Any, str]] = [
    ("model", "gpt-5", "unknown model provider 'gpt-5': did you mean 'openai:gpt-5'?"),
    ("model", "gpt-4.1-mini", "did you mean 'openai:gpt-4.1-mini'?"),
    ("model", "o3", "did you mean 'openai:o3'?"),
    ("model", "claude-sonnet-4-5", "did you mean 'anthropic:claude-sonnet-4-5'?"),
    ("model", "llama3.2:3b", "did you mean 'ollama:llama3.2:3b'?"),
    ("model", "openai/gpt-5", "did you mean 'openai:gpt-5'?"),
    ("model", "frontier", "write its provider first, such as 'openai:frontier'"),
    ("model", "offlin", "did you mean 'offline'?"),
    ("model", "opnai:gpt-5", "did you mean 'openai'?"),
    ("model", 5, "agent made: model is 5: give a string such as 'openai:NAME'"),
    ("model", ["offline"], "agent made: model is an object of list"),
    ("model", ResourceDescriptor("offline.setup"), "return it from a method with @chat_model_setup"),
    ("model", ChatModel, "register its provider with register_provider"),
    ("state_type", 5, "agent made: state_type is 5: give a pydantic model or a dataclass"),
    ("state_type", dict, "agent made: state_type is the class dict: .* or None for a dict"),
    ("state_type", {"a": int}, "agent made: state_type is an object of dict"),
    ("state_type", Model, "state_type Model has fields without a default (number)"),
    ("state_type", Needs, "state_type Needs has fields without a default (number)"),
    ("output_type", 5, "agent made: output_type is 5: give a pydantic model or another type"),
    ("output_type", "str", "agent made: output_type is 'str': give the type itself, not its name"),
    ("output_type", {"a": int}, "agent made: output_type is a dict: declare its fields in a pydantic model"),
    ("output_type", NotAnAgent, "agent made: output_type NotAnAgent has no JSON schema"),
    ("input_type", 5, "agent made: input_type is 5"),
    ("name", 5, "name is 5: give a string"),
    ("name", ["a"], "name is ['a']: give a string"),
    ("run_code", "yes", "run_code is 'yes': give True or False"),
    ("files_field", None, "files_field is None: give the name of a field"),
    ("content_fields", "photo", "content_fields is 'photo': give a list of names of fields"),
    ("skill_names", "a", "skill_names is 'a'; give a list of names"),
    ("approve_tools", "a", "approve_tools is 'a'; give a list of names"),
    ("on_event", 5, "on_event is 5: write a method on_event(self, event, ctx)"),
    ("on_event", lambda self, event: event, "write it as on_event(self, event, ctx)"),
    ("on_event", lambda self, event, ctx: (yield event), "on_event has a 'yield'"),
    ("on_event", lambda self, ctx, event: event, "another order than the call: write it as on_event(self, event, ctx)"),
    ("on_event", lambda self, context, value: value, "write it as on_event(self, event, ctx)"),
    ("on_event", annotated, "write it as on_event(self, event, ctx)"),
    ("visible_skills", lambda self, ctx, event: None, "write it as visible_skills(self, event, ctx)"),
    ("before_model", lambda self, ctx, request: None, "write it as before_model(self, request, ctx)"),
    ("around_tool", lambda self, ctx, call: None, "write it as around_tool(self, call, ctx)"),
    ("approve", ["a"], "approve is an object of list: write a method approve(self, request)"),
    ("visible_skills", ["a"], "write a method visible_skills(self, event, ctx)"),
    ("listeners", [], "listeners is an object of list: write a method listeners(self)"),
]

DECLARATIONS: list[tuple[str, Callable[[], Any], str]] = [
    (
        "setup without 'setup'",
        lambda: setup("offline"),
        "clazz 'offline' is not a chat model setup: did you mean 'offline.setup'?",
    ),
    ("setup of a model", lambda: setup("gpt-5"), "did you mean 'openai:gpt-5'?"),
    ("setup misspelled", lambda: setup("opnai"), "did you mean 'openai.setup'?"),
    (
        "setup of a connection",
        lambda: setup("openai.connection"),
        "return it from a method with @chat_model_connection, or write 'openai.setup'",
    ),
    (
        "setup of another framework",
        lambda: setup("flink_agents.ollama_chat_model.OllamaChatModelSetup"),
        "did you mean 'ollama.setup'?",
    ),
    ("setup that is unknown", lambda: setup("some.Class"), "write one of 'anthropic.setup', 'azure.setup', "),
    (
        "connection",
        lambda: declared(chat_model_connection, ResourceDescriptor(clazz="openai")),
        "connection 'of' of agent made: clazz 'openai' is not .* did you mean 'openai.connection'?",
    ),
    ("shared", lambda: env().add_resource("a", ResourceDescriptor(clazz="offline")), "did you mean 'offline.setup'?"),
    (
        "connection without a name",
        lambda: setup("openai.setup", model="x", connection=5),
        "connection is of type int: give a name",
    ),
    ("model without a name", lambda: setup("openai.setup", model=5), "model is of type int: give a name"),
    ("prompt without a name", lambda: setup("offline.setup", prompt=["a"]), "prompt is of type list: give a name"),
    (
        "key without a name",
        lambda: setup("openai:x", api_key_env=5),
        "api_key_env is not the name of an environment variable",
    ),
    ("override", lambda: Judge.override(model="gpt-5").__enter__(), "did you mean 'openai:gpt-5'?"),
    (
        "prompt text",
        lambda: prompt("text"),
        "@prompt is given 'text', which is of type str: write @prompt above a method",
    ),
    ("setup text", lambda: chat_model_setup("openai:x"), "write @chat_model_setup above a method"),
    ("tool number", lambda: tool(5), "@tool is given 5"),
    ("tool property", lambda: tool(property(lambda self: 1)), "write @tool above a method"),
    ("tool class", lambda: tool(int), "@tool cannot mark <class 'int'>"),
    ("tool name", lambda: applied(of=tool(name="a b")(lambda self: 1)), "agent made: tool 'a b': a tool's name is"),
    ("tool timeout", lambda: tool(timeout="1 s"), "@tool: timeout is '1 s': give a number of seconds above 0"),  # type: ignore[call-overload]
    ("tool output", lambda: tool(max_output=-1), "@tool: max_output is -1: give a whole number above 0"),
    ("servers", lambda: mcp_server(tools="price"), "@mcp_server: tools is 'price': give a list"),
    (
        "arguments of a prompt",
        lambda: applied(of=prompt(lambda self, event: "x")),
        "agent made: @prompt of() is called without arguments",
    ),
    (
        "arguments of a tool set",
        lambda: applied(of=tool_set(lambda self, event: [])),
        "@tool_set of() is called without arguments",
    ),
    (
        "arguments of an agent",
        lambda: applied(of=agent_tool(lambda self, event: Judge)),
        "@agent_tool of() is called without arguments",
    ),
    ("pool", lambda: declared(tool_pool, 5), "@tool_pool of() returns int; return a list of tools"),
    ("skills", lambda: declared(skills, "/a"), "@skills of() returns str; return a ResourceDescriptor"),
    ("registered", lambda: register_tools([len]), "expected tools as a dict of name to tool, got list"),  # type: ignore[arg-type]
    ("prompt number", lambda: Prompt(5), "Prompt: system is 5: give a string"),  # type: ignore[arg-type]
    ("option", lambda: env().get_config().set(5, 1), "an option is 5: give a constant of SkillOptions"),  # type: ignore[arg-type]
    ("option read", lambda: env().get_config().get(5), "an option is 5"),  # type: ignore[call-overload]
    ("options", lambda: SkillConfig(5), "values is of type int: give a dict"),  # type: ignore[arg-type]
    ("manager", lambda: AgentSkillManager(paths=5), "paths must be a list of strings, not int"),  # type: ignore[arg-type]
    ("manager options", lambda: AgentSkillManager(config=5), "config must be a SkillConfig, not int"),  # type: ignore[arg-type]
    ("file", lambda: load_agent_yaml(None), "path is of type NoneType: give the path of a file"),  # type: ignore[arg-type]
]


def check(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(SkillsError) as caught:
        call()
    text = str(caught.value)
    parts = message.split(" .* ")
    assert all(part in text for part in parts), text
    assert "\n" not in text
    assert "object at 0x" not in text


@pytest.mark.parametrize(("call", "message"), [case[1:] for case in INPUTS], ids=[case[0] for case in INPUTS])
def test_inputs(call: Callable[[], Any], message: str) -> None:
    check(call, message)


@pytest.mark.parametrize(("key", "message"), [case[1:] for case in KEYS], ids=[case[0] for case in KEYS])
def test_key_selectors(key: Any, message: str) -> None:
    check(lambda: env().from_list([1], key), f"from_list: {message}" if message.startswith("key") else message)


@pytest.mark.parametrize(
    "key", [str, hash, len, Keyed(), lambda event: 1, lambda *events: 1, "k", ["k"], ("a", "b"), None]
)
def test_key_selectors_that_are_accepted(key: Any) -> None:
    env().from_list([], key)


@pytest.mark.parametrize(("agent", "message"), [case[1:] for case in AGENTS], ids=[case[0] for case in AGENTS])
def test_agents(agent: Any, message: str) -> None:
    check(
        lambda: env().from_list([1]).apply(agent),
        f"apply() takes an Agent class or instance, {message}".replace("instance, load", "instance, .* load"),
    )


@pytest.mark.parametrize(("name", "value", "message"), ATTRIBUTES)
def test_attributes(name: str, value: Any, message: str) -> None:
    check(lambda: applied(**{name: value}), message)


def test_a_state_whose_validator_gives_the_values_is_accepted() -> None:
    compile_plan(type("Made", (Agent,), {"name": "made", "model": "offline", "state_type": Filled}))


@pytest.mark.parametrize(
    ("call", "message"), [case[1:] for case in DECLARATIONS], ids=[case[0] for case in DECLARATIONS]
)
def test_declarations(call: Callable[[], Any], message: str) -> None:
    check(call, message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("chat_model_setups: {m: {clazz: gpt-5}}", "did you mean 'openai:gpt-5'?"),
        (
            "model: offline\noutput_type: json:JSONDecodr",
            "2:14: output_type: .* unknown name 'JSONDecodr' in module json",
        ),
        ("model: offline\noutput_type: json.JSONDecoder", "2:14: output_type: .* did you mean 'json:JSONDecoder'?"),
        ("model: offline\noutput_type: integer", "2:14: output_type: unknown type 'integer': did you mean 'int'?"),
        ("model: offline\ntools: ['json:lods']", "unknown name 'lods' in module json: did you mean 'loads'"),
    ],
)
def test_names_in_the_yaml_of_an_agent(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(text, encoding="utf-8")
    check(lambda: load_agent_yaml(file), message)


def test_arguments_of_other_names_are_accepted() -> None:
    applied(on_event=lambda self, order, context: order, around_tool=lambda self, tool_call, agent: None)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_tool_without_docstring_or_types_is_a_warning(dynamic: bool, caplog: pytest.LogCaptureFixture) -> None:
    def bare(self: Any, days: Any, unit) -> str:  # type: ignore[no-untyped-def]
        return "x"

    def described(self: Any, days: int) -> str:
        """Return the weather of the next days."""
        return "x"

    applied(of=tool(name="bare", dynamic=dynamic)(bare), other=tool(described))
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "agent made: tool bare: models do not learn what it does: write a docstring",
        "agent made: tool bare: models do not learn the types of its arguments (unit): annotate them",
    ]


def test_a_docstring_describes_only_arguments_of_the_function() -> None:
    def weather(days: int, city: str) -> str:
        """Return the weather.

        Args:
            day: Number of days.
            city: The city.
        """
        return city * days

    with pytest.raises(
        ConfigError, match=r"tool 'weather': the docstring describes the argument 'day', which the"
    ) as c:
        FunctionTool(weather)
    assert "did you mean 'days'?" in str(c.value)

    def numpy_style() -> None:
        """Do it.

        Parameters
        ----------
        unit : str
            The unit.
        """

    with pytest.raises(ConfigError, match=r"the argument 'unit', which the function does not have: it has: none\."):
        FunctionTool(numpy_style)

    def of_keywords(**more: str) -> None:
        """Do it.

        Args:
            unit: A keyword.
        """

    def in_context(days: int, context: ToolContext) -> None:
        """Do it.

        Args:
            days: Number of days.
            context: The call.
        """

    FunctionTool(of_keywords)
    FunctionTool(in_context)
    FunctionTool(functools.partial(weather_of, 1))


def test_an_attribute_of_the_context_cannot_be_set() -> None:
    async def on_event(self: Any, event: Any, ctx: Any) -> Any:
        ctx.state["number"] = 1
        ctx.number = 1

    (record,) = applied(on_event=on_event).to_list("errors")
    assert "ctx.number cannot be set" in record["error"]
    assert "ctx.state['number'] = …" in record["error"]


def test_a_key_that_a_selector_awaits_is_still_an_error_record() -> None:
    (record,) = env().from_list([1], lambda *events: asynchronous(events[0])).apply(Judge).to_list("errors")
    assert "a key is coroutine" in record["error"]


def test_wrong_kinds_are_errors_of_the_configuration() -> None:
    with pytest.raises(ConfigError):
        env().from_list(3)  # type: ignore[arg-type]
