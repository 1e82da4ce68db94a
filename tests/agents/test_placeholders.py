"""Placeholders of prompts: a name that is not a field is an error at ``apply``, or fails the turn."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, ClassVar, TypedDict

import pytest
from pydantic import BaseModel

from flink_skills import (
    Agent,
    BaseToolSet,
    ConfigError,
    PlanError,
    Prompt,
    ResourceDescriptor,
    SkillsError,
    Tool,
    ToolContext,
    ToolResult,
    ToolSpec,
    UnknownNameError,
    agent_tool,
    chat_model_setup,
    load_agent_yaml,
    prompt,
    tool_pool,
    tool_set,
)
from flink_skills.agents import compile_plan, decode
from flink_skills.testing import ScriptedModel, call, calls
from flink_skills.tools.web import ScriptedSearch, SearchHit, WebSearchTool, sources_policy
from tests.kit.agents import OpenAgent
from tests.kit.local import local_environment
from tests.kit.models import Script


class Order(BaseModel):
    order: str
    amount: int = 0


@dataclass(slots=True)
class Ticket:
    order: str


class Typed(TypedDict):
    order: str


Named = namedtuple("Named", ["order"])


class Plain:
    def __init__(self) -> None:
        self.order = "7"


class Property:
    __slots__ = ()

    @property
    def order(self) -> str:
        return "7"


def triage(instructions: str = "", user: str = "", **attributes: Any) -> type[Agent]:
    def instructed() -> Prompt:
        return Prompt(system=instructions, user=user)

    members = {"name": "triage", "model": "offline", "main": prompt(staticmethod(instructed)), **attributes}
    return type("Triage", (Agent,), members)


def asked(agent: type[Agent], event: Any) -> tuple[list[str], list[Mapping[str, Any]]]:
    """Return what a model is asked for ``event``, system text first, and the error records."""
    model = ScriptedModel(["ok"])
    output = local_environment().from_list([event]).apply(agent)
    with agent.override(model=model):
        errors = output.to_list("errors")
    texts = [[request.system, request.messages[-1].content] for request in model.requests]
    return (texts[0] if texts else []), errors


EVENTS = [{"order": "7"}, Order(order="7"), Ticket("7"), Named("7"), Plain(), Property()]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_fields_of_any_event_are_put_in(event: Any) -> None:
    (_, message), errors = asked(triage(user="Order {order}."), event)
    assert (message, errors) == ("Order 7.", [])


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_a_name_that_the_event_does_not_have_fails_the_turn(event: Any) -> None:
    texts, (record,) = asked(triage(user="Order {ordr}."), event)
    assert not texts
    assert "unknown field 'ordr'" in record["error"]
    assert "did you mean '{order}'?" in record["error"]
    assert "'{{ordr}}'" in record["error"]


@pytest.mark.parametrize("event", ["7", 7, ["order"], None])
def test_an_event_without_fields_has_only_itself(event: Any) -> None:
    assert asked(triage(user="Order {event}."), event)[1] == []
    texts, (record,) = asked(triage(user="Order {order}."), event)
    assert not texts
    assert "unknown field 'order'" in record["error"]
    assert "'{event}'" in record["error"]


CODE = [
    '{"a": 1}',
    "{}",
    "{ order }",
    "{0}",
    "{order.id}",
    "{order!r}",
    "{a: {b: [1]}}",
    "def f() {\n  return 1;\n}",
    "${HOME}/x",
    "{% if order %}",
    "\\frac{1}{2}",
    "{order-id}",
]


@pytest.mark.parametrize("text", CODE)
def test_braces_that_are_no_placeholder_stay(text: str) -> None:
    (system, message), errors = asked(triage(text, f"{text} {{order}}"), {"order": "7"})
    assert (system, message, errors) == (text, f"{text} 7", [])
    compile_plan(triage(text, text), fields=["order"])


def test_two_braces_write_one() -> None:
    (system, message), errors = asked(triage("f'{{name}}'", "f'{{name}}' {order}"), {"order": "7"})
    assert (system, message, errors) == ("f'{name}'", "f'{name}' 7", [])


def test_a_placeholder_in_json_is_put_in() -> None:
    (_, message), _ = asked(triage(user='{"a": {"b": {order}}} ${order}'), {"order": "7"})
    assert message == '{"a": {"b": 7}} $7'


def test_values_are_never_read_as_templates() -> None:
    (_, message), errors = asked(triage(user="{a} {b}"), {"a": "{b}", "b": "{{c}} {nope}"})
    assert (message, errors) == ("{b} {{c}} {nope}", [])


@pytest.mark.parametrize(
    "agent",
    [
        triage("Look at {ordr}."),
        type("Triage", (Agent,), {"name": "triage", "model": "offline", "instructions": "Look at {ordr}."}),
        triage(main=prompt(staticmethod(lambda: Prompt.from_text("Look at {ordr}.")))),
        triage(main=prompt(staticmethod(lambda: "Look at {ordr}."))),
        triage(second=prompt(staticmethod(lambda: "Look at {ordr}."))),
    ],
    ids=["Prompt", "instructions", "from_text", "text", "not used"],
)
def test_instructions_with_a_placeholder_are_an_error_at_apply(agent: type[Agent]) -> None:
    with pytest.raises(PlanError) as caught:
        local_environment().from_list([]).apply(agent)
    assert "agent triage: '{ordr}' in instructions is not replaced" in str(caught.value)
    assert "Prompt(user=…)" in str(caught.value)
    assert "'{{ordr}}'" in str(caught.value)
    with pytest.raises(PlanError, match=r"put '\{order\}' into the template"):
        compile_plan(agent, fields=["order"])


def test_a_shared_prompt_is_checked_where_it_is_added() -> None:
    env = local_environment()
    for of in ("Look at {order}.", Prompt("Look at {order}."), Prompt.from_text("Look at {order}.")):
        with pytest.raises(ConfigError, match=r"add_resource\('tone', …\): '{order}' in instructions is not replaced"):
            env.add_resource("tone", of)


@pytest.mark.parametrize(
    ("fields", "attributes"),
    [
        (["order", "amount"], {}),
        (None, {"input_type": Order}),
        (None, {"input_type": Ticket}),
        (None, {"input_type": Typed}),
        (None, {"input_type": Named}),
    ],
    ids=["columns", "model", "dataclass", "typed dict", "named tuple"],
)
def test_a_template_is_checked_at_apply_if_the_fields_are_known(
    fields: Sequence[str] | None, attributes: dict[str, Any]
) -> None:
    compile_plan(triage(user="{order} {event} ${HOME}", **attributes), fields=fields)
    with pytest.raises(UnknownNameError) as caught:
        compile_plan(triage(user="{ordr}", **attributes), fields=fields)
    assert "unknown field 'ordr' in prompt 'main' of agent triage: did you mean '{order}'?" in str(caught.value)


def test_a_model_with_other_fields_as_well_is_checked_in_the_turn() -> None:
    class Open(BaseModel, extra="allow"):
        order: str

    compile_plan(triage(user="{amount}", input_type=Open))
    (_, message), errors = asked(
        triage(user="{amount}", input_type=Open), Open.model_validate({"order": "7", "amount": 3})
    )
    assert (message, errors) == ("3", [])


def test_templates_that_no_model_uses_are_not_filled() -> None:
    compile_plan(triage(user="{order}", other=prompt(staticmethod(lambda: Prompt(user="{nope}")))), fields=["order"])


@pytest.mark.parametrize(
    ("user", "input_type", "problem"),
    [("{request}", None, "write '{event}'"), ("{ordr}", Order, "did you mean '{order}'?")],
)
def test_an_agent_that_is_a_tool_has_the_fields_of_its_input_type(user: str, input_type: Any, problem: str) -> None:
    def desk(template: str) -> type[Agent]:
        callee = triage(user=template, input_type=input_type)
        return type("Desk", (Agent,), {"name": "desk", "model": "offline", "ask": agent_tool(lambda self: callee)})

    compile_plan(desk("{event}"), fields=["order"])
    with pytest.raises(UnknownNameError) as caught:
        compile_plan(desk(user), fields=["request", "ordr"])
    assert "agent triage" in str(caught.value)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("instructions: Look at {ordr}.\n", "2:15: instructions"),
        ("prompts:\n  main: Look at {ordr}.\n", "3:9: prompts.main"),
        ("prompts:\n  main:\n    system: Look at {ordr}.\n", "4:13: prompts.main.system"),
    ],
)
def test_instructions_in_yaml_are_an_error_with_their_line(tmp_path: Path, text: str, at: str) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(f"name: triage\n{text}model: offline\n", encoding="utf-8")
    with pytest.raises(SkillsError) as caught:
        load_agent_yaml(file)
    assert str(caught.value).startswith(f"{file}:{at}: '{{ordr}}' in instructions is not replaced"), caught.value


def test_an_input_type_in_yaml_has_the_fields_of_the_event(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(
        "name: triage\nmodel: offline\ninput_type:\n  order: str\nprompts:\n  main:\n    user: '{ordr}'\n", "utf-8"
    )
    with pytest.raises(UnknownNameError, match=r"did you mean '\{order\}'"):
        compile_plan(load_agent_yaml(file))


def test_a_user_method_that_shows_its_template_is_not_changed() -> None:
    made: Callable[[], Prompt] = lambda: Prompt("{{a}}", "{b}")  # noqa: E731 - as short as what is tested
    assert (made().system, made().user, str(made())) == ("{{a}}", "{b}", "{{a}}")
    assert made().render_system() == "{a}"


class Speaking(Tool):
    # By name: an agent that is not of a module has copies of its tools.
    said: ClassVar[dict[str, int]] = {}

    def __init__(self, name: str, *texts: str) -> None:
        self.name = name
        self.texts = list(texts)
        self.said[name] = 0

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, "A tool.", {"type": "object", "properties": {}})

    def prompt_addition(self) -> str:
        self.said[self.name] += 1
        text = self.texts[min(self.said[self.name], len(self.texts)) - 1]
        if text == "broken":
            raise OSError("no text")
        return text

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult("done")


class Quiet(Speaking):
    prompt_addition = Tool.prompt_addition


def agent_with(*tools: Any) -> type[Agent]:
    class Has(Agent):
        model = "scripted:m"
        instructions = "Be short."

        @tool_set
        def given(self) -> list[Any]:
            return list(tools)

    return Has


@pytest.mark.row("J30")
async def test_a_model_that_may_search_is_told_of_sources_and_the_month(open_agent: OpenAgent, script: Script) -> None:
    class Researcher(Agent):
        instructions = "Be short."

        @tool_set
        def web(self) -> WebSearchTool:
            return WebSearchTool(ScriptedSearch([SearchHit("A", "https://a.example.org", "a")]))

        @chat_model_setup
        def reader(self) -> ResourceDescriptor:
            return ResourceDescriptor(clazz="scripted.setup")

        @chat_model_setup
        def writer(self) -> ResourceDescriptor:
            return ResourceDescriptor(clazz="scripted.setup", tools=[])

        async def on_event(self, event: Any, ctx: Any) -> Any:
            await ctx.chat(event, model="reader")
            return await ctx.chat(event, model="writer")

    model = script(lambda request: "ok")
    await (await open_agent(Researcher)).turn("x")
    reader, writer = model.requests
    assert reader.system == f"Be short.\n\n{sources_policy(date.today())}"
    assert (writer.system, writer.tools) == ("Be short.", [])


async def test_a_repeated_request_has_the_text_of_the_first(open_agent: OpenAgent, script: Script) -> None:
    speaks = Speaking("speaks", "It is May.", "It is June.")
    model = script(lambda request: "done" if len(request.messages) > 1 else calls(call("speaks")))
    bench = await open_agent(agent_with(speaks))
    await bench.turn("x")
    assert [decode(entry)["r"].get("p") for entry in bench.journal] == [{"speaks": "It is May."}, None, None]
    journal = list(bench.journal)
    for kept in (1, 2):
        await bench.turn("x", journal=journal[:kept])
    assert [request.system for request in model.requests] == ["Be short.\n\nIt is May."] * 4
    assert Speaking.said["speaks"] == 1
    await bench.turn("y", number=2)
    assert model.requests[-1].system == "Be short.\n\nIt is June."


async def test_without_such_tools_nothing_is_kept(open_agent: OpenAgent, script: Script) -> None:
    model = script([calls(call("quiet")), "done"])
    bench = await open_agent(agent_with(Quiet("quiet", "never")))
    await bench.turn("x")
    assert not bench.runtime.generation.model(None).tools.speakers
    assert [set(decode(entry)["r"]) & {"p"} for entry in bench.journal] == [set()] * 3
    assert model.requests[0].system == "Be short."


async def test_what_fails_or_is_said_twice_is_left_out(
    open_agent: OpenAgent, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    model = script(lambda request: "ok")
    tools = Speaking("a", "One."), Speaking("b", "broken"), Speaking("c", "One."), Speaking("d", " ")
    await (await open_agent(agent_with(*tools))).turn("x")
    assert model.requests[0].system == "Be short.\n\nOne."
    assert "tool b: prompt_addition() failed" in caplog.text


class Prices(BaseToolSet):
    async def get_tools(self, context: ToolContext) -> Iterable[Tool]:
        return [Quiet("price", ""), Quiet("rebate", "")] if str(context.key).startswith("vip") else []

    def prompt_addition(self) -> str:
        return "Prices are in euro."


@pytest.mark.row("J6")
async def test_a_tool_set_speaks_to_models_that_have_a_tool_of_it(open_agent: OpenAgent, script: Script) -> None:
    model = script(lambda request: "ok")
    bench = await open_agent(agent_with(Prices()))
    await bench.turn("x", key='"vip"')
    await bench.turn("x", key='"other"')
    assert [request.system for request in model.requests] == ["Be short.\n\nPrices are in euro.", "Be short."]


async def test_tools_of_a_pool_speak_once_a_skill_brings_them(
    open_agent: OpenAgent, script: Script, tmp_path: Path
) -> None:
    folder = tmp_path / "skills" / "shop"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: shop\ndescription: Prices.\n---\n# Shop\n\nTools:\n- price\n- a\n")
    speaks = Speaking("a", "Text of a.")

    class Has(Agent):
        model = "scripted:m"

        @tool_pool
        def given(self) -> list[Any]:
            return [Prices(), speaks]

    model = script([calls(call("load_skill", name="shop")), calls(call("a")), "done"])
    bench = await open_agent(Has, tmp_path / "skills")
    await bench.turn("x", key='"vip"')
    texts = [request.system for request in model.requests]
    assert "euro" not in texts[0]
    assert texts[1].count("Prices are in euro.") == texts[1].count("Text of a.") == 1
    assert texts[2] == texts[1]
    assert [bool(decode(entry)["r"].get("p")) for entry in bench.journal] == [False, False, True, False, False]
