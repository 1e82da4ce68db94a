"""One attempt at a turn: what all of its agents share."""

from __future__ import annotations

import asyncio
import math
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

__all__ = ["Attempt", "CallAgent", "Identity", "NestedCall", "TurnClock"]


# Maximum pause for permits after an error, in seconds.
_LONGEST_PAUSE = 60.0


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


class TurnClock:
    """Deadline and last model error, which all attempts at a turn share.

    Times are those that the event loop counts, in seconds.
    """

    __slots__ = ("_failed", "begun", "due")

    def __init__(self) -> None:
        self.begun = -math.inf
        self.due = math.inf
        self._failed: tuple[float, str, str] | None = None

    @property
    def rest(self) -> float:
        """The seconds until the turn ends at its time limit."""
        return self.due - asyncio.get_running_loop().time()

    def note(self, model: str, error: str) -> None:
        """Keep a model error for records about time limits."""
        self._failed = asyncio.get_running_loop().time(), model, error

    def note_other(self, model: str, error: str, at: float) -> None:
        """Keep an error that another turn received at a time, if it can be the reason why this one waits."""
        if self._failed is None and at >= self.begun - _LONGEST_PAUSE:
            self._failed = at, model, error

    def last_error(self) -> str:
        """Return the last model error as a part for messages. Return an empty string if there is none."""
        if self._failed is None:
            return ""
        at, model, error = self._failed
        ago = asyncio.get_running_loop().time() - at
        return f"; the last error of chat model {model!r}, {ago:.0f} s before: {error}"


#: Runs an agent that is a tool, in an attempt at the turn of its caller.
CallAgent = Callable[["Attempt", NestedCall], Awaitable[AgentAnswer]]


class Attempt:
    """One attempt at a turn. A turn that restarts has another one.

    Args:
        identity: Whose turn it is.
        steps: The durable steps, with those of agents that are tools.
        files: The files of the event and the workspace of the key.
        scope: What observers receive about the turn.
        clock: The time of the turn.
        generations: Models, skills and tools of each agent when the turn began, by the id of its open agent.
        call_agent: Runs an agent that is a tool.
    """

    __slots__ = ("_generations", "call_agent", "clock", "files", "identity", "outputs", "scope", "steps")

    def __init__(
        self,
        identity: Identity,
        steps: Steps,
        files: TurnFiles,
        *,
        scope: TurnScope,
        clock: TurnClock,
        generations: Mapping[int, Generation],
        call_agent: CallAgent,
    ) -> None:
        self.identity = identity
        self.steps = steps
        self.files = files
        self.scope = scope
        self.clock = clock
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
