"""``ctx.config`` and ``ctx.metrics``, in agents and in their tools."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from flink_skills import (
    Agent,
    AgentContext,
    AgentPlan,
    AgentsExecutionEnvironment,
    ConfigError,
    SkillConfig,
    SkillOptions,
    ToolContext,
    agent_tool,
    tool,
)
from flink_skills.agents import TurnStatus, compile_plan, open_plan
from flink_skills.testing import ScriptedModel, call, calls
from tests.kit.agents import OpenAgent

SECRET = "t0k3n-of-acme"


class Clerk(Agent):
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
        return Clerk()

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
    env = AgentsExecutionEnvironment.get_execution_environment()
    for key, value in {"skills.user.limit": 5, **options}.items():
        env.get_config().set(key, value)
    return env


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
