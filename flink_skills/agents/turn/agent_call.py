"""Runs an agent that is a tool, in an attempt at the turn of its caller."""

from __future__ import annotations

from flink_skills.agents.declare.budget import BudgetError
from flink_skills.agents.state.session import NO_CONVERSATION
from flink_skills.agents.turn.agent_run import AgentRun
from flink_skills.agents.turn.agent_turn import AgentTurn
from flink_skills.agents.turn.attempt import Attempt, NestedCall
from flink_skills.agents.turn.child_sessions import session_json
from flink_skills.errors import LimitError, SkillsError
from flink_skills.telemetry import observe
from flink_skills.tools.base import AgentAnswer

__all__ = ["call_agent"]


async def call_agent(attempt: Attempt, call: NestedCall) -> AgentAnswer:
    """Run an agent that is a tool. See :meth:`flink_skills.tools.base.Caller.run_agent`."""
    agent = call.agent
    agent_turn = AgentTurn(
        attempt,
        agent,
        call.event,
        call.state,
        kept=call.kept or NO_CONVERSATION,
        prefix=call.prefix,
        budget=call.budget,
    )
    run = AgentRun(agent_turn, attempt.generation_of(agent))
    try:
        with observe("agent", agent.plan.agent_id) as activity:
            answer = await run.run()
            activity.attributes.update(skills=list(agent_turn.loaded))
    except LimitError as error:
        if not isinstance(error, BudgetError) or error.budget is not call.budget:
            raise  # the limit is that of the whole turn, or of an agent that calls this one
        return AgentAnswer(problem=str(error))
    except SkillsError as error:
        return AgentAnswer(problem=str(error))
    finally:
        call.spent = agent_turn.spent
    session = session_json(run.conversations.added(), run.conversations.shortened()) if call.kept is not None else None
    return AgentAnswer(answer, state=agent_turn.state, artifacts=run.artifact_versions(), session=session)
