"""Approvals that wait for a person, and tools and agents as tools that wait."""

from __future__ import annotations

from typing import Any

import pytest

from flink_skills import (
    Agent,
    AgentContext,
    ApprovalRequest,
    ToolContext,
    agent_tool,
    later,
    tool,
)
from flink_skills.models import ModelRequest, ToolMessage
from flink_skills.testing import ScriptedModel, call, calls
from tests.kit.local import local_environment

PAID: list[tuple[str, int]] = []


@pytest.fixture(autouse=True)
def nothing_is_paid() -> None:
    PAID.clear()


class Desk(Agent):
    """Pays refunds, after a person has approved them."""

    name = "desk"
    model = "offline"
    approve_tools = ("pay",)
    asked: int = 0

    @tool(idempotent=False)
    @staticmethod
    def pay(order: str, cents: int) -> str:
        """Pay a refund."""
        PAID.append((order, cents))
        return f"paid {cents} for {order}"

    def approve(self, request: ApprovalRequest) -> Any:
        Desk.asked += 1
        return later("Refund?", timeout=ON_TIMEOUT.get("timeout", 30), on_timeout=ON_TIMEOUT.get("then", "refuse"))


ON_TIMEOUT: dict[str, Any] = {}


def run(agent: Any, answers: list[dict[str, Any]], cents: int = 500) -> Any:
    """Run an order with answers. Those without a wait get the id of the question, which is the same in each run."""
    if any("wait_id" not in of for of in answers):
        asked = run(agent, [], cents).to_wait_list()[0]
        answers = [{"wait_id": asked["wait_id"], **of} for of in answers]
        Desk.asked = 0
        PAID.clear()

    def script(request: ModelRequest) -> Any:
        last = request.messages[-1]
        return last.content if isinstance(last, ToolMessage) else calls(call("pay", order="A-1", cents=cents))

    model = ScriptedModel(script)
    with agent.override(model=model):
        output = local_environment().from_list([{"order": "A-1"}], "order").apply(agent).answers(answers, "order")
        output.to_list()
    return output


def answer(**fields: Any) -> dict[str, Any]:
    return {"order": "A-1", **fields}


def test_an_approved_call_runs_once_and_the_approver_is_asked_once() -> None:
    output = run(Desk, [answer(approved=True, by="ann")])
    assert output.to_list() == ["paid 500 for A-1"]
    assert PAID == [("A-1", 500)]
    assert Desk.asked == 1
    asked, ended = output.to_wait_list()
    assert (asked["kind"], asked["tool"], asked["arguments"]) == ("approval", "pay", {"order": "A-1", "cents": 500})
    assert (ended["status"], ended["by"]) == ("answered", "ann")


@pytest.mark.parametrize("value", [True, {"approved": True}, '{"approved": true}'])
def test_a_decision_is_a_bool_a_record_or_its_json(value: Any) -> None:
    output = run(Desk, [answer(answer=value, by="ann")])
    assert output.to_list() == ["paid 500 for A-1"]
    assert output.to_wait_list()[1]["by"] == "ann"


def test_the_model_receives_the_reason_of_a_refusal() -> None:
    output = run(Desk, [answer(approved=False, reason="too late")])
    assert output.to_list() == ["pay was not called: the call was not approved: too late"]
    assert PAID == []


@pytest.mark.parametrize("arguments", [{"order": "A-1", "cents": 100}, '{"order": "A-1", "cents": 100}'])
def test_the_call_runs_with_the_arguments_that_a_person_has_changed(arguments: Any) -> None:
    output = run(Desk, [answer(approved=True, arguments=arguments, by="ann")])
    said = output.to_list()[0]
    assert said.startswith("ann approved the call with other arguments")
    assert said.endswith("paid 100 for A-1")
    assert PAID == [("A-1", 100)]


def test_an_answer_that_is_no_decision_is_rejected_and_the_next_one_counts() -> None:
    output = run(Desk, [answer(approved="perhaps"), answer(approved=True)])
    assert output.to_list() == ["paid 500 for A-1"]
    assert "is not usable: approved" in output.to_list("errors")[0]["error"]


