"""One agent in an attempt at a turn: its state, its durable steps, and what it did so far."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flink_skills.agents.declare.context import AgentContext
from flink_skills.agents.declare.subagent import NO_BUDGET, NOTHING_SPENT, Budget, Spent
from flink_skills.agents.open.turn_media import TurnMedia
from flink_skills.agents.state.codec import message_from_json, message_to_json
from flink_skills.agents.state.journal import NOTHING_ASKED, Asked
from flink_skills.agents.state.session import NO_CONVERSATION, SESSION_EFFECT, KeptConversation
from flink_skills.agents.state.state_values import StoredState
from flink_skills.agents.state.typed_state import STATE_EFFECT, changed_state, state_effects, stored_state
from flink_skills.agents.state.waits import WaitRequest, WaitResult
from flink_skills.agents.turn.steps import Steps
from flink_skills.agents.turn.turn_files import TurnFiles
from flink_skills.agents.turn.waits import ReadAnswer
from flink_skills.models.messages import NO_USAGE, Media, Message, Usage
from flink_skills.tools.base import AgentAnswer, ToolResult
from flink_skills.tools.calling.toolset import parsed

if TYPE_CHECKING:
    from flink_skills.agents.open.open_agent import OpenAgent
    from flink_skills.agents.state.session import Session
    from flink_skills.options import JobConfig
    from flink_skills.telemetry import MetricGroup
    from flink_skills.tools.control import CallControl

# Conversations of one tool that a session stores. Models invent names.
_MAX_SESSIONS = 32


def session_json(added: KeptConversation, shortened: Mapping[str, Sequence[Message] | None]) -> dict[str, Any]:
    """Return what a call added to its conversations, for the journal."""
    replaced = {name: [message_to_json(m) for m in of] for name, of in shortened.items() if of is not None}
    return {**added.to_json(), **({"replaced": replaced} if replaced else {})}


class ChildSessions:
    """The continued conversations of the agents that an agent calls in a turn.

    Args:
        kept: The conversations of the caller before the turn.
    """

    __slots__ = ("_kept", "_latest", "_replaced")

    def __init__(self, kept: KeptConversation) -> None:
        self._kept = kept
        # By prefix, in the order of the last use.
        self._latest: dict[str, KeptConversation] = {}
        self._replaced: set[str] = set()

    def get(self, prefix: str) -> KeptConversation:
        """Return the current conversations below a prefix."""
        found = self._latest.get(prefix)
        return self._kept.part(prefix) if found is None else found

    def apply(self, effect: Mapping[str, Any]) -> None:
        """Add a call's messages."""
        prefix = effect["prefix"]
        before = self.get(prefix)
        replaced = {name: list(map(message_from_json, of)) for name, of in effect.get("replaced", {}).items()}
        self._replaced.update(prefix + name for name in replaced)
        self._latest.pop(prefix, None)
        self._latest[prefix] = before.after(KeptConversation.from_json(effect), replaced)

    def added(self) -> KeptConversation:
        """Return what the turn adds to the session of the caller."""
        messages: dict[str, Sequence[Message]] = {}
        skill_states: dict[str, Any] = {}
        for prefix, latest in self._latest.items():
            for name, of in latest.messages.items():
                key = prefix + name
                before = 0 if key in self._replaced else len(self._kept.messages.get(key, ()))
                messages[key] = of[before:]
            skill_states.update({prefix + name: of for name, of in latest.skill_states.items()})
        return KeptConversation(messages, skill_states)

    def shortened(self) -> dict[str, Sequence[Message] | None]:
        """Return the messages that replace those of the session, None for a conversation that is removed.

        A tool has at most 32 conversations in a session. Those without a call in this turn are removed first.
        """
        found: dict[str, Sequence[Message] | None] = dict.fromkeys(self._replaced, ())
        of_tools: dict[str, list[str]] = {}
        for prefix in dict.fromkeys([*(_prefix(key) for key in self._kept.messages), *self._latest]):
            if prefix and prefix not in self._latest:
                of_tools.setdefault(prefix.partition("@")[0], []).append(prefix)
        used = [prefix.partition("@")[0] for prefix in self._latest]
        for tool in dict.fromkeys(used):
            unused = of_tools.get(tool, [])
            excess = len(unused) + used.count(tool) - _MAX_SESSIONS
            for prefix in unused[: max(0, excess)]:
                found.update(dict.fromkeys(key for key in self._kept.messages if key.startswith(prefix)))
        return found


