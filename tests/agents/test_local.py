"""Agents over lists: the same turn loop without a cluster."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from flink_skills import Agent, AgentsExecutionEnvironment, ConfigError, PlanError, TurnError, tool
from flink_skills.agents import compile_plan, run_list
from flink_skills.options import SkillConfig


class Counts(Agent):
    async def on_event(self, event: Any, ctx: Any) -> Any:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        if event == "bad":
            raise ValueError("bad")
        ctx.emit_to("seen", event)
        return [ctx.key, ctx.turn, ctx.state["n"]]


def test_order_state_and_tags() -> None:
    env = AgentsExecutionEnvironment.get_execution_environment()
    output = env.from_list(["ab", "bc", "ac", "bad"], key_selector=lambda text: text[0]).apply(Counts())
    assert output.to_list() == [["a", 1, 1], ["b", 1, 1], ["a", 2, 2]]
    assert output.to_list("seen") == ["ab", "bc", "ac"]
    (error,) = output.to_list("errors")
    assert (error["key"], error["turn"], error["error"]) == ("b", 2, "ValueError: bad")
    assert env.execute() is None


def test_state_of_a_failed_turn_is_dropped() -> None:
    env = AgentsExecutionEnvironment.get_execution_environment()
    assert env.from_list(["x", "bad", "y"]).apply(Counts).to_list() == [[None, 1, 1], [None, 3, 2]]


def test_field_name_as_key_selector() -> None:
    env = AgentsExecutionEnvironment.get_execution_environment()
    assert env.from_list([{"k": 1}], "k").apply(Counts).to_list() == [[1, 1, 1]]
    output = env.from_list([{"k": 1}], "q").apply(Counts)
    (record,) = output.to_list("errors")
    assert "no key field 'q'" in record["error"] and "it has: k" in record["error"]


def test_on_error_fail() -> None:
    env = AgentsExecutionEnvironment.get_execution_environment()
    env.get_config().set("skills.turn.on-error", "fail")
    with pytest.raises(TurnError, match="bad"):
        env.from_list(["x", "bad"]).apply(Counts).to_list()


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
    env = AgentsExecutionEnvironment.get_execution_environment()
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
        env = AgentsExecutionEnvironment.get_execution_environment()
        return env.from_list(["x"]).apply(Counts).to_list()

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
    env = AgentsExecutionEnvironment.get_execution_environment()
    env.from_list([*range(10)]).apply(KeepsNothing).to_list()
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
    env = AgentsExecutionEnvironment.get_execution_environment()
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
