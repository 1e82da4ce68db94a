"""Tools, tool sets and approvers that know the event, the conversation and the state of their turn."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from flink_skills import (
    Agent,
    AgentContext,
    AgentPlan,
    AgentsExecutionEnvironment,
    BaseToolSet,
    ConfigError,
    SkillConfig,
    SkillOptions,
    ToolContext,
    agent_tool,
    tool,
    tool_set,
)
from flink_skills.agents import Session, TurnStatus, compile_plan, decode, open_plan
from flink_skills.testing import ScriptedModel, call, calls
from flink_skills.tools.calling import ApprovalRequest
from tests.kit.agents import OpenAgent
from tests.kit.local import local_environment
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


SECRET = "t0k3n-of-acme"


class Configured(Agent):
    """Called by the desk."""

    name = "clerk"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        ctx.metrics.counter("refunds").inc(10)
        return ctx.config.get("skills.user.limit")


class Desk(Agent):
    """Reads and counts in its code, in a step, in a tool and in another agent."""

    name = "desk"
    model = "offline"

    @tool
    def refund(self, context: ToolContext) -> str:
        """Refund."""
        context.metrics.counter("refunds").inc()
        return str(context.config.get("skills.user.limit"))

    @agent_tool
    def clerk(self) -> Agent:
        """Ask the clerk."""
        return Configured()

    def counted(self, ctx: AgentContext) -> None:
        ctx.metrics.group("tenant", "acme").counter("steps").inc()

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        ctx.metrics.gauge("backlog").set(event)
        ctx.metrics.histogram("amount").update(event / 2)
        await ctx.step("count", self.counted, ctx)
        if event < 0:
            raise ValueError("as asked")
        answers = [await ctx.call_tool("refund"), await ctx.call_tool("clerk", request="x")]
        return [*answers, ctx.config.get("skills.user.limit")]


def environment(**options: Any) -> AgentsExecutionEnvironment:
    return local_environment({"skills.user.limit": 5, **options})


def test_an_agent_its_tools_and_its_agents_read_and_count() -> None:
    output = environment().from_list([1, 2, 3]).apply(Desk)
    assert output.to_list(raise_on_error=True) == [["5", "5", "5"]] * 3
    metrics = output.to_metrics()
    assert metrics.value("refunds", agent="desk") == 3
    assert metrics.value("refunds", agent="clerk") == 30
    assert metrics.value("steps", tenant="acme") == 3
    assert metrics.value("backlog") == 3
    assert sorted(metrics.value("amount")) == [0.5, 1.0, 1.5]


def test_a_tool_of_a_model_reads_and_counts() -> None:
    class Models(Desk):
        on_event = Agent.on_event  # type: ignore[assignment]

    script = ScriptedModel([calls(call("refund")), "done"])
    with Models.override(model=script):
        output = environment().from_list(["x"]).apply(Models)
        assert output.to_list(raise_on_error=True) == ["done"]
    assert script.requests[1].messages[-1].content == "5"
    assert output.to_metrics().value("refunds") == 1


async def test_code_counts_on_each_attempt_and_a_finished_step_once(open_agent: OpenAgent) -> None:
    bench = await open_agent(Desk, **{"skills.user.limit": "5"})
    first = await bench.turn(2)
    again = await bench.turn(2, journal=tuple(bench.journal))
    assert first.status == again.status == TurnStatus.DONE
    metrics = bench.runtime.telemetry.custom_metrics
    assert metrics.value("steps", tenant="acme") == 1
    assert metrics.value("refunds", agent="desk") == 1
    assert metrics.value("amount") == [1.0, 1.0]


def test_a_failed_turn_has_counted() -> None:
    output = environment().from_list([-2]).apply(Desk)
    assert len(output.to_list("errors")) == 1
    assert output.to_metrics().value("backlog") == -2


def test_a_wrong_name_fails_the_turn_alone() -> None:
    class Wrong(Agent):
        async def on_event(self, event: Any, ctx: AgentContext) -> Any:
            ctx.metrics.counter(event).inc()
            return event

    output = environment().from_list(["a-b", "ab"]).apply(Wrong)
    assert output.to_list() == ["ab"]
    assert "metric name 'a-b' is invalid" in output.to_list("errors")[0]["error"]


def test_a_tool_outside_of_a_turn_has_both() -> None:
    context = ToolContext()
    context.metrics.counter("refunds").inc()
    assert context.metrics.counter("refunds").value == 1
    assert context.config.get(SkillOptions.TURN_TIMEOUT) == 600.0


class Reader(Agent):
    name = "reader"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        value = ctx.config.get(f"skills.user.{event}")
        logging.getLogger("flink_skills.reader").error("read %s", value)
        return len(value)


def test_the_plan_shows_no_value_of_a_custom_key() -> None:
    plan = compile_plan(Reader, config=SkillConfig({"skills.user.key": SECRET, "skills.turn.timeout": "5 s"}))
    sealed, secrets = plan.seal()
    shown = json.dumps([sealed.to_json(), plan.describe(), plan.summary()]) + repr(plan)
    assert SECRET not in shown
    assert "skills.user.key" in json.dumps(plan.describe())
    read = AgentPlan.from_json(json.loads(json.dumps(sealed.to_json()))).unseal(json.loads(json.dumps(secrets)))
    assert read.options == plan.options


async def test_a_reference_is_read_where_the_agent_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_text(SECRET + "\n", encoding="utf-8")
    options = {"skills.user.key": f"${{file:{file}}}", "skills.user.url": "https://${env:ACME_HOST}/$${x}"}
    plan = compile_plan(Reader, config=SkillConfig(options))
    assert SECRET not in json.dumps([plan.seal()[0].to_json(), plan.seal()[1]])
    monkeypatch.setenv("ACME_HOST", "acme.example")
    runtime = await open_plan(plan, scratch_dir=str(tmp_path / "scratch"))
    try:
        config = runtime.job_config
        # Before the code reads it as well.
        assert runtime.without_hidden(f"sent {SECRET}") == "sent [hidden]"
        assert runtime.begun_hidden("sent t0k3") == 4
        assert config.get("skills.user.key") == SECRET
        assert config.get("skills.user.url") == "https://acme.example/${x}"
        file.write_text("renewed-" + SECRET, encoding="utf-8")
        assert config.get("skills.user.key") == "renewed-" + SECRET
        assert runtime.without_hidden(f"renewed-{SECRET} at acme.example") == "[hidden] at [hidden]"
        file.unlink()
        with pytest.raises(ConfigError, match=r"option skills\.user\.key: the file .* does not exist"):
            config.get("skills.user.key")
    finally:
        await runtime.close()


def test_events_do_not_show_what_a_reference_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Telling(Agent):
        model = "offline"

        async def on_event(self, event: Any, ctx: AgentContext) -> Any:
            return await ctx.chat("key " + ctx.config.get("skills.user.key"))

    monkeypatch.setenv("ACME_KEY", SECRET)
    env = environment(**{"skills.user.key": "${env:ACME_KEY}", "skills.events.content": "full"})
    output = env.from_list(["x"]).apply(Telling)
    assert output.to_list(raise_on_error=True) == ["No skill fits this event."]
    shown = repr(output.to_event_list())
    assert "[hidden]" in shown and SECRET not in shown