def _prefix(key: str) -> str:
    """Return the prefix of the conversation of an agent that is a tool, an empty string for another conversation."""
    tool, at, rest = key.partition("@")
    name, slash, _ = rest.partition("/")
    return f"{tool}@{name}/" if at and slash else ""


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


# Maximum pause for permits after an error, in seconds.
_LONGEST_PAUSE = 60.0


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


class AgentTurn:
    """One agent in an attempt at a turn: what its conversations share. Runs steps within its budget.

    A turn that restarts has another one. So has each call of an agent that is a tool, see :meth:`called`.

    Args:
        agent: The open agent.
        event: The event.
        state: Its state.
        identity: Whose turn it is.
        steps: The durable steps of the attempt, with those of agents that are tools.
        files: The files of the event and the workspace of the key.
        clock: The time of the turn.
        outputs: Pairs of side-output tag (empty: main output) and value that leave when the turn ends.
        call_agent: Runs an agent that is a tool. True: the session of its caller continues its conversations.
        kept: Its conversations before the turn.
        prefix: Precedes the ids of its steps. It is empty for the agent of the turn.
        budget: Its budget. An agent that is a tool may have one.
        control: What control records have paused or refused.
    """

    def __init__(
        self,
        agent: OpenAgent,
        event: Any,
        state: Any,
        *,
        identity: Identity,
        steps: Steps,
        files: TurnFiles,
        clock: TurnClock,
        outputs: list[tuple[str, Any]],
        call_agent: Callable[[AgentTurn, bool], Awaitable[AgentAnswer]],
        kept: KeptConversation,
        prefix: str = "",
        budget: Budget = NO_BUDGET,
        control: CallControl | None = None,
    ) -> None:
        self.agent = agent
        self.event = event
        #: The event as models and commands read it, without the contents of files and media.
        self.event_for_model = event
        #: The images, PDF documents and audio of the event.
        self.content: tuple[Media, ...] = ()
        self.state = state
        self.identity = identity
        self.steps = steps
        self.files = files
        self.clock = clock
        self.outputs = outputs
        self.call_agent = call_agent
        self.kept = kept
        #: The continued conversations with agents that it calls, None if the turn continues none.
        self.child_sessions: ChildSessions | None = None
        self.prefix = prefix
        self.budget = budget
        self.control = control
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

    def called(
        self, agent: OpenAgent, event: Any, state: Any, *, kept: KeptConversation, prefix: str, budget: Budget
    ) -> AgentTurn:
        """Return the part of an agent that is a tool and that this one calls."""
        return AgentTurn(
            agent,
            event,
            state,
            identity=self.identity,
            steps=self.steps,
            files=self.files,
            clock=self.clock,
            outputs=self.outputs,
            call_agent=self.call_agent,
            kept=kept,
            prefix=prefix,
            budget=budget,
            control=self.control,
        )

    @property
    def media(self) -> TurnMedia:
        """The media that the agent shows its models. Few turns have any."""
        if self._media is None:
            self._media = TurnMedia(self.agent.media, self.identity.owner)
        return self._media

    @property
    def affinity(self) -> str:
        """The digest that all its requests have, see :class:`ModelRequest`."""
        if not self._affinity:
            # The owner contains a length, so different pairs never have the same text.
            text = f"{self.identity.owner}\0{self.agent.plan.agent_id}"
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
        self.steps.check_open()
        self._steps_spent += 1
        self._check()
        return self.steps.durable(step, run, asked)

    def wait(
        self, step: str, request: WaitRequest, read: ReadAnswer, asked: Asked = NOTHING_ASKED
    ) -> Coroutine[Any, Any, WaitResult]:
        """Count a step and return the coroutine that waits. See :meth:`Steps.wait`."""
        self.steps.check_open()
        self._steps_spent += 1
        self._check()
        return self.steps.wait(step, request, read, asked)

    def add_usage(self, usage: Usage) -> None:
        """Count the tokens of a response. Raises :class:`LimitError` over the limit of the agent or the turn."""
        self._usage_spent = usage if self._usage_spent is NO_USAGE else self._usage_spent + usage
        self.steps.add_usage(usage)
        self._check()

    def add_spent(self, spent: Spent, *, replayed: bool) -> None:
        """Count what an agent that was called has spent.

        It has counted in the turn already, unless its result was ``replayed`` from the journal.
        """
        self._steps_spent += spent.steps
        self._usage_spent += spent.usage
        self._check()
        if replayed:
            self.steps.count_steps(spent.steps)
            self.steps.add_usage(spent.usage)

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


