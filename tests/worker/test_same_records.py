"""Mistakes of an agent have the same error record in ``from_list`` and in a worker of a job."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from flink_skills import Agent, AgentEvent, Prompt, TurnError, prompt
from flink_skills.agents import key_failure_text, key_to_text
from tests.kit.local import local_environment
from tests.worker.bridge import Bridge, frames
from tests.worker.test_worker import running


class Mistaken(Agent):
    """Makes the mistake that its event names."""

    name = "mistaken"
    model = "offline"

    @prompt
    @staticmethod
    def template() -> Prompt:
        return Prompt(user="Order {ordr}")

    async def on_event(self, event: Any, ctx: Any) -> Any:
        return await getattr(self, event["do"])(ctx)

    async def forgotten_await(self, ctx: Any) -> Any:
        ctx.step("load", int)
        return "done"

    async def forgotten_await_of_a_chat(self, ctx: Any) -> Any:
        ctx.chat("hello")

    async def returned_coroutine(self, ctx: Any) -> Any:
        return asyncio.sleep(0)

    async def exception(self, ctx: Any) -> Any:
        raise KeyError("k")

    async def exception_without_a_text(self, ctx: Any) -> Any:
        raise ValueError

    async def exit(self, ctx: Any) -> Any:
        raise SystemExit(3)

    async def cancelled(self, ctx: Any) -> Any:
        raise asyncio.CancelledError

    async def recursion(self, ctx: Any) -> Any:
        return await self.recursion(ctx)

    async def answer_of_a_wrong_type(self, ctx: Any) -> Any:
        return await ctx.chat("hello", output_type=int)

    async def output_that_cannot_travel(self, ctx: Any) -> Any:
        return threading.Lock()

    async def time_limit(self, ctx: Any) -> Any:
        await asyncio.sleep(600)

    async def step_that_raises(self, ctx: Any) -> Any:
        return await ctx.step("load", _raises)

    async def step_result_that_cannot_be_stored(self, ctx: Any) -> Any:
        return await ctx.step("load", threading.Lock)

    async def unknown_tool(self, ctx: Any) -> Any:
        return await ctx.call_tool("prise", {})

    async def unknown_model(self, ctx: Any) -> Any:
        return await ctx.chat("hello", model="modle")

    async def unknown_field_of_a_prompt(self, ctx: Any) -> Any:
        return await ctx.chat()

    async def refused_value_in_the_state(self, ctx: Any) -> Any:
        ctx.state["x"] = threading.Lock()

    async def refused_value_in_a_list_of_the_state(self, ctx: Any) -> Any:
        ctx.state["x"] = []
        ctx.state["x"].append(threading.Lock())

    async def attribute_of_the_context(self, ctx: Any) -> Any:
        ctx.number = 1


def _raises() -> int:
    raise OSError("the disk is full")


@dataclass(frozen=True)
class Case:
    """A mistake: the method of the agent, a part of the record's error, options of the job, and the key."""

    do: str
    error: str
    options: Mapping[str, Any] = field(default_factory=dict)
    key: Any = "k"
    key_problem: str = ""


CASES = [
    Case(
        "exception",
        "no key field 'kay'",
        key=["kay"],
        key_problem="the event has no key field 'kay': did you mean 'k'? it has: do, k",
    ),
    Case(
        "exception",
        "the key selector failed",
        key=lambda event: event["a"],
        key_problem="the key selector failed: KeyError: 'a'",
    ),
    Case("forgotten_await", "ctx.step('load') was called and never awaited"),
    Case("forgotten_await_of_a_chat", "ctx.chat was called and never awaited"),
    Case("returned_coroutine", "cannot pickle 'coroutine' object"),
    Case("exception", "KeyError: 'k'"),
    Case("exception_without_a_text", "ValueError"),
    Case("exit", "the agent called sys.exit(3)"),
    Case("cancelled", "cancelled"),
    Case("recursion", "RecursionError"),
    Case("answer_of_a_wrong_type", "gave no usable answer"),
    Case("output_that_cannot_travel", "lock"),
    Case("time_limit", "1 s", {"skills.turn.timeout": "1 s"}),
    Case("step_that_raises", "OSError: the disk is full"),
    Case("step_result_that_cannot_be_stored", "lock"),
    Case("unknown_tool", "prise"),
    Case("unknown_model", "modle"),
    Case("unknown_field_of_a_prompt", "unknown field 'ordr'"),
    Case("refused_value_in_the_state", "ctx.state['x']"),
    Case("refused_value_in_a_list_of_the_state", "ctx.state['x'][0]"),
    Case("attribute_of_the_context", "ctx.number cannot be set"),
]


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    with running(tmp_path_factory.mktemp("worker")) as made:
        made.with_events = True
        yield made


def output_of_a_list(case: Case, event: Any) -> Any:
    """Return the outputs of a turn in this process."""
    return local_environment(case.options).from_list([event], case.key).apply(Mistaken)


def end_in_a_worker(bridge: Bridge, plan: int, case: Case, event: Any) -> dict[str, Any]:
    """Return the end of a turn in a worker process. Its outputs include those of its steps."""
    kind, message = bridge.open(Mistaken, plan=plan, **case.options)
    assert kind == frames.OPENED, message
    key = key_failure_text(case.key_problem) if case.key_problem else key_to_text("v")
    bridge.turn(plan, event, plan=plan, key=key)
    end = bridge.end()
    end["outputs"] = [*(output for step in bridge.step_outputs for output in step), *end["outputs"]]
    return end


def shown(events: list[AgentEvent]) -> list[tuple[Any, ...]]:
    """Return the parts of a turn's events that are the same in each run, which times are not."""
    return [(of["kind"], of["status"], of["error"], of["key"], of["agent"]) for of in events if of["key"] is not None]


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{case.do}: {case.error}" for case in CASES])
def test_a_mistake_has_the_same_record_in_a_list_and_in_a_worker(worker: Bridge, number: int) -> None:
    case = CASES[number]
    event = {"do": case.do, "k": "v"}
    end = end_in_a_worker(worker, number + 1, case, event)
    output = output_of_a_list(case, event)
    assert [output for tag, output in end["outputs"] if tag == "errors"] == output.to_list("errors")
    assert [output for tag, output in end["outputs"] if tag == ""] == []
    if not case.key_problem:  # to_list() raises if no event has a key.
        assert output.to_list() == []
    events = [of for tag, of in end["outputs"] if tag == "events"]
    assert shown(events) == shown(output.to_event_list())
    assert [of["kind"] for of in events][-1] == "turn"
    (record,) = output.to_list("errors")
    assert case.error in record["error"]
    assert (record["event"], record["key"]) == (event, None if case.key_problem else "v")


def test_a_failed_turn_that_fails_the_job_has_the_same_message(worker: Bridge) -> None:
    case = Case("exception", "KeyError: 'k'", {"skills.turn.on-error": "fail"})
    event = {"do": case.do, "k": "v"}
    end = end_in_a_worker(worker, len(CASES) + 1, case, event)
    with pytest.raises(TurnError) as caught:
        output_of_a_list(case, event).to_list()
    assert end["message"] == str(caught.value) == "agent mistaken, key \"v\", turn 1 failed: KeyError: 'k'"
