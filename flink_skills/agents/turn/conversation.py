"""The conversation of an agent with one chat model in a turn: messages, loaded skills and tools."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from flink_skills.agents.declare.subagent import Spent
from flink_skills.agents.state.codec import result_from_json, result_to_json
from flink_skills.agents.state.event import to_plain
from flink_skills.agents.state.fingerprints import fingerprint
from flink_skills.agents.state.history import about_tokens_of, placed, skill_results
from flink_skills.agents.state.journal import NOTHING_ASKED, Asked
from flink_skills.agents.state.session import SESSION_EFFECT
from flink_skills.agents.state.state_values import StoredState
from flink_skills.agents.state.typed_state import STATE_EFFECT
from flink_skills.agents.turn.agent_turn import ToolCaller
from flink_skills.agents.turn.hooks import RequestHooks, StateCopy, ToolHook
from flink_skills.agents.turn.wait_requests import CallWaits
from flink_skills.errors import LimitError
from flink_skills.models.messages import Message, ModelResponse
from flink_skills.models.well_formed import call_id, with_call_ids
from flink_skills.telemetry import observe
from flink_skills.tools import SkillState, ToolSet
from flink_skills.tools.base import ArgumentChange, Repeat, Tool, ToolContext, ToolResult
from flink_skills.tools.calling.toolset import parsed

if TYPE_CHECKING:
    from flink_skills.agents.open.generation import ModelRuntime
    from flink_skills.agents.open.open_agent import TurnLimits
    from flink_skills.agents.turn.agent_turn import AgentTurn
    from flink_skills.tools.calling.toolset import PreparedCall


_log = logging.getLogger(__name__)

_EMPTY = SkillState().to_json()
_SHOWN_ARGUMENTS = 300


class Repeats:
    """Counter in one chat for calls with the same tool, arguments and result.

    The journal has each number with its result, so that a replay builds the same messages. The first result of a tool
    has none: its digest is computed when the tool returns a second one.

    Args:
        limits: The limits of the turn.
    """

    __slots__ = ("_first", "_limits", "_times")

    def __init__(self, limits: TurnLimits) -> None:
        self._limits = limits
        self._times: dict[str, int] = {}
        # The arguments and the first result of each tool, None after its digest was counted.
        self._first: dict[str, tuple[Any, ToolResult] | None] = {}

    def count(
        self, name: str, tool: Tool | None, arguments: Any, result: ToolResult, *, is_plain: bool
    ) -> Repeat | None:
        """Return the number of ``result``. Return None for the first one, and if the tool may repeat results.

        ``is_plain`` says that the tool ran with the arguments that the model wrote.
        """
        if self._limits.polling.get(name, tool is not None and tool.repeats):
            return None
        # A replay knows neither what is compared nor the arguments that were changed.
        if name not in self._first and is_plain and result.compared is None:
            self._first[name] = arguments, result
            return None
        if (first := self._first.get(name)) is not None:
            self._next(_same(name, *first))
        self._first[name] = None
        return self._next(_same(name, arguments, result))

    def replayed(self, name: str, arguments: Mapping[str, Any] | str, result: ToolResult) -> None:
        """Count a result from the journal."""
        if result.repeat is not None:
            self._first.setdefault(name, None)
            self._next(result.repeat.digest)
        elif name not in self._first:
            self._first[name] = parsed(name, arguments), result

    def _next(self, same: str) -> Repeat | None:
        if not same:
            return None
        times = self._times[same] = self._times.get(same, 0) + 1
        return Repeat(same, times)

    def check(self, name: str, arguments: Mapping[str, Any] | str, result: ToolResult) -> None:
        """Raise :class:`LimitError` if a call was repeated too often."""
        most = self._limits.repeats
        if not most or result.repeat is None or result.repeat.times <= most:
            return
        shown = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)
        if len(shown) > _SHOWN_ARGUMENTS:
            shown = f"{shown[:_SHOWN_ARGUMENTS]}…"
        raise LimitError(
            f"the model goes in circles: {name} {shown} gave the same result {result.repeat.times} times, and "
            f"skills.turn.max-repeats is {most}. Fix what the call needs, or set skills.tool.repeats.{name} to true if "
            "the tool polls"
        )


def _same(name: str, arguments: Any, result: ToolResult) -> str:
    """Return the digest of a call and its result. It is empty if nothing can be compared."""
    effects = [{**effect, "call_id": ""} for effect in result.effects if effect.get("op") != SESSION_EFFECT]
    media = [[item.media_type, item.name, item.size, item.location] for item in result.media]
    what = result.content if result.compared is None else result.compared
    return fingerprint(name, arguments, result.is_error, what, effects, media)


class Conversation:
    """One conversation of an agent with a chat model.

    Args:
        agent_turn: The agent's part in the turn.
        model: The chat model, with its skills and tools.
        name: Its name in the session. Empty: the session does not store it.
    """

    def __init__(self, agent_turn: AgentTurn, model: ModelRuntime, name: str) -> None:
        self.agent_turn = agent_turn
        self.model = model
        self.name = name
        kept = agent_turn.kept.skill_states.get(name)
        #: True if the session of the key has a skill state of this conversation.
        self.was_kept = name in agent_turn.kept.skill_states
        #: The skills that are loaded, the tools that were chosen and the artifacts that were saved.
        self.skill_state = SkillState() if kept is None else SkillState.from_json(kept)
        self._outlives_turn = model.settings.lifetime == "session"
        if not self._outlives_turn:
            self.skill_state.clear()
        #: The messages of earlier turns.
        self.kept_messages: Sequence[Message] = agent_turn.kept.sendable(name)
        #: The messages of this turn.
        self.messages: list[Message] = []
        #: The messages with which its requests begin, None before the first request. See :func:`history_of`.
        self.history: Sequence[Message] | asyncio.Future[Sequence[Message]] | None = None
        #: The messages that replace those of the session, None if they were not shortened.
        self.shortened: list[Message] | None = None
        #: The fallback of the model that answered last. It is asked first for the rest of the turn.
        self.answered_by = ""
        #: The ids of the calls in the responses of this turn.
        self.call_ids: set[str] = set()
        # The tools of the job's pool and of tool sets, which are asked for once in a turn.
        self._offered: asyncio.Future[tuple[ToolSet, Mapping[str, Tool]]] | None = None
        # The tools with those of loaded skills, and the revision of the skill state that they belong to.
        self._extended: tuple[int, ToolSet] | None = None
        self._seen_revision: int | None = None

    @property
    def digests(self) -> dict[str, str]:
        """The versions of the loaded skills, by name."""
        state = self.skill_state
        return {name: state[name].digest for name in state} if len(state) else {}

    def without_media(self) -> int:
        """Return how many of the first messages have no media: the cost of a request is independent of its history."""
        return 0 if self.shortened is not None else self.agent_turn.kept.without_media(self.name)

    def call_id(self, given: str, step: str, number: int) -> str:
        """Return the id that :meth:`with_ids` gives to a call in the response ``step``."""
        kept = self.agent_turn.kept.call_ids(self.name)
        return call_id(given, partial(self._place, step, number), self.call_ids, kept)

    def with_ids(self, response: ModelResponse, step: str) -> ModelResponse:
        """Return the response ``step`` with call ids that every provider accepts in this conversation."""
        if not response.tool_calls:
            return response
        kept = self.agent_turn.kept.call_ids(self.name)
        return with_call_ids(response, partial(self._place, step), self.call_ids, kept)

    def _place(self, step: str, number: int) -> str:
        return f"{self.agent_turn.steps.call_id(step)}:{number}"

    def skill_state_to_keep(self) -> Any | None:
        """Return the skill state that the session keeps at the turn's end, None for none."""
        if not self._outlives_turn:
            self.skill_state.clear()
        data = self.skill_state.to_json()
        return data if self.was_kept or data != _EMPTY else None

    def skill_results(self, messages: Sequence[Message]) -> Sequence[int]:
        """Return the positions in ``messages``, which begin with the session's, where results about skills are."""
        if self.shortened is not None:
            return skill_results(messages)
        found = self.agent_turn.kept.skill_results(self.name) if self.kept_messages else ()
        if not found and not self.skill_state.revision:
            return ()  # the conversation has never loaded a skill
        return (*found, *skill_results(messages, len(self.kept_messages)))

    def without_unloaded(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return ``messages`` without unloaded content. Returns the same sequence if they have none."""
        changed = self._without_content(messages)
        return [changed.get(at, message) for at, message in enumerate(messages)] if changed else messages

    def _without_content(self, messages: Sequence[Message]) -> Mapping[int, Message]:
        results = self.skill_results(messages)
        return placed(messages, results, self.skill_state, self.model.settings.content)[0] if results else {}

    def omit_unloaded(self) -> None:
        """Remove unloaded content from the messages, at the turn's end.

        Messages from earlier turns keep it until it is half their size, because the whole session is then written
        again.
        """
        history = self.kept_messages if self.shortened is None else self.shortened
        first = len(history)
        changed = self._without_content([*history, *self.messages])
        if not changed:
            return
        self.messages = [changed.get(at, message) for at, message in enumerate(self.messages, first)]
        freed = about_tokens_of([history[at] for at in changed if at < first])
        if self.shortened is not None or freed * 2 > self.agent_turn.kept.about_tokens(self.name):
            self.shortened = [changed.get(at, message) for at, message in enumerate(history)]

    async def unload_skills(self, hooks: RequestHooks | None) -> None:
        """Unload the skills whose time is over or that exceed the limit. The next request has the others."""
        state, settings = self.skill_state, self.model.settings
        if settings.lifetime == "once":
            state.forget_shown()
        if hooks is not None:
            await hooks.evict(settings.max_loaded)
        state.evict(settings.max_loaded)
        if settings.lifetime == "once":
            state.note_shown()

    def has_changed_skills(self) -> bool:
        """Return True if a skill was loaded or chosen since the last call of this method."""
        before, self._seen_revision = self._seen_revision, self.skill_state.revision
        return before != self._seen_revision

    def request_hooks(self, step: str) -> RequestHooks | None:
        """Return the hooks of the request whose response is ``step``, None if the agent has none."""
        hooks = self.agent_turn.agent.hooks
        if not (hooks.before_model or hooks.evict):
            return None
        return RequestHooks(self.agent_turn, self.skill_state, step)

    async def tools(self) -> ToolSet:
        """Return the tools that the model may call now: its own, and those of the skills that it has loaded."""
        model = self.model
        if not model.is_dynamic:
            return model.tools
        always, pool = self._fixed_tools() or await self._asked_tools()
        state = self.skill_state
        if self._extended is None or self._extended[0] != state.revision:
            self._extended = (state.revision, model.tools_with(always, state, pool))
        return self._extended[1]

    def _fixed_tools(self) -> tuple[ToolSet, Mapping[str, Tool]] | None:
        """Return what :meth:`_asked_tools` would return if no tool set and no server has to be asked."""
        services = self.model.services
        if services.toolsets is not None:
            return None
        pool = {} if services.pool is None else services.pool.fixed()
        return None if pool is None else (self.model.tools, pool)

    async def _asked_tools(self) -> tuple[ToolSet, Mapping[str, Tool]]:
        if self._offered is None:
            self._offered = asyncio.ensure_future(self._ask_for_tools())
        return await asyncio.shield(self._offered)

    async def _ask_for_tools(self) -> tuple[ToolSet, Mapping[str, Tool]]:
        """Return the tools that the model always has, and those of the job's pool. Both may depend on the key."""
        toolsets, pool = self.model.services.toolsets, self.model.services.pool
        if toolsets is None and pool is None:
            return self.model.tools, {}
        context = await self.tool_context(self.agent_turn.prefix, workspace=False)
        given = {} if toolsets is None else await toolsets.tools(context)
        return self.model.always(given), {} if pool is None else await pool.tools(context)

    async def tool_context(self, step: str, *, workspace: bool, state: StateCopy | None = None) -> ToolContext:
        """Return the context of a tool call in ``step``.

        ``workspace`` opens the workspace of the key for it. ``state`` is the copy of the state for the call.
        """
        model, agent_turn = self.model, self.agent_turn
        identity, steps, files = agent_turn.identity, agent_turn.steps, agent_turn.files
        opened = await files.workspace() if workspace and agent_turn.agent.workspaces is not None else None
        return ToolContext(
            key=identity.key,
            event=agent_turn.event,
            timestamp=identity.timestamp,
            session_id=identity.session_id,
            open_state=(state or StateCopy(agent_turn)).open,
            owner=identity.owner,
            turn=identity.number,
            call_id=steps.call_id(step),
            attempt=steps.attempt,
            agent=agent_turn.agent.plan.agent_id,
            model=model.name,
            skills=model.view,
            skill_state=self.skill_state,
            workspace=opened,
            open_workspace=files.workspace,
            staged_inputs=files.staged_inputs,
            shell=model.services.shell,
            artifacts=model.services.artifacts,
            accepts=model.chat_model.accepts,
            control=agent_turn.control,
            config=agent_turn.agent.job_config,
            metrics=agent_turn.agent.metrics,
        )

    async def run_tool(
        self,
        step: str,
        name: str,
        arguments: Mapping[str, Any] | str,
        place: Asked = NOTHING_ASKED,
        *,
        model_call_id: str = "",
        tools: ToolSet | None = None,
        repeats: Repeats | None = None,
    ) -> ToolResult:
        """Call a tool as a durable step. The result has no effect before :meth:`apply`.

        Args:
            step: The id of the step.
            name: The name of the tool.
            arguments: Its arguments, as JSON text if a model wrote them.
            place: The position of the call in the agent's code.
            model_call_id: The id that the model gave to the call. Observers know it from the response.
            tools: The tools that may be called. None: those that the model may call now.
            repeats: Counts calls by a model. None: the agent's code calls.
        """
        agent_turn = self.agent_turn
        replayed = True

        async def run() -> Any:
            nonlocal replayed
            replayed = False
            offered = tools or await self.tools()
            prepared = offered.prepare(name, arguments)
            tool, canonical = prepared.tool, prepared.arguments
            state = StateCopy(agent_turn)
            workspace = tool is not None and canonical is not None and tool.uses_workspace
            context = await self.tool_context(step, workspace=workspace, state=state)
            context.caller = caller = ToolCaller(agent_turn, step)
            context.waits = CallWaits(agent_turn, step)

            observed = observe(
                "tool",
                name,
                step,
                model=self.model.name,
                call_id=context.call_id,
                model_call_id=model_call_id,
                arguments=arguments if canonical is None else canonical,
                digests=self.digests,
                # Models invent names.
                known=tool is not None,
            )
            with observed as activity:
                if canonical is not None and _differs(prepared.parsed, canonical):
                    activity.attributes["requested_arguments"] = arguments
                try:
                    if canonical is not None and (agent_turn.agent.hooks.around_tool or _around(tool) is not None):
                        called = await self._call_with_hook(step, prepared, offered, context)
                    else:
                        if tool is not None and not tool.idempotent:
                            context.begin = partial(agent_turn.steps.begin, step)
                        called = state.with_change(await offered.run(prepared, context), context)
                finally:
                    if context.arguments is not None and context.arguments != canonical:
                        activity.attributes.update(arguments=context.arguments, requested_arguments=arguments)
                called = await agent_turn.media.kept_result(name, called)
                ran = canonical if context.arguments is None else context.arguments
                change = repeat = None
                if ran is not None and ran != prepared.parsed:
                    change = _change(prepared.parsed, ran, ran != canonical)
                if repeats is not None:
                    is_plain = ran is not None and change is None
                    used = prepared.parsed if ran is None else ran
                    repeat = repeats.count(name, tool, used, called, is_plain=is_plain)
                    if repeat is not None and repeat.times > 1:
                        activity.attributes["times"] = repeat.times
                activity.attributes.update(content=called.content, is_error=called.is_error)
            result = result_to_json(called, ran=change, repeat=repeat)
            if (spent := caller.spent) is not None:
                result["sub"] = spent.to_json()
            return result

        asked = place._replace(what=fingerprint(name, arguments))
        entry = await agent_turn.durable(step, run, asked)
        if "sub" in entry:
            agent_turn.add_spent(Spent.from_json(entry["sub"]), replayed=replayed)
        called = result_from_json(entry)
        if replayed and repeats is not None:
            repeats.replayed(name, arguments, called)
        return called

    async def _call_with_hook(
        self, step: str, prepared: PreparedCall, offered: ToolSet, context: ToolContext
    ) -> ToolResult:
        """Call a tool inside the agent's hook and its own. A hook gets a copy of the canonical arguments."""
        agent_turn, name, tool = self.agent_turn, prepared.name, prepared.tool
        assert tool is not None and prepared.arguments is not None  # noqa: S101 - other calls have no hook

        async def execute(given: Mapping[str, Any], base: StoredState | None) -> ToolResult:
            state = StateCopy(agent_turn, base)
            context.open_state = state.open
            if not tool.idempotent:
                context.begin = partial(agent_turn.steps.begin, step)
            call = prepared if given == prepared.arguments else offered.prepare(name, given)
            if call.problem is not None:
                _log.error(
                    "a hook of agent %s changed the arguments of tool %s (call %s), and they do not fit: %s",
                    agent_turn.agent.plan.agent_id,
                    name,
                    context.call_id,
                    call.problem.content,
                )
            return state.with_change(await offered.run(call, context), context)

        hook = ToolHook(agent_turn, self.skill_state, step)
        return await hook.call(name, prepared.arguments.copied(), execute, _around(tool))

    def apply(self, name: str, arguments: Mapping[str, Any] | str, result: ToolResult) -> None:
        """Apply the effects of a tool call, in the order of the calls.

        Not in :meth:`run_tool`: calls that run at the same time may end in another order when they are repeated from
        the journal.
        """
        self.agent_turn.note_call(name, arguments, result)
        for effect in result.effects:
            if effect.get("op") not in (STATE_EFFECT, SESSION_EFFECT):
                self.skill_state.apply(effect)


def _around(tool: Tool | None) -> Callable[..., Any] | None:
    return None if tool is None else tool.around


def _differs(requested: Mapping[str, Any] | str, canonical: Mapping[str, Any]) -> bool:
    """Return True if a requested argument has another name or value in the call. Defaults do not count."""
    return isinstance(requested, str) or any(
        value is not None and not _has(canonical, name, value) for name, value in requested.items()
    )


def _has(arguments: Mapping[str, Any], name: str, value: Any) -> bool:
    if name not in arguments:
        return False
    try:
        return bool(arguments[name] == value) and isinstance(value, bool) == isinstance(arguments[name], bool)
    except Exception:
        return False


def _change(requested: Mapping[str, Any] | str, ran: Mapping[str, Any], changed: bool) -> ArgumentChange:
    """Return the difference for the journal, which has the requested arguments with the response of the model."""
    before: Mapping[str, Any] = {} if isinstance(requested, str) else requested
    new = {
        name: value
        for name, value in ran.items()
        if not (_has(before, name, value) and type(before[name]) is type(value))
    }
    gone = tuple(name for name in before if name not in ran)
    return ArgumentChange(to_plain(new), gone, changed or _differs(requested, ran))
