"""Names of tools in options of a job with several agents: one agent has the tool, or the job fails."""

from __future__ import annotations

from typing import Any

import pytest
from pyflink.common import Types

from flink_skills import Agent, AgentContext, AgentsExecutionEnvironment, ConfigError, tool
from tests.flink.running import collect, flink_environment

pytestmark = pytest.mark.flink

TYPE = Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.INT()])


class Payer(Agent):
    name = "payer"

    @tool
    def pay(self) -> str:
        """Pay."""
        return "paid"

    def approve(self, request: Any) -> bool:
        return True

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return await ctx.call_tool("pay")


class Clerk(Agent):
    name = "clerk"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return "seen"


def applied(approve: str, *agents: type[Agent]) -> tuple[AgentsExecutionEnvironment, list[Any]]:
    env = flink_environment({"skills.tools.approve": approve})
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    events = agents_env.from_datastream(env.from_collection([("a", 1)], TYPE), "k")
    return agents_env, [events.apply(agent) for agent in agents]


@pytest.mark.both_versions
def test_an_agent_that_is_applied_later_has_the_tool() -> None:
    _, outputs = applied("pay", Clerk, Payer)
    assert sorted(collect(*(output.to_datastream() for output in outputs))) == ["paid", "seen"]


def test_a_tool_that_no_agent_has_is_rejected_at_submit_and_by_the_workers() -> None:
    expected = "option skills.tools.approve: 'pai' matches no tool of"
    agents_env, outputs = applied("pai", Clerk, Payer)
    outputs[1].to_datastream().print()
    with pytest.raises(ConfigError, match=f"{expected} the agents 'clerk', 'payer'. Did you mean 'pay'"):
        agents_env.execute("pays")
    # Flink's own methods run a job without the environment of the agents.
    _, outputs = applied("pai", Payer)
    with pytest.raises(Exception, match=f"AgentRejectedException.*{expected} agent 'payer'. Did you mean 'pay'"):
        collect(outputs[0].to_datastream())