def test_an_approval_accepts_the_id_of_its_question_only() -> None:
    output = run(Desk, [answer(wait_id="approval", approved=True)])
    assert PAID == []
    assert output.to_list() == [
        "pay was not called: the call was not approved: There was no decision before the deadline."
    ]
    (problem,) = output.to_list("errors")
    assert "the answer to wait 'approval' is not used. An approval accepts its id only" in problem["error"]
    assert problem["event"] == {"order": "A-1", "wait_id": "approval", "approved": True}


def test_an_answer_to_one_question_is_none_to_a_question_about_another_amount() -> None:
    asked = run(Desk, [], cents=500).to_wait_list()[0]
    output = run(Desk, [answer(wait_id=asked["wait_id"], approved=True)], cents=900000)
    assert PAID == []
    assert "No turn has asked for it" in output.to_list("errors")[0]["error"]
    assert [of["status"] for of in output.to_wait_list()] == ["open", "input_ended"]


@pytest.mark.parametrize(
    ("then", "said"),
    [
        ("refuse", "pay was not called: the call was not approved: There was no decision before the deadline."),
        ("approve", "paid 500 for A-1"),
    ],
)
def test_a_call_without_a_decision_in_time(monkeypatch: pytest.MonkeyPatch, then: str, said: str) -> None:
    monkeypatch.setitem(ON_TIMEOUT, "then", then)
    monkeypatch.setitem(ON_TIMEOUT, "timeout", 0.05)
    assert run(Desk, []).to_list() == [said]


def test_a_missing_decision_can_fail_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ON_TIMEOUT, "then", "fail")
    monkeypatch.setitem(ON_TIMEOUT, "timeout", 0.05)
    output = run(Desk, [])
    assert output.to_list() == []
    assert "had no decision in time" in output.to_list("errors")[0]["error"]
    assert PAID == []


def test_the_audit_trail_has_who_decided() -> None:
    events = [
        event for event in run(Desk, [answer(approved=True, by="ann")]).to_event_list() if event["kind"] == "wait"
    ]
    assert [event["action"] for event in events] == ["open", "answered"]
    assert '"by":"ann"' in events[1]["detail"]
    assert len({event["id"] for event in events}) == 2


class Clerk(Agent):
    """Has a tool that waits."""

    name = "clerk"
    model = "offline"

    @tool
    @staticmethod
    async def pay(order: str, cents: int, context: ToolContext) -> str:
        """Pay after the warehouse has confirmed."""
        confirmed = await context.wait("warehouse", {"order": order}, answer_type=bool)
        PAID.append((order, cents))
        return f"paid {cents} for {order}, confirmed: {confirmed}"


def test_a_tool_waits_and_runs_again_from_its_beginning() -> None:
    output = run(Clerk, [{"order": "A-1", "wait_id": "warehouse", "answer": True}])
    assert output.to_list() == ["paid 500 for A-1, confirmed: True"]
    assert PAID == [("A-1", 500)]


def test_another_call_of_a_tool_asks_another_question() -> None:
    asked = run(Clerk, [], cents=500).to_wait_list()[0]
    assert run(Clerk, [], cents=500).to_wait_list()[0]["wait_id"] == asked["wait_id"]
    output = run(Clerk, [{"order": "A-1", "wait_id": asked["wait_id"], "answer": True}], cents=900000)
    assert output.to_wait_list()[0]["payload"] == asked["payload"]
    assert PAID == []
    (unused,) = output.to_list("errors")
    assert "No turn has asked for it" in unused["error"]


class Checker(Agent):
    """An agent as a tool that waits."""

    name = "checker"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return f"checked: {await ctx.wait('check', answer_type=str)}"


class Boss(Agent):
    """Calls an agent that waits."""

    name = "boss"

    @agent_tool
    @staticmethod
    def check() -> type[Agent]:
        """Check an order."""
        return Checker

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return await ctx.call_tool("check", request="A-1")


def test_an_agent_that_is_a_tool_waits_and_the_turn_waits_with_it() -> None:
    output = local_environment().from_list([{"order": "A-1"}], "order").apply(Boss)
    output.answers([{"order": "A-1", "wait_id": "check", "answer": "fine"}], "order")
    assert output.to_list() == ["checked: fine"]
