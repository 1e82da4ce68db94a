"""A field of the event chooses the chat model: which values do, what all others get, and what is refused."""

from __future__ import annotations

import enum
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from flink_skills import (
    Agent,
    AgentContext,
    AgentPlan,
    ConfigError,
    PlanError,
    Record,
    ResourceDescriptor,
    Route,
    SkillOptions,
    SkillsError,
    UnknownNameError,
    agent_tool,
    chat_model_setup,
    load_agent_yaml,
    tool,
)
from flink_skills.agents import compile_plan
from flink_skills.telemetry import Activity, Observer
from flink_skills.testing import ScriptedModel, call, calls
from tests.kit.agents import OpenAgent
from tests.kit.local import local_environment

pytestmark = pytest.mark.row("K12")

ROUTE = Route("customer.tier", {"gold": "large", 2: "large", True: "small"}, default="small")


class Tier(enum.Enum):
    GOLD = "gold"


@dataclass
class Customer:
    tier: Any


class Case(BaseModel):
    customer: Any


@pytest.mark.parametrize(
    "event",
    [
        {"customer": {"tier": "gold"}},
        {"customer": {"tier": 2}},
        {"customer": {"tier": 2.0}},
        {"customer": {"tier": "2"}},
        {"customer": {"tier": Tier.GOLD}},
        Record(customer=Record(tier="gold")),
        Case(customer=Customer("gold")),
        SimpleNamespace(customer=Customer("gold")),
        namedtuple("Event", "customer")(Customer("gold")),
        {"customer.tier": "gold"},
    ],
    ids=repr,
)
def test_a_value_has_its_model(event: Any) -> None:
    assert Route.parse(ROUTE).choose(event) == "large"


@pytest.mark.parametrize(
    "event",
    [
        {"customer": {"tier": "Gold"}},
        {"customer": {"tier": True}},
        {"customer": {"tier": None}},
        {"customer": {"tier": ["gold"]}},
        {"customer": {}},
        {"customer": "gold"},
        {},
        "gold",
        b"gold",
        7,
        None,
        [1, 2],
    ],
    ids=repr,
)
def test_an_event_without_a_known_value_has_the_default(event: Any) -> None:
    assert Route.parse(ROUTE).choose(event) == "small"


class Seen(Observer):
    def __init__(self) -> None:
        self.labels: list[dict[str, str]] = []

    def ended(self, activity: Activity) -> None:
        self.labels.append(dict(activity.scope.labels))


class Labeled(Agent):
    name = "labeled"
    seen = Seen()

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return event

    def listeners(self) -> list[Observer]:
        return [self.seen]


@pytest.mark.row("K20")
def test_labels_of_metrics_are_fields_of_the_event(caplog: pytest.LogCaptureFixture) -> None:
    events: list[Any] = [
        {"customer": {"tier": "gold"}, "region": 7},
        Record(customer=Record(tier=True), region="eu"),
        {"customer": {"tier": None}, "region": ""},
        {"customer": {}, "region": ["eu"]},
        "gold",
    ]
    env = local_environment()
    env.get_config().set(SkillOptions.METRICS_LABELS, "tier=customer.tier;region")
    env.from_list(events, lambda event: "one key").apply(Labeled()).to_list()
    assert Labeled.seen.labels == [
        {"tier": "gold", "region": "7"},
        {"tier": "true", "region": "eu"},
        *([{"tier": "(none)", "region": "(none)"}] * 3),
    ]
    messages = [record.getMessage() for record in caplog.records if "skills.metrics.labels" in record.getMessage()]
    assert len(messages) == 2, "one for each label"
    assert "agent labeled" in messages[0] and "'customer.tier'" in messages[0]


@pytest.mark.parametrize(
    ("value", "words"),
    [("2nd=team", "'2nd' is not a label"), ("a=b;a=c", "the label 'a' is duplicated"), ("=team", "'' is not a label")],
)
def test_labels_that_are_not_valid_are_errors(value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        local_environment().get_config().set(SkillOptions.METRICS_LABELS, value)


class Desk(Agent):
    name = "desk"
    session = "key"
    route: Any = Route("tier", {"gold": "large"}, default="small")

    @chat_model_setup
    @staticmethod
    def first() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="offline.setup")

    @chat_model_setup
    @staticmethod
    def small() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="offline.setup", tools=["shared"])

    @chat_model_setup
    @staticmethod
    def large() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="offline.setup")

    @tool
    def shared(self) -> str:
        """Is for all."""
        return "shared"

    @tool
    def special(self) -> str:
        """Is not for all."""
        return "special"


def scripted(**answers: Any) -> dict[str, ScriptedModel]:
    return {
        name: ScriptedModel(answers.get(name, lambda request, said=name: said)) for name in ("first", "small", "large")
    }


def test_each_event_goes_to_the_model_of_its_field() -> None:
    env = local_environment()
    events = [{"tier": "gold"}, {"tier": "new"}, {"other": 1}]
    with Desk.override(model=scripted()):
        assert env.from_list(events).apply(Desk).to_list() == ["large", "small", "small"]


