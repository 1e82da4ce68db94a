"""One attempt at a turn: what all of its agents share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from flink_skills.agents.declare.budget import NOTHING_SPENT, Budget, Spent
from flink_skills.agents.state.session import KeptConversation
from flink_skills.agents.turn.steps import Steps
from flink_skills.agents.turn.turn_files import TurnFiles
from flink_skills.telemetry import TurnScope
from flink_skills.tools.base import AgentAnswer

if TYPE_CHECKING:
    from flink_skills.agents.open.generation import Generation
    from flink_skills.agents.open.open_agent import OpenAgent

__all__ = ["Attempt", "CallAgent", "Identity", "NestedCall"]


class Identity(NamedTuple):
    """The identity of a turn.

    ``key`` is the value of the key, ``owner`` the owner of its artifacts and processes. ``timestamp`` is in
    milliseconds since 1970.
    """

    key: Any
    owner: str
    session_id: str
    number: int
    timestamp: int | None


@dataclass
class NestedCall:
    """The call of an agent that is a tool.

    ``state`` is the state with which the agent begins. ``prefix`` precedes the ids of its steps. ``spent`` is what it
    has spent, even if it failed. ``kept`` are its conversations before, if later calls continue them.
    """

    agent: OpenAgent
    event: Any
    state: Any
    prefix: str
    budget: Budget
    kept: KeptConversation | None = None
    spent: Spent = NOTHING_SPENT


#: Runs an agent that is a tool, in an attempt at the turn of its caller.
CallAgent = Callable[["Attempt", NestedCall], Awaitable[AgentAnswer]]


class Attempt:
    """One attempt at a turn. A turn that restarts has another one.

    Args:
        identity: Whose turn it is.
        steps: The durable steps, with those of agents that are tools.
        files: The files of the event and the workspace of the key.
        scope: What observers receive about the turn.
        generations: Models, skills and tools of each agent when the turn began, by the id of its open agent.
        call_agent: Runs an agent that is a tool.
    """

    __slots__ = ("_generations", "call_agent", "files", "identity", "outputs", "scope", "steps")

    def __init__(
        self,
        identity: Identity,
        steps: Steps,
        files: TurnFiles,
        *,
        scope: TurnScope,
        generations: Mapping[int, Generation],
        call_agent: CallAgent,
    ) -> None:
        self.identity = identity
        self.steps = steps
        self.files = files
        self.scope = scope
        self.call_agent = call_agent
        self._generations = generations
        #: Pairs of side-output tag (empty: main output) and value that leave when the turn ends.
        self.outputs: list[tuple[str, Any]] = []

    def generation_of(self, agent: OpenAgent) -> Generation:
        """Return models, skills and tools of an open agent as they were when the turn began."""
        return self._generations[id(agent)]

    def emit(self, tag: str, output: Any) -> None:
        """Let ``output`` leave when the turn ends. Raises :class:`TurnInterruptedError` after the end."""
        self.steps.check_open()
        self.outputs.append((tag, output))
