"""One agent at work on one event: its conversations, what it loaded, and its durable steps."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from types import CoroutineType, TracebackType
from typing import TYPE_CHECKING, Any

from flink_skills.agents.apart import is_apart
from flink_skills.agents.chat import chat
from flink_skills.agents.codec import result_from_json, result_to_json, usage_to_json
from flink_skills.agents.context import AgentContext
from flink_skills.agents.event_content import ContentScope
from flink_skills.agents.journal import NOTHING_ASKED, Asked, fingerprint
from flink_skills.agents.messages import NO_USAGE, Media, Message, Usage
from flink_skills.agents.session import Conversation
from flink_skills.agents.state import changed_state
from flink_skills.agents.state_values import StoredState
from flink_skills.agents.steps import StepCodec
from flink_skills.agents.turn_media import TurnMedia
from flink_skills.errors import LimitError, TurnError
from flink_skills.telemetry import observe
from flink_skills.tools import SkillState, ToolSet
from flink_skills.tools.base import Tool, ToolResult, TurnInterruptedError
from flink_skills.tools.threads import in_thread

if TYPE_CHECKING:
    from flink_skills.agents.generation import Generation, ModelRuntime
    from flink_skills.agents.runtime import AgentRuntime
    from flink_skills.agents.turn import Turn

__all__ = ["CALLER", "SPENT", "STATE_EFFECT", "AgentRun", "Budget", "BudgetError", "Spent"]

#: In ``ToolContext.extra``: the run that calls a tool, and the step in which it does.
CALLER = "flink_skills.caller"
#: The same for what an agent that is a tool has spent.
SPENT = "flink_skills.spent"

#: Effect of a call that changed the state of the agent that called: ``set`` has values, ``gone`` what it removed.
STATE_EFFECT = "agent-state"

# The call of an agent's code that came last in this task, or in the one that started it, with the run that made it.
_last_call: contextvars.ContextVar[tuple[AgentRun, str] | None] = contextvars.ContextVar(
    "flink_skills_last_call", default=None
)


@dataclass(frozen=True)
class Spent:
    """Steps and tokens of an agent in a turn, with those of the agents that it called. Adds up with ``+``."""

    steps: int = 0
    usage: Usage = field(default_factory=Usage)

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.steps + other.steps, self.usage + other.usage)

    def to_json(self) -> list[int]:
        """The journal form."""
        return [self.steps, *usage_to_json(self.usage)]

    @classmethod
    def from_json(cls, data: Sequence[int]) -> Spent:
        return cls(data[0], Usage(*data[1:]))


@dataclass(frozen=True)
class Budget:
    """The most that one agent may spend in a turn, with the agents that it calls; 0: what the turn has left."""

    steps: int = 0
    tokens: int = 0

    def check(self, spent: Spent) -> None:
        """Raises :class:`BudgetError` for more."""
        if self.steps and spent.steps > self.steps:
            raise BudgetError(self, f"the agent did not return an answer within its {self.steps} steps")
        if self.tokens and spent.usage.total_tokens > self.tokens:
            raise BudgetError(self, f"the agent used {spent.usage.total_tokens} of at most {self.tokens} tokens")


class BudgetError(LimitError):
    """An agent that is a tool has spent what one call of it may; ends that call, not the turn."""

    def __init__(self, budget: Budget, problem: str) -> None:
        super().__init__(problem)
        self.budget = budget


_NO_BUDGET = Budget()


class _Call:
    """A call of the agent's code: its id, the next one of its kind, and its place in the code.

    The place is known from the task that makes the call: however long parallel tasks take, in each of them calls come
    in the order of the program.
    """

    __slots__ = ("_id", "_run")

    def __init__(self, run: AgentRun, kind: str) -> None:
        self._run = run
        self._id = run.next_id(kind)

    def __enter__(self) -> tuple[str, Asked]:
        asked = self._run.place()
        # Later calls are nested in this one until it ends.
        _last_call.set((self._run, f"{self._id}/"))
        return self._id, asked

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A failed call may succeed when it is repeated, and the program may then continue differently.
        _last_call.set((self._run, self._id if kind is None else f"!{self._id}"))


class AgentRun:
    """What one agent does in a turn.

    The turn's own agent has the empty ``prefix``; one that is called as a tool has that of the step which called it,
    and so a part of the turn's journal, with skills and conversations of its own.
    """

    def __init__(
        self,
        turn: Turn,
        runtime: AgentRuntime,
        generation: Generation,
        *,
        event: Any,
        conversation: Conversation,
        state: Any,
        prefix: str = "",
        budget: Budget | None = None,
    ) -> None:
        self.turn = turn
        self._journal = turn.journal
        self.runtime = runtime
        self.event = event
        # Without the contents of files, where the event has some.
        self.event_for_model = event
        # Images, PDF documents and audio of the event.
        self.content: tuple[Media, ...] = ()
        self.media = TurnMedia(runtime.media, turn.owner)
        # As it was before the turn; what the turn adds is in `conversations`.
        self.before = conversation
        self.state = state
        self.prefix = prefix
        self._steps_spent = 0
        self._usage_spent = NO_USAGE
        self.budget = budget or _NO_BUDGET
        self.loaded: list[str] = []
        self.tool_calls: list[dict[str, Any]] = []
        self.conversations: dict[str, list[Message]] = {}
        self.histories: dict[str, Sequence[Message] | asyncio.Future[Sequence[Message]]] = {}
        # What replaces the conversations of the session, where they were too long.
        self.shortened: dict[str, list[Message]] = {}
        self.skill_states: dict[str, SkillState] = {}
        # By model: its fallback that answered last, where one did. It is asked first for the rest of the turn.
        self.answered_by: dict[str, str] = {}
        self._pools: dict[str, asyncio.Future[tuple[ToolSet, Mapping[str, Tool]]]] = {}
        self._tools: dict[str, tuple[int, ToolSet]] = {}
        self._revisions: dict[str, int] = {}
        self._outlive_turn: set[str] = set()
        self._counts: dict[str, int] = {}
        # Pairs of a call and its coroutine.
        self._calls: list[tuple[str, Any]] = []
        self._task: asyncio.Task[Any] | None = None
        self.generation = generation

    async def run(self) -> Any:
        """What the agent's ``on_event`` returns."""
        self._task = asyncio.current_task() if self.prefix else self.turn.code
        context = AgentContext(self)
        before = _last_call.set(None)
        try:
            visible = self.runtime.agent.visible_skills(self.event, context)
            if visible is not None:
                self.generation = self.generation.limited_to(visible)
            result = self.runtime.agent.on_event(self.event, context)
            if type(result) is CoroutineType or inspect.isawaitable(result):
                result = await result
            self._check_awaited()
            self._ended()
            return result
        finally:
            self._calls.clear()
            # Timers that are made later keep this context, some long after they are cancelled, and with it all of this.
            _last_call.reset(before)

    async def read_content(self) -> None:
        """Read the images, PDF documents and audio of the event. Models read the event without them."""
        if self.runtime.content.is_in(self.event):
            scope = ContentScope(
                self.media,
                self.durable,
                self.turn.call_id,
                lambda: self.skill_state_of(self.generation.tool_scope(None)).artifacts,
                self.runtime.keeps_conversation,
            )
            self.event_for_model, self.content = await self.runtime.content.read(self.event, scope)

    def call(self, kind: str) -> _Call:
        """A context manager for a call of the agent's code, that gives its id and its place."""
        return _Call(self, kind)

    def next_id(self, kind: str) -> str:
        """The id of the next call of a kind."""
        count = self._counts.get(kind, 0)
        self._counts[kind] = count + 1
        return f"{self.prefix}{kind}#{count}"

    def place(self) -> Asked:
        """Return the position of the next call in the agent's code."""
        return Asked("", self._last(), self.prefix if self._is_own_line() else None)

    def _is_own_line(self) -> bool:
        """Return True in the agent's code itself, where calls can only come one after another."""
        return asyncio.current_task() is self._task and not is_apart(self)

    def _last(self) -> str:
        """The call that was last in this part of the code; empty before the first one."""
        last = _last_call.get()
        return last[1] if last is not None and last[0] is self else ""

    def _ended(self) -> None:
        """The agent's code, or the function of a step, has ended: the journal may have more that it did once."""
        self._check_current()
        self.turn.ended(self.prefix, self._last())

    def _check_current(self) -> None:
        """Raises where the turn has ended or was started anew: a task of the agent's code may outlive its attempt."""
        if self.turn.journal is not self._journal:
            raise TurnInterruptedError("the turn has ended or was restarted: await everything that on_event starts")

    def awaited(self, call: str, coroutine: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """Return the coroutine of a call of the agent's code. The turn fails if it was not awaited by its end."""
        self._calls.append((call, coroutine))
        return coroutine

    def _check_awaited(self) -> None:
        # A coroutine that has ended has no frame.
        forgotten = [
            (call, of)
            for call, of in self._calls
            if of.cr_frame is not None and inspect.getcoroutinestate(of) == inspect.CORO_CREATED
        ]
        for _, coroutine in forgotten:
            coroutine.close()
        if forgotten:
            call = forgotten[0][0]
            raise TurnError(f"{call} was called and never awaited, so it did nothing: write 'await {call}'")

    def emit(self, tag: str, output: Any) -> None:
        """Let ``output`` leave when the turn ends."""
        self._check_current()
        if inspect.iscoroutine(output):
            raise TurnError(f"an output is the coroutine {output.__qualname__}(…): await it, and emit its result")
        self.turn.emit(tag, output)

    def add_usage(self, usage: Usage) -> None:
        """Count the tokens of a model response; see :meth:`Turn.add_usage`."""
        self._usage_spent = usage if self._usage_spent is NO_USAGE else self._usage_spent + usage
        self.turn.add_usage(usage)
        self._check_budget()

    @property
    def spent(self) -> Spent:
        """Steps and tokens so far."""
        return Spent(self._steps_spent, self._usage_spent)

    def _check_budget(self) -> None:
        if self.budget is not _NO_BUDGET:
            self.budget.check(self.spent)

    def durable(
        self, step: str, run: Callable[[], Awaitable[Any]], asked: Asked = NOTHING_ASKED
    ) -> Coroutine[Any, Any, Any]:
        """See :meth:`Turn.durable`."""
        self._check_current()
        self._steps_spent += 1
        self._check_budget()
        return self.turn.durable(step, run, asked)

    def skill_state_of(self, model: ModelRuntime) -> SkillState:
        """What is loaded in the conversation with ``model``."""
        found = self.skill_states.get(model.name)
        if found is None:
            kept = self.before.skill_states.get(model.name)
            found = SkillState.from_json(kept) if kept is not None else SkillState()
            if model.settings.lifetime == "session":
                self._outlive_turn.add(model.name)
            else:
                found.clear()
            self.skill_states[model.name] = found
        return found

    def digests_of(self, model: ModelRuntime) -> dict[str, str]:
        """The versions of the skills that are loaded in the conversation with ``model``, by name."""
        state = self.skill_state_of(model)
        return {name: state[name].digest for name in state} if len(state) else {}

    def kept_skill_states(self) -> dict[str, Any]:
        """What the session keeps of the skill state of each conversation, at the end of the turn."""
        found = {}
        for name, state in self.skill_states.items():
            if name not in self._outlive_turn:
                state.clear()
            data = state.to_json()
            if name in self.before.skill_states or data != SkillState().to_json():
                found[name] = data
        return found

    @property
    def artifacts(self) -> dict[str, str]:
        """The newest version of each artifact that the conversations of this run saved, by name."""
        # Not by what is in memory alone: a conversation of earlier turns may not have gone on in this one.
        for model in self.generation.models.values():
            self.skill_state_of(model)
        return {name: version for state in self.skill_states.values() for name, version in state.artifacts.items()}

    def _routed(self, model: str | None) -> str | None:
        """The model that a call names, or the one that the agent's route chooses for the event."""
        route = self.runtime.plan.route
        return route.choose(self.event) if model is None and route is not None else model

    def tool_scope(self, model: str | None) -> ModelRuntime:
        """See :meth:`Generation.tool_scope`."""
        return self.generation.tool_scope(self._routed(model))

    def chat(
        self, message: Any, *, model: str | None, output_type: Any, content: Sequence[Media] | None = None
    ) -> Coroutine[Any, Any, Any]:
        """See :meth:`AgentContext.chat`."""
        return chat(self, self._routed(model), message, output_type, content)

    async def call_tool(self, name: str, arguments: Mapping[str, Any], *, model: str | None) -> Any:
        scope = self.tool_scope(model)
        with self.call(f"tool:{name}") as (step, place):
            result = await self.run_tool(scope, step, name, arguments, place)
            self.apply(scope, name, arguments, result)
            if result.is_error:
                raise TurnError(f"tool {name}: {result.content}")
            return result.value if result.value is not None else result.content

    async def step(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        result_type: Any,
    ) -> Any:
        codec = StepCodec.of(fn, result_type, name)
        with self.call(f"step:{name}") as (step, place):

            async def run() -> Any:
                with observe("step", name, step, call_id=self.turn.call_id(step)):
                    if inspect.iscoroutinefunction(fn):
                        value = await fn(*args, **kwargs)
                    else:
                        value = await in_thread(fn, *args, **kwargs)
                        if inspect.isawaitable(value):
                            value = await value
                    if self._is_own_line():
                        self._ended()
                    return codec.dump(value)

            # Without keyword arguments as in earlier releases, whose journals have these fingerprints.
            what = fingerprint(name, args, kwargs) if kwargs else fingerprint(name, args)
            kept = await self.durable(step, run, place._replace(what=what))
            return codec.load(kept)

    async def tools_of(self, model: ModelRuntime) -> ToolSet:
        """What ``model`` may call now: its own tools, and those of the skills that it has loaded."""
        if not model.is_dynamic:
            return model.tools
        always, pool = self._fixed_tools(model) or await self._asked_tools(model)
        state = self.skill_state_of(model)
        revision, tools = self._tools.get(model.name, (-1, always))
        if revision != state.revision:
            tools = model.tools_with(always, state, pool)
            self._tools[model.name] = (state.revision, tools)
        return tools

    def is_new(self, model: ModelRuntime, state: SkillState) -> bool:
        """Whether anything was loaded or chosen since this was asked last, which was before the last request."""
        before = self._revisions.get(model.name)
        self._revisions[model.name] = state.revision
        return before != state.revision

    def _fixed_tools(self, model: ModelRuntime) -> tuple[ToolSet, Mapping[str, Tool]] | None:
        """What :meth:`_asked_tools` would give, where nobody has to be asked: at no cost for the turn."""
        services = model.services
        if services.toolsets is not None:
            return None
        pool = {} if services.pool is None else services.pool.fixed()
        return None if pool is None else (model.tools, pool)

    async def _asked_tools(self, model: ModelRuntime) -> tuple[ToolSet, Mapping[str, Tool]]:
        if model.name not in self._pools:
            self._pools[model.name] = asyncio.ensure_future(self._pool_tools(model))
        return await asyncio.shield(self._pools[model.name])

    async def _pool_tools(self, model: ModelRuntime) -> tuple[ToolSet, Mapping[str, Tool]]:
        """The tools that the model always has, and those of the job's pool; asked for once in a turn: both may depend
        on the key."""
        toolsets, pool = model.services.toolsets, model.services.pool
        if toolsets is None and pool is None:
            return model.tools, {}
        context = await self.turn.tool_context(self, model, self.prefix, workspace=False)
        given = {} if toolsets is None else await toolsets.tools(context)
        return model.always(given), {} if pool is None else await pool.tools(context)

    async def run_tool(
        self,
        model: ModelRuntime,
        step: str,
        name: str,
        arguments: Mapping[str, Any] | str,
        place: Asked = NOTHING_ASKED,
        *,
        model_call_id: str = "",
        tools: ToolSet | None = None,
    ) -> ToolResult:
        """Call a tool durably, as ``model`` may now, or one of ``tools``; the result changes nothing before
        :meth:`apply`.

        ``model_call_id`` is what the model calls it, which listeners know from its answer.
        """

        replayed = True

        async def run() -> Any:
            nonlocal replayed
            replayed = False
            offered = tools or await self.tools_of(model)
            tool = offered.get(name)
            workspace = tool is not None and tool.uses_workspace
            context = await self.turn.tool_context(self, model, step, workspace=workspace)
            if tool is not None and not tool.idempotent:
                context.attempt = await self.turn.begins(step)
            context.extra[CALLER] = (self, step)
            observed = observe(
                "tool",
                name,
                step,
                model=model.name,
                call_id=context.call_id,
                model_call_id=model_call_id,
                arguments=arguments,
                digests=self.digests_of(model),
                # Models invent names.
                known=tool is not None,
            )
            with observed as activity:
                called = await self.media.kept_result(name, await offered.call(name, arguments, context))
                activity.attributes.update(content=called.content, is_error=called.is_error)
            result = result_to_json(called)
            spent: Spent | None = context.extra.get(SPENT)
            return result if spent is None else {**result, "sub": spent.to_json()}

        entry = await self.durable(step, run, place._replace(what=fingerprint(name, arguments)))
        if "sub" in entry:
            spent = Spent.from_json(entry["sub"])
            self._steps_spent += spent.steps
            self._usage_spent += spent.usage
            self._check_budget()
            if replayed:
                # What the agent that was called has spent counts as if it had done so now.
                self.turn.count_steps(spent.steps)
                self.turn.add_usage(spent.usage)
        return result_from_json(entry)

    def apply(self, model: ModelRuntime, name: str, arguments: Mapping[str, Any] | str, result: ToolResult) -> None:
        """Note the call, and change what is loaded as its result says.

        Not in :meth:`run_tool`: of calls that run at the same time another one may be first when they are repeated
        from the journal.
        """
        self.tool_calls.append({"name": name, "arguments": arguments, "error": result.is_error})
        state = self.skill_state_of(model)
        for effect in result.effects:
            if effect.get("op") == STATE_EFFECT:
                self.state = changed_state(
                    self.state, StoredState(effect["set"], effect.get("types", {})), effect["gone"]
                )
                continue
            state.apply(effect)
            if effect.get("op") == "load" and effect["skill"] not in self.loaded:
                self.loaded.append(effect["skill"])