async def test_conversations_stay_with_their_models_when_the_route_changes(
    open_agent: OpenAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each model has its own conversation. All share the state of the key."""
    models = scripted()

    class Remembers(Desk):
        async def on_event(self, event: Any, ctx: AgentContext) -> Any:
            ctx.state["turns"] = ctx.state.get("turns", 0) + 1
            return f"{await ctx.chat(event)} {ctx.state['turns']}"

    env = local_environment()
    events = [{"k": 1, "tier": "gold", "n": 1}, {"k": 1, "tier": "new", "n": 2}, {"k": 1, "tier": "gold", "n": 3}]
    with Remembers.override(model=models):
        outputs = env.from_list(events, key_selector=lambda event: event["k"]).apply(Remembers).to_list()
    assert outputs == ["large 1", "small 2", "large 3"]
    read = {name: [str(m.content) for m in models[name].requests[-1].messages] for name in ("large", "small")}
    assert len(read["small"]) == 1 and '"n": 2' in read["small"][0].replace('"n":2', '"n": 2')
    assert len(read["large"]) == 3 and read["large"][1] == "large"


async def test_calls_of_the_agent_s_code_follow_the_route_unless_they_name_a_model(open_agent: OpenAgent) -> None:
    class Calls(Desk):
        async def on_event(self, event: Any, ctx: AgentContext) -> Any:
            named = await ctx.chat("x", model="first")
            return [named, await ctx.chat("y"), await ctx.call_tool("special")]

    with Calls.override(model=scripted()):
        output = local_environment().from_list([{"tier": "gold"}, {"tier": "new"}]).apply(Calls)
        assert output.to_list() == [["first", "large", "special"]]
        # The model of the other event does not have this tool.
        (failed,) = output.to_list("errors")
    assert "special" in failed["error"]


def test_an_agent_that_is_a_tool_routes_by_what_it_is_asked() -> None:
    class Question(BaseModel):
        tier: str

    class Asked(Desk):
        name = "asked"
        session = "event"
        input_type = Question

    class Asks(Agent):
        name = "asks"
        model = "offline"

        @agent_tool
        def ask(self) -> Agent:
            "Answers."
            return Asked()

    env = local_environment()
    asks = ScriptedModel([calls(call("ask", tier="gold")), "done"])
    with Asks.override(model=asks), Asked.override(model=scripted()):
        assert env.from_list(["x"]).apply(Asks).to_list() == ["done"]
    assert asks.requests[1].messages[-1].content == "large"


@pytest.mark.parametrize(
    ("route", "said"),
    [
        (Route("tier", {"gold": "larg"}, default="small"), "unknown chat model 'larg' in the route of agent .*'large'"),
        (Route("tier", {"gold": "large"}, default="none"), "unknown chat model 'none' in the route of agent"),
        ({"field": "tier", "models": {"gold": "large"}}, "route: default is missing"),
        ({"field": "tier", "default": "small"}, "route: models is missing"),
        ({"models": {"gold": "large"}, "default": "small"}, "route: field is missing"),
        ({"field": "tier", "models": {"gold": "large"}, "default": "small", "els": 1}, "unknown key 'els' in .*route"),
        ({"field": "tier", "models": ["large"], "default": "small"}, "route.models: is of type list"),
        ({"field": "tier", "models": {"gold": 3}, "default": "small"}, "route.models.gold: is 3"),
        ({"field": "tier", "models": {(1,): "large"}, "default": "small"}, "route.models: .*tuple"),
        ({"field": 3, "models": {"gold": "large"}, "default": "small"}, "route.field: is of type int"),
        ("large", "route: is of type str"),
        (lambda self, event: "large", "route: is of type"),
    ],
)
def test_a_route_that_cannot_be_used_is_refused_at_submit(route: Any, said: str) -> None:
    agent = type("Wrong", (Desk,), {"route": route})
    with pytest.raises(SkillsError, match=said) as caught:
        compile_plan(agent)
    assert isinstance(caught.value, (ConfigError, PlanError, UnknownNameError))


def test_a_tool_may_have_the_name() -> None:
    class Maps(Agent):
        model = "offline"

        @tool
        def route(self, start: str) -> str:
            """Finds a way."""
            return start

    plan = compile_plan(Maps)
    assert plan.route is None and [of["name"] for of in plan.tools] == ["route"]


def test_the_plan_and_its_descriptions_have_the_route() -> None:
    plan = compile_plan(Desk)
    assert AgentPlan.from_json(plan.to_json()) == plan
    assert plan.describe()["route"] == {"field": "tier", "models": {"gold": "large"}, "default": "small"}
    assert "by tier: gold → large, else small" in plan.summary()


def test_yaml_has_the_same(tmp_path: Path) -> None:
    file = tmp_path / "desk.yaml"
    file.write_text(
        "chat_model_setups:\n  large: {clazz: offline.setup}\n  small: {clazz: offline.setup}\n"
        "route: {field: level, models: {1: large, true: large}, default: small}\n"
    )
    agent = load_agent_yaml(file)
    plan = AgentPlan.from_json(compile_plan(agent).to_json())
    assert plan.route is not None
    assert [plan.route.choose({"level": level}) for level in (1, True, 2)] == ["large", "large", "small"]
    file.write_text("model: offline\nroute: {field: level, models: {1: model}}\n")
    with pytest.raises(ConfigError, match=r"desk.yaml:2.*default"):
        load_agent_yaml(file)
