"""Agents over lists: the same turn loop without a cluster."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Annotated, Any, ClassVar

import pytest

from flink_skills import Agent, AgentContext, AgentsExecutionEnvironment, ConfigError, PlanError, TurnError, tool
from flink_skills.agents import compile_plan, run_list
from flink_skills.options import SkillConfig
from flink_skills.testing import ScriptedModel
from tests.kit.local import local_environment
from tests.kit.waiting import wait_until


class Counts(Agent):
    async def on_event(self, event: Any, ctx: Any) -> Any:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        if event == "bad":
            raise ValueError("bad")
        ctx.emit_to("seen", event)
        return [ctx.key, ctx.turn, ctx.state["n"]]


def test_order_state_and_tags() -> None:
    env = local_environment()
    output = env.from_list(["ab", "bc", "ac", "bad"], key_selector=lambda text: text[0]).apply(Counts())
    assert output.to_list() == [["a", 1, 1], ["b", 1, 1], ["a", 2, 2]]
    assert output.to_list("seen") == ["ab", "bc", "ac"]
    (error,) = output.to_list("errors")
    assert (error["key"], error["turn"], error["error"]) == ("b", 2, "ValueError: bad")
    assert env.execute() is None


def test_state_of_a_failed_turn_is_dropped() -> None:
    assert local_environment().from_list(["x", "bad", "y"]).apply(Counts).to_list() == [[None, 1, 1], [None, 3, 2]]


class Forgets(Agent):
    """Counts events, and erases the key."""

    async def on_event(self, event: str, ctx: AgentContext) -> int:
        seen: int = ctx.state.get("seen", 0) + 1
        ctx.state["seen"] = seen
        if event.startswith("erase"):
            ctx.forget()
        if event.endswith("fails"):
            raise ValueError(event)
        return seen


def test_a_turn_erases_its_key_at_its_end_if_it_does_not_fail() -> None:
    events = ["a", "erase fails", "b", "erase", "c"]
    assert local_environment().from_list(events).apply(Forgets).to_list() == [1, 2, 3, 1]


def test_an_agent_over_a_list_has_no_control_stream() -> None:
    with pytest.raises(ConfigError, match=r"control\(…\) needs from_datastream\(\) or from_table\(\)"):
        local_environment().from_list(["a"]).apply(Forgets).control([])


def test_field_name_as_key_selector() -> None:
    env = local_environment()
    assert env.from_list([{"k": 1}], "k").apply(Counts).to_list() == [[1, 1, 1]]
    output = env.from_list([{"k": 1}], "q").apply(Counts)
    (record,) = output.to_list("errors")
    assert "no key field 'q'" in record["error"] and "it has: k" in record["error"]
    assert env.from_list([{"k": 1}, {"q": 2}], "q").apply(Counts).to_list() == [[2, 1, 1]]


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("kk", "the event has no key field 'kk': did you mean 'k'?"),
        (lambda event: event["q"], "the key selector failed"),
    ],
)
@pytest.mark.parametrize("kind", [list, iter])
def test_a_key_that_no_event_has_is_an_error_instead_of_no_outputs(key: Any, problem: str, kind: Any) -> None:
    output = local_environment().from_list(kind([{"k": 1}, {"k": 2}]), key).apply(Counts)
    with pytest.raises(ConfigError, match="from_list: none of the 2 events has a usable key: ") as caught:
        output.to_list()
    assert problem in str(caught.value)
    assert len(output.to_list("errors")) == 2


def test_on_error_fail() -> None:
    with pytest.raises(TurnError, match="bad"):
        local_environment({"skills.turn.on-error": "fail"}).from_list(["x", "bad"]).apply(Counts).to_list()


@pytest.mark.row("B23")
@pytest.mark.parametrize(
    ("late", "what"),
    [
        (lambda env: env.add_skills_from_paths("/opt/skills"), "add_skills_from_paths"),
        (lambda env: env.add_skills_from_resources("skills"), "add_skills_from_resources"),
        (lambda env: env.add_skills_from_urls("https://example.org/skills.zip"), "add_skills_from_urls"),
        (lambda env: env.get_config().set("skills.turn.on-error", "fail"), "option skills.turn.on-error"),
    ],
)
def test_options_and_sources_after_apply_are_errors(
    late: Callable[[AgentsExecutionEnvironment], object], what: str
) -> None:
    env = local_environment()
    events = env.from_list(["x"])
    # An agent that cannot be compiled closes nothing: the mistake may be corrected.
    with pytest.raises(PlanError):
        events.apply(Agent)
    env.get_config().set("skills.turn.timeout", "1 min")
    events.apply(Counts)
    with pytest.raises(ConfigError, match=f"^{what}: agent .*Counts is compiled already and would not have it; set "):
        late(env)
    events.apply(Counts, name="second")


def test_inside_of_a_running_loop() -> None:
    async def notebook() -> Any:
        return local_environment().from_list(["x"]).apply(Counts).to_list()

    assert asyncio.run(notebook()) == [[None, 1, 1]]


class KeepsNothing(Agent):
    contexts: ClassVar[list[weakref.ref[Any]]] = []
    alive: ClassVar[list[int]] = []

    async def on_event(self, event: Any, ctx: Any) -> Any:
        self.contexts.append(weakref.ref(ctx))
        gc.collect()
        self.alive.append(sum(of() is not None for of in self.contexts))
        return await ctx.step("s", lambda: event)


def test_turns_that_ended_are_forgotten_while_others_of_their_key_run() -> None:
    local_environment().from_list([*range(10)]).apply(KeepsNothing).to_list()
    assert max(KeepsNothing.alive) <= 2


def test_the_classes_of_the_caller_are_used_as_they_are() -> None:
    @dataclasses.dataclass
    class Order:
        id: str

    class Desk(Agent):
        seen: ClassVar[list[Any]] = []

        async def on_event(self, event: Any, ctx: Any) -> Any:
            Desk.seen.append(event)
            return Order(event.id + "!")

    def attributes() -> list[dict[str, Any]]:
        # Without what pickle notes down in a class for itself.
        return [{name: of for name, of in vars(cls).items() if name != "__slotnames__"} for cls in (Order, Desk)]

    before = attributes()
    env = local_environment()
    event = Order("a")
    for turns in (1, 2):
        (answer,) = env.from_list([event]).apply(Desk).to_list()
        assert type(answer) is Order
        assert answer == Order("a!")
        assert Desk.seen == [event] * turns
        assert Desk.seen[-1] is event
    assert attributes() == before


class Careless(Agent):
    """Passes a secret of the job to a tool."""

    @tool
    @staticmethod
    def echo(text: str) -> str:
        """Return the text."""
        return text

    async def on_event(self, event: Any, ctx: Any) -> Any:
        return await ctx.call_tool("echo", text="key pl4nted-key")


def test_events_of_a_list_contain_no_secret_of_the_plan() -> None:
    options = {"skills.source.options": '{"s3": {"secret": "pl4nted-key"}}', "skills.events.content": "full"}
    plan = compile_plan(Careless, config=SkillConfig(options))
    outputs = run_list(plan, [("k", "e")], record=True)
    assert [value for tag, value in outputs if not tag] == ["key pl4nted-key"]
    events = str([value for tag, value in outputs if tag])
    assert "key ***" in events and "pl4nted" not in events


class Wrong(Agent):
    name = "wrong"
    model = "offline"

    async def on_event(self, event: Any, ctx: Any) -> Any:
        if event == "unawaited step":
            ctx.step("load", lambda: 1)
        if event == "unawaited chat":
            ctx.chat("hello")
        if event == "coroutine":
            return ctx.step("load", lambda: 1)
        if event == "raises":
            raise KeyError("k")
        return "done"


def run(agent: Any, events: Any, key: Any = None) -> Any:
    return local_environment().from_list(events, key).apply(agent)


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        ("unawaited step", "ctx.step('load') was called and never awaited, so it did nothing: write 'await"),
        ("unawaited chat", "ctx.chat was called and never awaited"),
        ("coroutine", "ctx.step('load') was called and never awaited"),
        ("raises", "KeyError: 'k'"),
    ],
)
def test_a_mistake_is_an_error_record_of_its_event_alone(event: str, problem: str) -> None:
    output = run(Wrong, [event, "fine"])
    assert output.to_list() == ["done"]
    (record,) = output.to_list("errors")
    assert problem in record["error"]
    assert record["event"] == event


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (lambda event: object(), "a key is object"),
        (lambda event: event["missing"], "the key selector failed: TypeError"),
        (lambda event: 10**5000, "has no text"),
    ],
    ids=["type", "raises", "digits"],
)
def test_an_event_without_a_usable_key_is_an_error_record(key: Any, problem: str) -> None:
    output = run(Wrong, ["fine", "bad"], lambda event: key(event) if event == "bad" else event)
    assert output.to_list() == ["done"]
    (record,) = output.to_list("errors")
    assert problem in record["error"]


def test_the_first_error_can_be_raised_with_its_traceback() -> None:
    output = run(Wrong, ["fine", "raises", "unawaited chat"])
    with pytest.raises(KeyError, match="k") as caught:
        output.to_list(raise_on_error=True)
    shown = "".join(traceback.format_exception(caught.type, caught.value, caught.tb))
    assert "in on_event" in shown
    assert "no running event loop" not in shown
    assert len(output.to_list("errors")) == 2


class Steps(Agent):
    model = "offline"
    ended: ClassVar[list[float]] = []

    async def on_event(self, event: Any, ctx: Any) -> Any:
        found = [await ctx.step("add", lambda a, *, b: a + b, 1, b=event), ctx.state.setdefault("turns", 0)]
        ctx.state["turns"] += 1
        self.ended.append(time.monotonic())
        return found


def test_a_step_has_keyword_arguments() -> None:
    assert run(Steps, [2, 3]).to_list() == [[3, 0], [4, 1]]


def test_an_idle_key_begins_anew_after_its_time() -> None:
    Steps.ended.clear()

    def events() -> Iterator[int]:
        yield 1
        # Longer than the time to live.
        wait_until(lambda: Steps.ended and time.monotonic() > Steps.ended[-1] + 1)
        yield 1

    assert local_environment({"skills.session.ttl": "200 ms"}).from_list(events()).apply(Steps).to_list() == [
        [2, 0],
        [2, 0],
    ]


def test_execute_without_a_stream_says_what_to_call() -> None:
    env = local_environment()
    output = env.from_list(["x"]).apply(Wrong)
    with pytest.raises(ConfigError, match=r"call to_list\(\)"):
        env.execute()
    assert output.to_list() == ["done"]
    assert env.execute() is None


class Described(Agent):
    name = "described"
    model = "offline"

    @tool
    def count(self, limit: Annotated[int, "How many at most."]) -> int:
        """Count things."""
        return limit


def test_a_text_of_an_annotation_describes_an_argument() -> None:
    model = ScriptedModel(["done"])
    with Described.override(model=model):
        run(Described, ["x"]).to_list(raise_on_error=True)
    (spec,) = [spec for spec in model.requests[0].tools if spec.name == "count"]
    assert spec.parameters["properties"]["limit"]["description"] == "How many at most."


def test_a_failed_turn_of_a_job_that_fails_has_its_cause() -> None:
    with pytest.raises(TurnError, match="KeyError") as caught:
        local_environment({"skills.turn.on-error": "fail"}).from_list(["raises"]).apply(Wrong).to_list()
    assert isinstance(caught.value.__cause__, KeyError)
