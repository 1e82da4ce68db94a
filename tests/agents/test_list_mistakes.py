"""``from_list`` is the cluster in small: mistakes of a job have the same records, and tests can raise their errors."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

import pytest

from flink_skills import Agent, AgentsExecutionEnvironment, ConfigError, TurnError, tool
from flink_skills.testing import ScriptedModel
from tests.kit.waiting import wait_until


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
    return AgentsExecutionEnvironment.get_execution_environment().from_list(events, key).apply(agent)


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

    env = AgentsExecutionEnvironment.get_execution_environment()
    env.get_config().set("skills.session.ttl", "200 ms")
    assert env.from_list(events()).apply(Steps).to_list() == [[2, 0], [2, 0]]


def test_execute_without_a_stream_says_what_to_call() -> None:
    env = AgentsExecutionEnvironment.get_execution_environment()
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
    env = AgentsExecutionEnvironment.get_execution_environment()
    env.get_config().set("skills.turn.on-error", "fail")
    with pytest.raises(TurnError, match="KeyError") as caught:
        env.from_list(["raises"]).apply(Wrong).to_list()
    assert isinstance(caught.value.__cause__, KeyError)
