"""The part of one agent in an attempt at a turn: its state, its durable steps, and what it did so far."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flink_skills.agents.declare.budget import NO_BUDGET, Budget, Spent
from flink_skills.agents.open.turn_media import TurnMedia
from flink_skills.agents.state.journal import NOTHING_ASKED, Asked
from flink_skills.agents.state.session import SESSION_EFFECT, KeptConversation
from flink_skills.agents.state.state_values import StoredState
from flink_skills.agents.state.typed_state import STATE_EFFECT, changed_state
from flink_skills.agents.state.waits import WaitRequest, WaitResult
from flink_skills.agents.turn.attempt import Attempt
from flink_skills.agents.turn.child_sessions import ChildSessions
from flink_skills.agents.turn.waits import ReadAnswer
from flink_skills.models.messages import NO_USAGE, Media, Usage
from flink_skills.tools.base import ToolResult
from flink_skills.tools.toolset import parsed

if TYPE_CHECKING:
    from flink_skills.agents.open.open_agent import OpenAgent

__all__ = ["AgentTurn", "state_changes"]


class AgentTurn:
    """The state that the conversations of one agent share in an attempt at a turn. Runs steps within its budget.

    Args:
        attempt: The attempt, which the agent shares with the agents that it calls.
        agent: The open agent.
        event: The event.
        state: Its state.
        kept: Its conversations before the turn.
        prefix: Precedes the ids of its steps. It is empty for the agent of the turn.
        budget: Its budget. An agent that is a tool may have one.
    """

    __slots__ = (
        "_affinity",
        "_media",
        "_steps",
        "_steps_spent",
        "_usage_spent",
        "agent",
        "attempt",
        "budget",
        "child_sessions",
        "content",
        "event",
        "event_for_model",
        "finish_reason",
        "kept",
        "loaded",
        "prefix",
        "state",
        "tool_calls",
    )

    def __init__(
        self,
        attempt: Attempt,
        agent: OpenAgent,
        event: Any,
        state: Any,
        *,
        kept: KeptConversation,
        prefix: str = "",
        budget: Budget = NO_BUDGET,
    ) -> None:
        self.attempt = attempt
        self.agent = agent
        self.event = event
        #: The event as models and commands read it, without the contents of files and media.
        self.event_for_model = event
        #: The images, PDF documents and audio of the event.
        self.content: tuple[Media, ...] = ()
        self.kept = kept
        #: The continued conversations with agents that it calls, None if the turn continues none.
        self.child_sessions: ChildSessions | None = None
        self.state = state
        self.prefix = prefix
        self.budget = budget
        self._steps = attempt.steps
        self._steps_spent = 0
        self._usage_spent = NO_USAGE
        self._media: TurnMedia | None = None
        self._affinity = ""
        #: The reason why the last answer of a chat model ended.
        self.finish_reason = ""
        #: The names of the skills that the turn loaded, in order.
        self.loaded: list[str] = []
        #: The finished tool calls as records have them.
        self.tool_calls: list[dict[str, Any]] = []

    @property
    def media(self) -> TurnMedia:
        """The media that the agent shows its models. Few turns have any."""
        if self._media is None:
            self._media = TurnMedia(self.agent.media, self.attempt.identity.owner)
        return self._media

    @property
    def affinity(self) -> str:
        """The digest that all its requests have, see :class:`ModelRequest`."""
        if not self._affinity:
            # The owner contains a length, so different pairs never have the same text.
            text = f"{self.attempt.identity.owner}\0{self.agent.plan.agent_id}"
            data = text.encode("utf-8", "surrogatepass")
            self._affinity = hashlib.blake2b(data, digest_size=16, person=b"flink-skills key").hexdigest()
        return self._affinity

    def children(self) -> ChildSessions:
        """Return the store for continued conversations with called agents."""
        if self.child_sessions is None:
            self.child_sessions = ChildSessions(self.kept)
        return self.child_sessions

    @property
    def spent(self) -> Spent:
        """Steps and tokens so far."""
        return Spent(self._steps_spent, self._usage_spent)

    def durable(
        self, step: str, run: Callable[[], Awaitable[Any]], asked: Asked = NOTHING_ASKED
    ) -> Coroutine[Any, Any, Any]:
        """Count a step and return the coroutine that runs it. See :meth:`Steps.durable`."""
        self._steps.check_open()
        self._steps_spent += 1
        self._check()
        return self._steps.durable(step, run, asked)

    def wait(
        self, step: str, request: WaitRequest, read: ReadAnswer, asked: Asked = NOTHING_ASKED
    ) -> Coroutine[Any, Any, WaitResult]:
        """Count a step and return the coroutine that waits. See :meth:`Steps.wait`."""
        self._steps.check_open()
        self._steps_spent += 1
        self._check()
        return self._steps.wait(step, request, read, asked)

    def add_usage(self, usage: Usage) -> None:
        """Count the tokens of a response. Raises :class:`LimitError` over the limit of the agent or the turn."""
        self._usage_spent = usage if self._usage_spent is NO_USAGE else self._usage_spent + usage
        self._steps.add_usage(usage)
        self._check()

    def add_spent(self, spent: Spent, *, replayed: bool) -> None:
        """Count what an agent that was called has spent.

        It has counted in the turn already, unless its result was ``replayed`` from the journal.
        """
        self._steps_spent += spent.steps
        self._usage_spent += spent.usage
        self._check()
        if replayed:
            self._steps.count_steps(spent.steps)
            self._steps.add_usage(spent.usage)

    def _check(self) -> None:
        if self.budget is not NO_BUDGET:
            self.budget.check(self._steps_spent, self._usage_spent)

    def note_call(self, name: str, arguments: Mapping[str, Any] | str, result: ToolResult) -> None:
        """Add a tool call to the record of the turn, and apply those of its effects that concern the agent."""
        noted: dict[str, Any] = {"name": name, "arguments": arguments, "error": result.is_error}
        if result.ran is not None:
            requested = parsed(name, arguments)
            noted["arguments"] = result.ran.applied(requested if isinstance(requested, Mapping) else {})
            if result.ran.differs:
                noted["requested_arguments"] = arguments
        self.tool_calls.append(noted)
        if not result.effects:
            return
        for effect in result.effects:
            if effect.get("op") == "load" and effect["skill"] not in self.loaded:
                self.loaded.append(effect["skill"])
            elif effect.get("op") == SESSION_EFFECT:
                self.children().apply(effect)
        self.change_state(result.effects)

    def change_state(self, effects: Iterable[Mapping[str, Any]]) -> None:
        """Apply those of the effects that change the state."""
        for stored, gone in state_changes(effects):
            self.state = changed_state(self.state, stored, gone)


def state_changes(effects: Iterable[Mapping[str, Any]]) -> Iterator[tuple[StoredState, Sequence[str]]]:
    """Yield the changes of the state in ``effects``: the new values and the removed keys."""
    for effect in effects:
        if effect.get("op") == STATE_EFFECT:
            yield StoredState(effect["set"], effect.get("types", {})), effect["gone"]
