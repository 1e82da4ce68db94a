"""Control entries, refused events and unknown names in a worker, spoken to as the bridge does."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from flink_skills import Agent, agent_tool, tool
from flink_skills.errors import TurnError
from tests.worker.bridge import Body, Bridge, frames, many, sized


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    made = Bridge(tmp_path_factory.mktemp("worker"))
    yield made
    made.stop()


@pytest.fixture
def shared(worker: Bridge) -> Bridge:
    """A worker that other tests use too, with an operator of the test alone."""
    worker.operator += 1
    return worker


class Pays(Agent):
    """Calls its own tool."""

    @tool
    @staticmethod
    def pay(cents: int) -> int:
        """Pay."""
        return cents

    async def on_event(self, event: Any, ctx: Any) -> Any:
        try:
            return await ctx.call_tool("pay", cents=event)
        except TurnError as error:
            return str(error)


def test_a_worker_denies_the_calls_of_a_refused_tool_and_reports_unknown_names(shared: Bridge) -> None:
    def refuse(name: str, how: str = "error") -> None:
        entry = {"action": "refuse", "target": "tool", "name": name, "agent": "", "reason": "it pays twice"}
        checked = [b"tool", name.encode(), how.encode()]
        head = struct.pack(">II", shared.operator, 1)
        shared.send(frames.CONTROL, head + sized(json.dumps([entry]).encode()) + many(checked))

    def pays() -> Any:
        shared.turn(1, 7)
        return shared.end()["outputs"][0][1]

    shared.open(Pays)
    assert pays() == 7
    refuse("pay")
    assert "pay was not called: tool pay is refused: it pays twice." in pays()
    refuse("pya", "log")
    assert pays() == 7
    assert "'pya' matches no tool of agent" in shared.stderr()
    refuse("pya")
    kind, body = shared.receive()
    assert (kind, struct.unpack_from(">IQ", body)) == (frames.CONTROLLED, (shared.operator, 0))
    assert Body(body, 12).take().decode().endswith("Did you mean 'pay'?")


class Expert(Agent):
    """Answers questions."""

    name = "expert"

    async def on_event(self, event: Any, ctx: Any) -> Any:
        return f"answer to {event}"


class Asks(Agent):
    """Calls another agent."""

    @agent_tool(name="ask")
    def expert(self) -> Agent:
        return Expert()

    async def on_event(self, event: Any, ctx: Any) -> Any:
        try:
            return await ctx.call_tool("ask", request=event)
        except TurnError as error:
            return str(error)


def test_a_worker_denies_the_calls_of_a_refused_sub_agent(shared: Bridge) -> None:
    shared.open(Asks, plan=4)
    entry = {"action": "pause", "target": "agent", "name": "expert", "agent": "", "reason": "it guesses"}
    shared.turn(1, "why", plan=4)
    assert shared.end()["outputs"] == [("", "answer to why")]
    shared.send(frames.CONTROL, struct.pack(">II", shared.operator, 4) + sized(json.dumps([entry]).encode()) + many([]))
    shared.turn(2, "why", plan=4)
    assert "agent expert is paused: it guesses. Continue without it." in shared.end()["outputs"][0][1]


@pytest.mark.row("K17")
def test_a_refused_event_becomes_an_error_record_also_if_failed_turns_fail_the_job(shared: Bridge) -> None:
    shared.open(Expert, plan=3, **{"skills.turn.on-error": "fail"})
    head = struct.pack(">IIQBIqQQ", shared.operator, 3, 1, 16, 0, 0, 1, 5)
    body = sized(b'"k"') + sized(pickle.dumps("a")) + many([]) + many([]) + sized(b"it loops")
    shared.send(frames.TURN, head + body)
    end = shared.end()
    ((tag, record),) = end["outputs"]
    assert (end["status"], end["op"], tag, record["event"]) == (1, 0, "errors", "a")
    assert record["error"].startswith("RefusedError: a control record refuses the events of agent")
    assert record["error"].endswith(": it loops")
