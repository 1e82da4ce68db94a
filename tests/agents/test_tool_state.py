"""Tools, tool sets and approvers that know the event, the conversation and the state of their turn."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from flink_skills import Agent, AgentContext, BaseToolSet, ToolContext, tool, tool_set
from flink_skills.agents import Session, TurnStatus, decode
from flink_skills.testing import call, calls
from flink_skills.tools.calling import ApprovalRequest
from tests.kit.agents import OpenAgent
from tests.kit.models import Script


class Cart(Agent):
    """Two tools change its state, and one fails after a change."""

    model = "scripted:m"
    session = "key"
    ran: ClassVar[list[str]] = []
    seen: ClassVar[list[Any]] = []

    def session_selector(self, event: Any) -> str:
        return str(event["desk"])

    @tool
    async def add(self, article: str, context: ToolContext) -> int:
        """Add an article."""
        self.ran.append(article)
        context.state.setdefault("articles", []).append(article)
        context.state[article] = context.event["desk"]
        return len(context.state["articles"])

    @tool
    async def clear(self, context: ToolContext) -> str:
        """Clear the cart."""
        context.state = {}
        return "empty"

    @tool
    async def spoil(self, context: ToolContext) -> str:
        """Change the state, and fail."""
        context.state["spoiled"] = True
        raise ValueError("no")

    @tool
    async def store(self, context: ToolContext) -> str:
        """Store an object that no state can have."""
        context.state.setdefault("it", []).append(object())
        return "stored"

    @tool
    async def look(self, context: ToolContext) -> str:
        """Look at the turn."""
        self.seen.append((context.event, context.timestamp, context.session_id, dict(context.state)))
        return "seen"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        for name, arguments in event["calls"]:
            await ctx.call_tool(name, arguments)
        if event.get("fails"):
            raise RuntimeError("the turn fails")
        return dict(ctx.state)


def event(*names: Any, **more: Any) -> dict[str, Any]:
    found = [(name, {}) if isinstance(name, str) else name for name in names]
    return {"desk": "a", "calls": found, **more}


def add(article: str) -> tuple[str, dict[str, str]]:
    return "add", {"article": article}


async def test_a_tool_knows_event_timestamp_conversation_and_state(open_agent: OpenAgent) -> None:
    bench = await open_agent(Cart)
    Cart.seen.clear()
    given = event(add("tea"), "look")
    outcome = await bench.turn(given, timestamp=17)
    assert outcome.outputs == (("", {"articles": ["tea"], "tea": "a"}),)
    assert Cart.seen == [(given, 17, "a", {"articles": ["tea"], "tea": "a"})]
    assert outcome.session.state == {"articles": ["tea"], "tea": "a"}


async def test_changes_are_in_the_journal_and_a_replay_has_the_same_state(open_agent: OpenAgent) -> None:
    bench = await open_agent(Cart)
    given = event(add("tea"), add("milk"), "clear", add("salt"))
    whole = await bench.turn(given)
    assert whole.session.state == {"articles": ["salt"], "salt": "a"}
    journal = list(bench.journal)
    for done in range(len(journal) + 1):
        # The worker was killed after each of the steps.
        Cart.ran.clear()
        again = await bench.turn(given, journal=journal[:done], crashes=1)
        assert again.outputs == whole.outputs
        assert again.session.state == whole.session.state
        assert len(Cart.ran) == sum(decode(entry)["id"].startswith("tool:add") for entry in journal[done:])


async def test_changes_of_a_failed_call_and_of_a_failed_turn_are_dropped(open_agent: OpenAgent) -> None:
    bench = await open_agent(Cart)
    spoiled = await bench.turn(event(add("tea"), "spoil"))
    assert spoiled.status == TurnStatus.FAILED
    assert spoiled.session.state is None
    failed = await bench.turn(event(add("tea"), fails=True))
    assert failed.status == TurnStatus.FAILED
    assert failed.session.state is None


async def test_a_state_that_cannot_be_stored_is_an_error_of_the_call(open_agent: OpenAgent) -> None:
    bench = await open_agent(Cart)
    outcome = await bench.turn(event("store"))
    assert outcome.status == TurnStatus.FAILED
    assert "tool store: the tool left a state that cannot be stored" in outcome.message


async def test_calls_of_one_response_change_the_state_in_their_order(open_agent: OpenAgent, script: Script) -> None:
    class Asked(Cart):
        async def on_event(self, event: Any, ctx: AgentContext) -> Any:
            await ctx.chat("go")
            return dict(ctx.state)

    script([calls(call("add", article="tea"), call("add", article="milk")), "done"])
    bench = await open_agent(Asked)
    outcome = await bench.turn({"desk": "a"})
    # Each had a copy of the state before the response: of one value that both change, the last change remains.
    assert outcome.session.state == {"articles": ["milk"], "tea": "a", "milk": "a"}
    effects = [decode(entry)["r"] for entry in bench.journal if "/t" in decode(entry)["id"]]
    assert len(effects) == 2


class Visits(BaseModel):
    count: int = 0
    vip: bool = False


def discount(article: str) -> int:
    """Discount of an article."""
    return 1


class Lounge(BaseToolSet):
    name = "lounge"

    async def get_tools(self, context: ToolContext) -> list[Any]:
        assert isinstance(context.state, Visits)
        return [discount] if context.state.vip else []


class Clerk(Agent):
    model = "scripted:m"
    state_type = Visits
    asked: ClassVar[list[Any]] = []

    @tool_set
    def at_hand(self) -> list[Any]:
        return [Lounge()]

    @tool
    async def visit(self, context: ToolContext) -> int:
        """Count a visit."""
        context.state.count += 1
        context.state.vip = context.state.count > 1
        return int(context.state.count)

    def approve(self, request: ApprovalRequest) -> Any:
        self.asked.append((request.event, request.timestamp, request.state.count))
        return request.state.count < 2 or "too many visits"


async def test_tool_sets_and_approvers_decide_by_the_typed_state(open_agent: OpenAgent, script: Script) -> None:
    model = script([calls(call("visit")), "one", calls(call("visit")), "two", calls(call("visit")), "three"])
    bench = await open_agent(Clerk, **{"skills.tools.approve": ["visit"]})
    Clerk.asked.clear()
    session, offered = Session(), []
    for number in (1, 2, 3):
        outcome = await bench.turn(f"event {number}", number=number, session=session, timestamp=number)
        session = outcome.session
        offered.append([spec.name for spec in model.requests[-1].tools])
    assert session.state == {"count": 2, "vip": True}
    assert [("discount" in names) for names in offered] == [False, False, True]
    assert Clerk.asked == [("event 1", 1, 0), ("event 2", 2, 1), ("event 3", 3, 2)]


def test_outside_turns_the_state_is_an_empty_dict() -> None:
    context = ToolContext()
    context.state["a"] = 1
    assert context.state == {"a": 1}
    with pytest.raises(AttributeError):
        context.sate  # noqa: B018  # type: ignore[attr-defined]
