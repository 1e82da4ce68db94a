"""An agent as a tool of another one: its own models, skills and conversation, inside the turn and
the budget of the caller.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel, TypeAdapter, ValidationError

from flink_skills.agents.state.codec import usage_to_json
from flink_skills.agents.state.event import to_plain
from flink_skills.agents.state.session import SESSION_EFFECT
from flink_skills.agents.state.state_values import StoredState
from flink_skills.agents.state.typed_state import state_effects, stored_state
from flink_skills.errors import LimitError, PlanError, TurnError
from flink_skills.models.messages import NO_USAGE, Usage
from flink_skills.tools.arguments import ArgumentError, Canonical, plain_schema
from flink_skills.tools.base import AgentAnswer, Tool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools.schemas import one_spelling
from flink_skills.tools.state import artifacts_effect

if TYPE_CHECKING:
    from flink_skills.agents.declare.agent import Agent


@dataclass(frozen=True)
class Spent:
    """Steps and tokens of an agent in a turn, with those of the agents that it called. Adds up with ``+``."""

    steps: int = 0
    usage: Usage = NO_USAGE

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.steps + other.steps, self.usage + other.usage)

    def to_json(self) -> list[int]:
        """Return the journal form."""
        return [self.steps, *usage_to_json(self.usage)]

    @classmethod
    def from_json(cls, data: Sequence[int]) -> Spent:
        """Read the journal form."""
        return cls(data[0], Usage(*data[1:]))


NOTHING_SPENT = Spent()


@dataclass(frozen=True)
class Budget:
    """Maximum number of steps and tokens of one agent in a turn, with the agents that it calls.

    0 means that only the limit of the turn applies.
    """

    steps: int = 0
    tokens: int = 0

    def check(self, steps: int, usage: Usage) -> None:
        """Raise :class:`BudgetError` for more."""
        if 0 < self.steps < steps:
            raise BudgetError(self, f"the agent did not return an answer within its {self.steps} steps")
        if 0 < self.tokens < usage.total_tokens:
            raise BudgetError(self, f"the agent used {usage.total_tokens} of at most {self.tokens} tokens")


class BudgetError(LimitError):
    """An agent that is a tool has spent its budget. The error ends its call, not the turn."""

    def __init__(self, budget: Budget, problem: str) -> None:
        super().__init__(problem)
        self.budget = budget


NO_BUDGET = Budget()


_PACKAGE = __name__.partition(".")[0]
_REQUEST: Mapping[str, Any] = {
    "type": "object",
    "properties": {"request": {"type": "string", "description": "What to do, with all that the agent must know."}},
    "required": ["request"],
}

_SESSION_ID = "session_id"
_SESSION: Mapping[str, Any] = {
    "type": "string",
    "description": "A name for this conversation with the agent. The same name continues it in a later call. Without "
    "it, the agent remembers no earlier call.",
}
# Without '@' and '/', which separate the parts of a conversation's name.
_SESSION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")


def agent_tool_spec(name: str, description: str, agent: Agent, *, sessions: bool = False) -> ToolSpec:
    """Return the description of an agent that is a tool.

    Its arguments are ``request``, a string, or the fields of its ``input_type``, and ``session_id`` with ``sessions``.

    Raises :class:`PlanError` for an ``input_type`` that has no fields, or that has the field ``session_id``.
    """
    # The docstring of a class of this package describes the class, not the agent.
    own = type(agent).__doc__ if type(agent).__module__.partition(".")[0] != _PACKAGE else ""
    said = description or (own or "").strip().split("\n\n")[0] or f"Ask the agent {name}."
    said = " ".join(said.split())
    if agent.input_type is None:
        return ToolSpec(name, said, _with_session(_REQUEST) if sessions else _REQUEST)
    try:
        schema = TypeAdapter(agent.input_type).json_schema()
    except Exception as error:  # what pydantic makes of a user's type
        raise PlanError(f"agent tool {name!r}: input_type has no JSON schema ({error}): use a model") from error
    if schema.get("type") != "object":
        raise PlanError(f"agent tool {name!r}: input_type is not an object with fields: use a pydantic model")
    parameters = plain_schema(schema)
    if sessions and _SESSION_ID in parameters["properties"]:
        raise PlanError(f"agent tool {name!r}: input_type has a field session_id, which sessions=True adds: rename it")
    return ToolSpec(name, said, _with_session(parameters) if sessions else parameters)


def _with_session(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {**schema, "properties": {**schema["properties"], _SESSION_ID: _SESSION}}


class OpenedAgent(Protocol):
    """An open agent, as far as a call of it as a tool needs it."""

    @property
    def agent(self) -> Agent:
        """The agent's code."""

    @property
    def has_plain_state(self) -> bool:
        """True if its state is a dict."""

    def new_state(self, kept: StoredState) -> Any:
        """Return its state from the stored form. Raises :class:`TurnError`."""