class ToolCaller:
    """The agent that calls a tool in ``step``. It is the ``caller`` of the tool's context."""

    __slots__ = ("_agent_turn", "_called", "_step")

    def __init__(self, agent_turn: AgentTurn, step: str) -> None:
        self._agent_turn = agent_turn
        self._step = step
        self._called: list[AgentTurn] = []

    @property
    def state(self) -> Any:
        """The state of the agent."""
        return self._agent_turn.state

    @property
    def spent(self) -> Spent | None:
        """The spending of the agents that the tool ran, None if it ran none."""
        return sum((of.spent for of in self._called), NOTHING_SPENT) if self._called else None

    async def run_agent(self, agent: Any, event: Any, *, state: Any, budget: Budget, session: str = "") -> AgentAnswer:
        """Run an agent in the turn. See :meth:`flink_skills.tools.base.Caller.run_agent`."""
        control, own = self._agent_turn.control, self._agent_turn.agent.plan.agent_id
        if control and (denial := control.denial("agent", agent.plan.agent_id, own)):
            return AgentAnswer(problem=denial)
        kept = self._agent_turn.children().get(session) if session else None
        # A repeated call has the same prefix, and so the same call ids.
        called = self._agent_turn.called(
            agent, event, state, kept=kept or NO_CONVERSATION, prefix=f"{self._step}/", budget=budget
        )
        self._called.append(called)
        return await self._agent_turn.call_agent(called, kept is not None)


def state_changes(effects: Iterable[Mapping[str, Any]]) -> Iterator[tuple[StoredState, Sequence[str]]]:
    """Yield the changes of the state in ``effects``: the new values and the removed keys."""
    for effect in effects:
        if effect.get("op") == STATE_EFFECT:
            yield StoredState(effect["set"], effect.get("types", {})), effect["gone"]


class TurnContext(AgentContext):
    """The attributes of a turn.

    Args:
        agent_turn: The agent's part in the attempt at the turn.
    """

    __slots__ = ("_agent_turn",)

    _agent_turn: AgentTurn

    def __init__(self, agent_turn: AgentTurn) -> None:
        # Not by assignment: the check of assignments to a context costs several times as much.
        object.__setattr__(self, "_agent_turn", agent_turn)

    @property
    def key(self) -> Any:
        return self._agent_turn.identity.key

    @property
    def session_id(self) -> str:
        return self._agent_turn.identity.session_id

    @property
    def turn(self) -> int:
        return self._agent_turn.identity.number

    @property
    def timestamp(self) -> int | None:
        return self._agent_turn.identity.timestamp

    @property
    def call_id(self) -> str:
        return self._agent_turn.steps.current_call_id()

    @property
    def usage(self) -> Usage:
        return self._agent_turn.steps.usage

    @property
    def finish_reason(self) -> str:
        return self._agent_turn.finish_reason

    @property
    def skills_loaded_in_turn(self) -> list[str]:
        return list(self._agent_turn.loaded)

    @property
    def content(self) -> tuple[Media, ...]:
        return self._agent_turn.content

    @property
    def config(self) -> JobConfig:
        return self._agent_turn.agent.job_config

    @property
    def metrics(self) -> MetricGroup:
        return self._agent_turn.agent.metrics


def merged_state(agent: OpenAgent, base: Session, current: Session, state: StoredState) -> StoredState:
    """Return the state of a key after a turn that other turns have overtaken.

    Only the fields that the turn changed replace those of the other turns.

    Args:
        agent: The agent.
        base: The session at the turn's start.
        current: The session after the other turns.
        state: The state at the turn's end.
    """
    before = stored_state(agent.new_state(StoredState(base.state, base.types)))
    merged = agent.new_state(StoredState(current.state, current.types))
    for stored, gone in state_changes(state_effects(before, state, removes=agent.has_plain_state)):
        merged = changed_state(merged, stored, gone)
    return stored_state(merged)
