"""``ctx.state``: what it stores, what it rejects, and what comes back in the next turn."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import json
import re
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from flink_skills import Agent, SkillConfig, TurnError, agent_tool
from flink_skills.agents import Session, TurnStatus
from flink_skills.errors import ConfigError
from tests.kit.agents import OpenAgent
from tests.kit.local import local_environment

DAY = dt.datetime(2024, 3, 1, 12, 30, 5, 7)
VALUES = [
    None,
    True,
    3,
    2.5,
    "text",
    [1, [2, "three"]],
    {"a": {"b": [1]}},
    float("inf"),
    DAY,
    DAY.replace(tzinfo=dt.timezone.utc),
    DAY.replace(tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
    dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
    DAY.date(),
    DAY.time(),
    dt.timedelta(days=-1, microseconds=3),
    decimal.Decimal("1.50"),
    uuid.UUID(int=7),
    b"\x00bytes",
    (1, (2, DAY)),
    {"x", "y", "z"},
    frozenset({1, 2}),
    {1: "one", 2: {3: DAY}},
    [{"at": DAY, "sums": [decimal.Decimal(1)]}],
    collections.Counter("aab"),
    collections.OrderedDict(b=1, a=2),
    collections.defaultdict(int, a=1),
    # What the state itself writes for other values.
    {"datetime": [["x"]], "$datetime": "2024-03-01"},
    {"st": {"tuple": [[]]}, "s": 1},
    "2024-03-01T12:30:05",
]


def same(value: Any) -> Any:
    """A form of a value that tells types and zones apart."""
    if isinstance(value, dict):
        return (type(value), [(same(key), same(item)) for key, item in value.items()])
    if isinstance(value, (list, tuple)):
        return (type(value), [same(item) for item in value])
    if isinstance(value, (set, frozenset)):
        return (type(value), sorted(map(repr, value)))
    return (type(value), repr(value))


class Storing(Agent):
    async def on_event(self, event: Any, ctx: Any) -> Any:
        if event is not None:
            ctx.state["value"] = event()
        return [ctx.state["value"]]


async def next_state(bench: Any, event: Any, session: Session | None = None, number: int = 1) -> tuple[Any, Session]:
    """The outcome of a turn, and the session as a savepoint has it."""
    outcome = await bench.turn(event, number=number, session=session or Session())
    return outcome, Session.decode(outcome.change.chunks) if outcome.change.chunks else outcome.session


@pytest.mark.each_python
@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}")
async def test_a_value_comes_back_as_what_it_was(open_agent: OpenAgent, value: Any) -> None:
    bench = await open_agent(Storing)
    outcome, session = await next_state(bench, lambda: value)
    assert outcome.status == TurnStatus.DONE, outcome.message
    json.dumps(session.state, allow_nan=False)  # a person can read it
    for number in (2, 3):
        outcome, session = await next_state(bench, None, session, number)
        (((_, [found]),),) = (outcome.outputs,)
        assert same(found) == same(value)


@pytest.mark.each_python
async def test_a_state_that_did_not_change_is_not_written_again(open_agent: OpenAgent) -> None:
    bench = await open_agent(Storing)
    _, session = await next_state(bench, lambda: {"at": {DAY, DAY.date()}, "n": (1, float("nan"))})
    outcome = await bench.turn(None, number=2, session=session)
    assert outcome.change.chunks == ()


@pytest.mark.each_python
async def test_bytes_need_not_be_text(open_agent: OpenAgent) -> None:
    bench = await open_agent(Storing)
    _, session = await next_state(bench, lambda: b"\x00\xff")
    outcome, _ = await next_state(bench, None, session, 2)
    assert outcome.outputs == (("", [b"\x00\xff"]),)


class Color(enum.Enum):
    RED = "red"


class Level(str, enum.Enum):
    HIGH = "high"


@dataclasses.dataclass
class Order:
    id: str


class OrderModel(BaseModel):
    id: str


Point = collections.namedtuple("Point", "x y")

REJECTED: list[tuple[Callable[[], Any], str, str]] = [
    (object, "", "object"),
    (lambda: [1, {"at": {"deep": object()}}], r"\[1\]\['at'\]\['deep'\]", "object"),
    (lambda: (1, object()), r"\[1\]", "object"),
    (lambda: lambda: 1, "", "function"),
    (lambda: Color.RED, "", r"store its \.value"),
    (lambda: Level.HIGH, "", r"store its \.value"),
    (lambda: Order("a"), "", r"dataclasses\.asdict\(value\), or declare a state_type"),
    (lambda: OrderModel(id="a"), "", r"value\.model_dump\(\), or declare a state_type"),
    (lambda: Point(1, 2), "", r"value\._asdict\(\)"),
    (lambda: collections.deque([1]), "", r"list\(value\)"),
    (lambda: {"a": {None: 1}}, r"\['a'\]", "str\\(key\\)"),
    (lambda: {"a": {1: 1, "1": 2}}, r"\['a'\]", "str\\(key\\)"),
    (lambda: 10**5000, "", "too many digits"),
    (lambda: decimal.Decimal("NaN"), "", "Decimal"),
]


@pytest.mark.each_python
@pytest.mark.parametrize(("value", "path", "fix"), REJECTED)
def test_what_cannot_be_stored_raises_where_it_is_assigned(value: Callable[[], Any], path: str, fix: str) -> None:
    raised: list[Exception] = []

    class Assigns(Agent):
        async def on_event(self, event: Any, ctx: Any) -> Any:
            for assign in (
                lambda: ctx.state.__setitem__("x", value()),
                lambda: ctx.state.update(x=value()),
                lambda: ctx.state.setdefault("x", value()),
                lambda: ctx.state.__ior__({"x": value()}),
                lambda: setattr(ctx, "state", {"x": value()}),
            ):
                try:
                    assign()
                except TurnError as error:
                    raised.append(error)
            return dict(ctx.state)

    assert local_environment().from_list([1]).apply(Assigns).to_list() == [{}], "nothing of it is in the state"
    assert len(raised) == 5
    for error in raised:
        assert re.search(rf"^ctx\.state\['x'\]{path} (is|has) .*{fix}", str(error)), str(error)


class MutatesLater(Agent):
    async def on_event(self, event: Any, ctx: Any) -> Any:
        items = ctx.state.setdefault("orders", [])
        items.append({"id": object() if event == "bad" else event})
        ctx.emit("an output")
        return len(items)


@pytest.mark.each_python
def test_what_is_added_to_a_container_later_fails_the_turn_with_its_path() -> None:
    output = local_environment().from_list(["a", "bad", "b"]).apply(MutatesLater)
    assert output.to_list() == ["an output", 1, "an output", 2]
    (error,) = output.to_list("errors")
    assert error["error"].startswith("TurnError: ctx.state['orders'][1]['id'] is of type object")


@pytest.mark.each_python
def test_a_state_that_contains_itself_fails_the_turn() -> None:
    class Contains(Agent):
        async def on_event(self, event: Any, ctx: Any) -> Any:
            ctx.state["a"] = []
            ctx.state["a"].append(ctx.state["a"])

    (error,) = local_environment().from_list([1]).apply(Contains).to_list("errors")
    assert "contains itself" in error["error"]


class Loose(BaseModel):
    at: dt.datetime | None = None
    anything: Any = None
    more: dict[str, Any] = {}
    order: Order | None = None


@dataclasses.dataclass
class LooseData:
    at: dt.datetime | None = None
    anything: Any = None
    more: dict[str, Any] = dataclasses.field(default_factory=dict)
    order: Order | None = None


@pytest.mark.each_python
@pytest.mark.parametrize("kind", [Loose, LooseData])
@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}")
async def test_fields_of_a_state_type_come_back_as_what_they_were(
    open_agent: OpenAgent, kind: type[Any], value: Any
) -> None:
    class Typed(Agent):
        state_type = kind

        async def on_event(self, event: Any, ctx: Any) -> Any:
            if event == "set":
                ctx.state.at, ctx.state.anything, ctx.state.order = DAY, value, Order("a")
                ctx.state.more["in"] = [value]
            return ctx.state

    bench = await open_agent(Typed)
    outcome, session = await next_state(bench, "set")
    assert outcome.status == TurnStatus.DONE, outcome.message
    outcome, _ = await next_state(bench, "read", session, 2)
    state = outcome.outputs[0][1]
    assert (type(state), state.at, state.order) == (kind, DAY, Order("a"))
    assert same([state.anything, state.more]) == same([value, {"in": [value]}])


@pytest.mark.each_python
@pytest.mark.parametrize("kind", [Loose, LooseData])
@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), r"ctx\.state\.anything"),
        (Order("a"), r"ctx\.state\.anything is of type .*Order"),
        ([OrderModel(id="a")], r"ctx\.state\.anything\[0\] is of type .*OrderModel"),
        (SecretStr("secret"), r"ctx\.state\.anything is a secret"),
    ],
)
def test_a_field_that_would_not_come_back_fails_the_turn(kind: type[Any], value: Any, path: str) -> None:
    class Typed(Agent):
        state_type = kind

        async def on_event(self, event: Any, ctx: Any) -> Any:
            ctx.state.anything = value

    with pytest.raises(TurnError, match=path):
        raise TurnError(local_environment().from_list([1]).apply(Typed).to_list("errors")[0]["error"])


@pytest.mark.each_python
def test_the_state_can_be_replaced_by_its_own_type_only() -> None:
    class Replaces(Agent):
        state_type = Loose

        async def on_event(self, event: Any, ctx: Any) -> Any:
            ctx.state = event
            return ctx.state.anything

    output = local_environment().from_list([Loose(anything=1), {"anything": 2}, [3], {"more": 4}]).apply(Replaces)
    assert output.to_list() == [1, 2]
    wrong, misfit = (record["error"] for record in output.to_list("errors"))
    assert "ctx.state is a Loose, the agent's state_type, and was set to a list" in wrong
    assert "more: Input should be a valid dictionary" in misfit


class Helper(Agent):
    async def on_event(self, event: Any, ctx: Any) -> Any:
        ctx.state["seen"] = (*ctx.state.get("seen", ()), DAY)
        return "done"


class Sharing(Agent):
    async def on_event(self, event: Any, ctx: Any) -> Any:
        await ctx.call_tool("helper", request="go")
        return ctx.state["seen"]

    @agent_tool(share_state=True)
    @staticmethod
    def helper() -> type[Agent]:
        return Helper


@pytest.mark.each_python
def test_an_agent_that_shares_a_state_shares_its_types() -> None:
    output = local_environment().from_list([1, 2]).apply(Sharing)
    assert output.to_list() == [(DAY,), (DAY, DAY)]


@pytest.mark.each_python
async def test_states_of_earlier_releases_are_read_as_they_are(open_agent: OpenAgent) -> None:
    bench = await open_agent(Storing)
    state = {"value": {"$datetime": "2024-03-01", "at": "2024-03-01T12:30:05", "list": [1]}}
    session = Session.decode([b"\x01" + json.dumps({"s": state}).encode()])
    outcome, _ = await next_state(bench, None, session, 2)
    assert outcome.outputs[0][1] == [state["value"]]
    assert outcome.change.chunks == ()


LARGE = "x" * 3000


class Large(Agent):
    async def on_event(self, event: Any, ctx: Any) -> Any:
        if event == "step":
            return len(await ctx.step("load", lambda: LARGE))
        if event == "steps":
            for number in range(9):
                await ctx.step(f"load{number}", lambda: LARGE[:400])
        if event == "state":
            ctx.state["text"] = LARGE
        return "done"


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        ("step", "step step:load#0 returned 3,0"),
        ("steps", "and with it the journal of the turn has more than skills.turn.max-size = 2,048"),
        ("state", "the state and the conversations of the key have 3,0"),
    ],
)
async def test_what_is_too_large_fails_the_turn(open_agent: OpenAgent, event: str, problem: str) -> None:
    bench = await open_agent(Large, **{"skills.turn.max-size": "2 kb"})
    outcome = await bench.turn(event)
    assert outcome.status == TurnStatus.FAILED
    assert problem in outcome.message
    assert (await bench.turn("well")).status == TurnStatus.DONE


def test_the_limit_has_a_limit() -> None:
    with pytest.raises(ConfigError, match="write a size of 1 to 67108864 bytes"):
        SkillConfig({"skills.turn.max-size": "1 gb"})