class AgentTool(Tool):
    """Calls an agent.

    Its steps are part of the turn of the caller and of its journal. Each call has a new conversation, unless
    ``sessions`` lets the caller name one that it continues. The skills that the agent loads are never in a prompt of
    the caller.
    """

    def __init__(
        self,
        name: str,
        description: str,
        opened: OpenedAgent,
        *,
        skip_summarization: bool = False,
        share_state: bool = False,
        max_steps: int = 0,
        max_tokens: int = 0,
        sessions: bool = False,
        approve: bool = False,
    ) -> None:
        self._opened = opened
        self.approve = approve
        self.ends_chat = skip_summarization
        # Of several calls in one response, each sees what the one before it changed.
        self.changes_state = self._shares_state = share_state
        self._steps, self._tokens = max_steps, max_tokens
        self._sessions = sessions
        # A call of a conversation has the messages of the call before.
        self.sequence_argument = _SESSION_ID if sessions else ""
        self._spec = agent_tool_spec(name, description, opened.agent, sessions=sessions)

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def canonical(self, arguments: Mapping[str, Any]) -> Canonical:
        name = self._spec.name
        given = one_spelling(name, arguments, self._spec.parameters["properties"])
        try:
            session, rest = self._session(given)
            found, event = self._event(rest)
        except ValueError as error:
            raise ArgumentError(f"{name}: {error}") from error
        return Canonical({**found, **({_SESSION_ID: given[_SESSION_ID]} if session else {})}, self, (session, event))

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        caller = context.caller
        if caller is None:
            return ToolResult(f"{self._spec.name}: only an agent can call another agent", is_error=True)
        try:
            if not (isinstance(arguments, Canonical) and arguments.owner is self):
                arguments = self.canonical(arguments)
            session, event = arguments.made
        except ArgumentError as error:
            return self.rejected(arguments, error)
        try:
            before = stored_state(caller.state) if self._shares_state else StoredState()
            state = self._opened.new_state(before)
        except TurnError as error:
            return ToolResult(f"{self._spec.name} failed: {error}", is_error=True)
        budget = Budget(self._steps, self._tokens) if self._steps or self._tokens else NO_BUDGET
        found = await caller.run_agent(self._opened, event, state=state, budget=budget, session=session)
        if found.problem:
            return ToolResult(f"{self._spec.name} failed: {found.problem}", is_error=True)
        plain = to_plain(found.answer)
        return ToolResult(
            plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False),
            value=plain,
            effects=(
                *_saved(found, context.call_id),
                *self._changed_state(before, found),
                *([{"op": SESSION_EFFECT, "prefix": session, **found.session}] if found.session else []),
            ),
        )

    def _session(self, arguments: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """Return the prefix of the conversation that a call continues, empty for a new one, and the other arguments."""
        if not self._sessions:
            return "", arguments
        named = arguments.get(_SESSION_ID)
        rest = {name: value for name, value in arguments.items() if name != _SESSION_ID}
        if named is None or named == "":
            return "", rest
        if not isinstance(named, str) or not _SESSION_NAME.fullmatch(named):
            raise ValueError("session_id has 1 to 64 letters, digits, '.', '_', ':' and '-'")
        return f"{self._spec.name}@{named}/", rest

    def _event(self, arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any]:
        """Return the canonical arguments without the session, and the event of the agent."""
        of = self._opened.agent.input_type
        if of is None:
            request = arguments.get("request")
            if not isinstance(request, str) or not request.strip():
                raise ValueError("give the argument request, a text that says what the agent is to do")
            return {"request": request}, request
        adapter: TypeAdapter[Any] = TypeAdapter(of)
        try:
            value = adapter.validate_python(dict(arguments))
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, problem['loc'])) or 'arguments'}: {problem['msg']}"
                for problem in error.errors(include_url=False)
            )
            raise ValueError(f"the arguments do not fit: {problems}") from None
        event = value.model_dump(mode="json") if isinstance(value, BaseModel) else to_plain(value)
        found = adapter.dump_python(value, mode="json", by_alias=True, warnings=False)
        try:
            # A default such as a new id differs in the next reading, which a call that waits has.
            is_same = adapter.validate_python(found) == value == adapter.validate_python(dict(arguments))
        except ValidationError:
            is_same = False
        return (found if is_same else arguments), event

    def _changed_state(self, before: StoredState, found: AgentAnswer) -> list[dict[str, Any]]:
        """Return the changes of the caller's state. The journal has them with the answer: a replay calls no agent."""
        if not self._shares_state:
            return []
        return state_effects(before, stored_state(found.state), removes=self._opened.has_plain_state)


def _saved(found: AgentAnswer, call_id: str) -> list[dict[str, Any]]:
    """Return the effect by which the caller can read what the agent saved."""
    return [artifacts_effect(call_id, found.artifacts.items())] if found.artifacts else []
