"""Approvals and tools that wait, attempt by attempt, and the answers of a local run."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from flink_skills import (
    Agent,
    AgentContext,
    ApprovalRequest,
    SkillConfig,
    ToolContext,
    ToolResult,
    later,
    tool,
)
from flink_skills.agents import TurnStatus, compile_plan, decode, run_events
from flink_skills.models import ModelRequest, ToolMessage
from flink_skills.testing import call, calls
from tests.kit.agents import OpenAgent
from tests.kit.local import local_environment
from tests.kit.models import Script
from tests.kit.waits import WaitBench, WaitOperation

OPEN, CLOSE = WaitOperation.OPEN, WaitOperation.CLOSE


class Desk(Agent):
    """Pays, with an approval."""

    model = "scripted:m"
    approve_tools = ("pay",)
    message: ClassVar[str] = "go"
    asked: ClassVar[list[int]] = []
    paid: ClassVar[list[Any]] = []
    lost: ClassVar[asyncio.Event | None] = None

    @tool(idempotent=False)
    async def pay(self, cents: int, context: ToolContext) -> str:
        """Pay."""
        self.paid.append(cents)
        if self.lost is not None:
            self.lost.set()
            await asyncio.Event().wait()
        return f"paid {cents}"

    def approve(self, request: ApprovalRequest) -> Any:
        self.asked.append(request.arguments["cents"])
        return later("Pay?", on_timeout="approve") if request.arguments["cents"] < 600 else False

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return await ctx.chat(type(self).message)


@pytest.fixture(autouse=True)
def nothing_happened() -> Iterator[None]:
    Desk.asked.clear()
    Desk.paid.clear()
    Desk.message, Desk.lost = "go", None
    Shop.calls = 0
    yield
    Desk.lost = None


def pays(cents: list[int]) -> Any:
    """Return the script of a model that pays, and answers with the result."""

    def answers(request: ModelRequest) -> Any:
        last = request.messages[-1]
        return last.content if isinstance(last, ToolMessage) else calls(call("pay", cents=cents.pop(0)))

    return answers


async def test_a_call_begins_after_its_approval_and_a_stop_is_not_a_lost_call(
    open_agent: OpenAgent, script: Script
) -> None:
    script(pays([500]))
    bench = WaitBench(await open_agent(Desk, **{"skills.tool.lost-calls": "refuse"}))
    assert (await bench.turn()).status == TurnStatus.WAITING
    assert [decode(entry)["id"] for entry in bench.journal] == ["chat#0/m0", "chat#0/t0.0/approval"]
    approved = bench.answer("approval", {"approved": True, "by": "ann"})
    Desk.lost = asyncio.Event()
    turn = asyncio.ensure_future(bench.turn(approved))
    await asyncio.wait_for(Desk.lost.wait(), 30)
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    Desk.lost = None
    assert [decode(entry)["id"] for entry in bench.journal][2:] == ["chat#0/t0.0/approval", "chat#0/t0.0"]
    outcome = await bench.turn(crashes=1)
    assert "may have been called with these arguments before the worker was lost" in outcome.outputs[0][1]
    assert (Desk.asked, Desk.paid, bench.count(OPEN)) == ([500], [500], 1)


async def test_a_crash_while_a_call_waits_for_approval_is_not_a_lost_call(
    open_agent: OpenAgent, script: Script
) -> None:
    script(pays([500]))
    bench = WaitBench(await open_agent(Desk, **{"skills.tool.lost-calls": "refuse"}))
    await bench.turn()
    outcome = await bench.turn(bench.answer("approval", True), crashes=1)
    assert outcome.outputs == (("", "paid 500"),)
    assert (Desk.asked, Desk.paid) == ([500], [500])


async def test_another_call_after_a_restart_has_its_own_decision(open_agent: OpenAgent, script: Script) -> None:
    script(pays([500, 900]))
    bench = WaitBench(await open_agent(Desk))
    await bench.turn()
    Desk.message = "changed"
    outcome = await bench.turn()
    # Without a decision of approve(), the earlier question would be asked about this call.
    assert outcome.outputs[0] == ("", "pay was not called: the call was not approved")
    assert (Desk.asked, Desk.paid) == ([500, 900], [])
    assert (bench.count(OPEN), len(bench.open)) == (1, 1)
    assert [of["status"] for tag, of in outcome.outputs if tag == "waits"] == ["cancelled"]


async def test_changed_arguments_have_a_note_for_the_model_without_a_name_as_well(
    open_agent: OpenAgent, script: Script
) -> None:
    script(pays([500]))
    bench = WaitBench(await open_agent(Desk))
    await bench.turn()
    outcome = await bench.turn(bench.answer("approval", {"approved": True, "arguments": '{"cents": 100}'}))
    said = outcome.outputs[0][1]
    assert said.startswith('a person approved the call with other arguments, and it ran with these: {"cents": 100}')
    assert (said.endswith("paid 100"), Desk.paid) == (True, [100])


@pytest.mark.parametrize(
    "wrong", ["perhaps", {"approved": None}, {"approved": True, "arguments": "{"}, {"approved": True, "arguments": [1]}]
)
async def test_a_wrong_decision_is_rejected_and_nothing_runs(open_agent: OpenAgent, script: Script, wrong: Any) -> None:
    script(pays([500]))
    bench = WaitBench(await open_agent(Desk))
    await bench.turn()
    assert (await bench.turn(bench.answer("approval", wrong))).status == TurnStatus.WAITING
    assert (Desk.paid, bench.count(WaitOperation.REJECT), len(bench.open)) == ([], 1, 1)


def earlier(bench: WaitBench, arguments: dict[str, Any], answer: Any = None) -> None:
    """Make the open approval one that a release without canonical arguments asked, and ended with ``answer``."""
    entry = decode(bench.journal[-1])
    entry["w"]["a"] = arguments
    asked = [entry["w"].get(name) for name in "knqpta"]
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
    entry["fp"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    version = bench.journal[-1][:1]
    bench.journal[-1] = version + json.dumps(entry).encode()
    if answer is not None:
        ended = {**entry, "r": {"s": "answered", "at": 0, "v": answer}}
        del ended["w"]
        bench.journal.append(version + json.dumps(ended).encode())


@pytest.mark.parametrize("asked", [{"cents": "500"}, {"cents": 500.0}, {"cents": 500}])
async def test_a_question_of_a_release_without_canonical_arguments_is_not_asked_again(
    open_agent: OpenAgent, script: Script, asked: dict[str, Any]
) -> None:
    script(lambda request: _paid(request, asked))
    bench = WaitBench(await open_agent(Desk))
    await bench.turn()
    earlier(bench, asked)
    outcome = await bench.turn(bench.answer("approval", True))
    assert outcome.outputs == (("", "paid 500"),)
    assert (Desk.paid, bench.count(OPEN)) == ([500], 1)


async def test_a_question_about_another_call_is_not_taken_for_this_one(open_agent: OpenAgent, script: Script) -> None:
    script(lambda request: _paid(request, {"cents": 500}))
    bench = WaitBench(await open_agent(Desk))
    await bench.turn()
    earlier(bench, {"cents": 400})
    await bench.turn(bench.answer("approval", True))
    assert Desk.paid == []


@pytest.mark.parametrize("answer", [{"approved": "on"}, {"approved": 1}, {"approved": True, "arguments": {"c": 1}}])
async def test_an_answer_that_an_earlier_release_accepted_pays_nothing(
    open_agent: OpenAgent, script: Script, answer: Any
) -> None:
    script(lambda request: _paid(request, {"cents": 500}))
    bench = WaitBench(await open_agent(Desk))
    await bench.turn()
    earlier(bench, {"cents": 500}, answer)
    outcome = await bench.turn()
    assert "the stored answer cannot be used" in outcome.outputs[0][1]
    assert Desk.paid == []


def _paid(request: ModelRequest, arguments: dict[str, Any]) -> Any:
    last = request.messages[-1]
    return last.content if isinstance(last, ToolMessage) else calls(call("pay", **arguments))


class Shop(Agent):
    """Has tools that wait."""

    model = "scripted:m"
    calls: ClassVar[int] = 0

    @tool
    async def order(self, context: ToolContext) -> ToolResult:
        """Order, and fail once after the answer."""
        answer = await context.wait("stock", answer_type=int)
        type(self).calls += 1
        return ToolResult(f"call {self.calls}: {answer}", is_error=self.calls == 1, retryable=self.calls == 1)

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        async def slow() -> None:
            await asyncio.sleep(0.5)

        found, _ = await asyncio.gather(ctx.call_tool("order"), ctx.step("slow", slow))
        return found


@pytest.mark.parametrize("stops", [True, False])
async def test_a_call_that_is_retried_receives_the_answer_again(open_agent: OpenAgent, stops: bool) -> None:
    bench = WaitBench(await open_agent(Shop, **{"skills.tool.retries": 1}))
    if stops:
        await bench.turn()
        outcome = await bench.turn(bench.answer("stock", 3))
    else:
        turn = asyncio.ensure_future(bench.turn())
        await bench.asked("stock")
        bench.running.answer(bench.answer("stock", 3))
        outcome = await turn
    assert outcome.outputs == (("", "call 2: 3"),)
    assert (bench.count(OPEN), bench.count(CLOSE)) == (1, 1)


async def test_the_time_limit_of_a_tool_does_not_run_while_it_waits(open_agent: OpenAgent) -> None:
    Shop.calls = 1
    bench = WaitBench(await open_agent(Shop, **{"skills.tool.timeout": "0.2 s"}))
    # A second step keeps the turn in the worker for longer than the limit.
    assert (await bench.turn()).status == TurnStatus.WAITING
    assert (await bench.turn(bench.answer("stock", 3))).outputs == (("", "call 2: 3"),)


# Answers of a local run


class Asks(Agent):
    """Asks for a number."""

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return await ctx.wait("number", question="How many?", answer_type=int)


def test_a_rejected_answer_at_the_end_of_the_inputs_does_not_hang_the_run() -> None:
    output = local_environment().from_list([{"k": "a"}], "k").apply(Asks)
    output.answers([{"k": "a", "wait_id": "number", "answer": "many"}], "k")
    errors = [of["error"] for of in output.to_list("errors")]
    assert ["is not usable" in errors[0], "before the inputs of the job ended" in errors[1]] == [True, True]


async def test_a_person_who_gives_a_wrong_answer_is_asked_again() -> None:
    async def ask(question: dict[str, Any]) -> Any:
        asked.append(question["question"])
        return answers.pop(0)

    asked: list[str] = []
    answers: list[Any] = ["many", 3]
    plan = compile_plan(Asks, config=SkillConfig({}))
    outcomes = [outcome async for _, outcome in run_events(plan, [("a", {})], ask=ask)]
    assert ("", 3) in outcomes[0].outputs
    assert asked == ["How many?", "How many?"]


class Booth(Agent):
    """Has a tool with one place."""

    model = "scripted:m"

    @tool(max_concurrent=1)
    async def vote(self, name: str, context: ToolContext) -> str:
        """Vote."""
        return str(await context.wait(name))

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return await asyncio.gather(*(ctx.call_tool("vote", name=name) for name in "ab"))


async def test_a_call_that_waits_leaves_its_place_to_others(open_agent: OpenAgent) -> None:
    bench = WaitBench(await open_agent(Booth))
    assert (await bench.turn()).status == TurnStatus.WAITING
    assert [of.name for of in bench.open.values()] == ["a", "b"]
    outcome = await bench.turn(bench.answer("b", 2))
    assert outcome.status == TurnStatus.WAITING
    outcome = await bench.turn(bench.answer("a", 1))
    assert outcome.outputs == (("", ["1", "2"]),)


class Crowd(Agent):
    """Counts the calls of a tool that run at the same time."""

    most: ClassVar[int] = 0
    now: ClassVar[int] = 0

    @tool(max_concurrent=1)
    async def enter(self) -> str:
        """Enter."""
        Crowd.now += 1
        Crowd.most = max(Crowd.most, Crowd.now)
        await asyncio.sleep(0)
        Crowd.now -= 1
        return "done"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return await asyncio.gather(*(ctx.call_tool("enter") for _ in range(3)))


def test_a_limit_of_one_is_a_limit() -> None:
    assert local_environment().from_list([1]).apply(Crowd).to_list() == [["done"] * 3]
    assert Crowd.most == 1
