"""An agent as a tool of another one: its own models, skills and conversation, inside the turn of the caller."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from flink_skills.agents.agent_run import CALLER, SPENT, STATE_EFFECT, AgentRun, Budget, BudgetError
from flink_skills.agents.event import to_plain
from flink_skills.agents.session import NO_CONVERSATION
from flink_skills.agents.state import stored_state
from flink_skills.agents.state_values import StoredState
from flink_skills.errors import LimitError, PlanError, SkillsError, TurnError
from flink_skills.telemetry import observe
from flink_skills.tools.arguments import plain_schema
from flink_skills.tools.base import Tool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools.state import artifacts_effect

if TYPE_CHECKING:
    from flink_skills.agents.agent import Agent
    from flink_skills.agents.runtime import AgentRuntime

__all__ = ["AgentTool", "agent_tool_spec"]

_PACKAGE = __name__.partition(".")[0]
_REQUEST: Mapping[str, Any] = {
    "type": "object",
    "properties": {"request": {"type": "string", "description": "What to do, with all that the agent must know."}},
    "required": ["request"],
}


def agent_tool_spec(name: str, description: str, agent: Agent) -> ToolSpec:
    """What models are told of an agent that is a tool: ``request``, a text, or the fields of its ``input_type``.

    Raises :class:`PlanError` for an ``input_type`` that has no fields.
    """
    # The docstring of a class of this package describes the class, not the agent.
    own = type(agent).__doc__ if type(agent).__module__.partition(".")[0] != _PACKAGE else ""
    said = description or (own or "").strip().split("\n\n")[0] or f"Ask the agent {name}."
    if agent.input_type is None:
        return ToolSpec(name, " ".join(said.split()), _REQUEST)
    try:
        schema = TypeAdapter(agent.input_type).json_schema()
    except Exception as error:  # what pydantic makes of a user's type
        raise PlanError(f"agent tool {name!r}: input_type has no JSON schema ({error}): use a model") from error
    if schema.get("type") != "object":
        raise PlanError(f"agent tool {name!r}: input_type is not an object with fields: use a pydantic model")
    return ToolSpec(name, " ".join(said.split()), plain_schema(schema))


class AgentTool(Tool):
    """Calls an agent.

    Its steps are part of the caller's turn and of its journal; its conversation begins anew with each call, and what it
    loads is never in a prompt of the caller.
    """

    def __init__(
        self,
        name: str,
        description: str,
        runtime: AgentRuntime,
        *,
        skip_summarization: bool = False,
        share_state: bool = False,
        max_steps: int = 0,
        max_tokens: int = 0,
    ) -> None:
        self.runtime = runtime
        self.ends_chat = skip_summarization
        # Of several calls in one response, each sees what the one before it changed.
        self.changes_state = self._shares_state = share_state
        self._steps, self._tokens = max_steps, max_tokens
        self._spec = agent_tool_spec(name, description, runtime.agent)

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        caller: tuple[AgentRun, str] = context.extra[CALLER]
        parent, step = caller
        try:
            event = self._event(arguments)
        except ValueError as error:
            return ToolResult(f"{self._spec.name}: {error}", is_error=True)
        try:
            before = stored_state(parent.state) if self._shares_state else StoredState()
            state = self.runtime.new_state(before)
        except TurnError as error:
            return ToolResult(f"{self._spec.name} failed: {error}", is_error=True)
        run = AgentRun(
            parent.turn,
            self.runtime,
            parent.turn.generation_of(self.runtime),
            event=event,
            conversation=NO_CONVERSATION,
            state=state,
            prefix=f"{step}/",
            budget=Budget(self._steps, self._tokens),
        )
        try:
            with observe("agent", self.runtime.plan.agent_id) as activity:
                answer = await run.run()
                activity.attributes.update(skills=list(run.loaded))
        except LimitError as error:
            if not isinstance(error, BudgetError) or error.budget is not run.budget:
                raise  # the limit is that of the whole turn, or of an agent which calls this one
            return ToolResult(f"{self._spec.name} failed: {error}", is_error=True)
        except SkillsError as error:
            return ToolResult(f"{self._spec.name} failed: {error}", is_error=True)
        finally:
            context.extra[SPENT] = run.spent
        plain = to_plain(answer)
        return ToolResult(
            plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False),
            value=plain,
            effects=(*self._artifacts(run, context.call_id), *self._state(before, run)),
        )

    def _event(self, arguments: Mapping[str, Any]) -> Any:
        of = self.runtime.agent.input_type
        if of is None:
            request = arguments.get("request")
            if not isinstance(request, str) or not request.strip():
                raise ValueError("give the argument request, a text that says what the agent is to do")
            return request
        try:
            value = TypeAdapter(of).validate_python(dict(arguments))
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, problem['loc'])) or 'arguments'}: {problem['msg']}"
                for problem in error.errors(include_url=False)
            )
            raise ValueError(f"the arguments do not fit: {problems}") from None
        return value.model_dump(mode="json") if isinstance(value, BaseModel) else to_plain(value)

    def _state(self, before: StoredState, run: AgentRun) -> list[dict[str, Any]]:
        """What the agent changed of its caller's state. Journalled with its answer: a replay does not call it."""
        if not self._shares_state:
            return []
        after = stored_state(run.state)
        old, new = before.by_key(), after.by_key()
        changed = {key: of.value for key, of in new.items() if old.get(key) != of}
        gone = [key for key in old if key not in new] if self.runtime.has_plain_state else []
        if not changed and not gone:
            return []
        types = after.types_of(changed)
        return [{"op": STATE_EFFECT, "set": changed, "gone": gone, **({"types": types} if types else {})}]

    def _artifacts(self, run: AgentRun, call_id: str) -> list[dict[str, Any]]:
        """What the agent saved: the caller may read it, too."""
        return [artifacts_effect(call_id, run.artifacts.items())] if run.artifacts else []
