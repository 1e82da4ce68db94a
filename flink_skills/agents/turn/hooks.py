"""Runs the hooks of an agent inside the durable steps of its requests and tool calls, on a copy of the state."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from flink_skills.agents.declare.agent import Refusal, ToolInvocation
from flink_skills.agents.state.error_text import error_text
from flink_skills.agents.state.state_values import StoredState
from flink_skills.agents.state.typed_state import changed_state, state_effects, stored_state
from flink_skills.agents.turn.agent_turn import TurnContext, state_changes
from flink_skills.artifacts import artifact_ref
from flink_skills.errors import SkillsError, TurnError
from flink_skills.models.messages import AssistantMessage, ModelRequest, ModelResponse, ToolMessage, UserMessage
from flink_skills.models.well_formed import well_formed_conversation
from flink_skills.tools.base import ToolContext, ToolResult, TurnInterruptedError
from flink_skills.tools.state import unload_effect

if TYPE_CHECKING:
    from flink_skills.agents.turn.agent_turn import AgentTurn
    from flink_skills.tools import SkillState

_MESSAGES = (UserMessage, AssistantMessage, ToolMessage)


class StateCopy:
    """A copy of the state of an agent, for hooks or for a call of a tool. The first access creates it.

    Args:
        agent_turn: The agent's part in the turn.
        base: The state that is copied. None: that of the agent.
    """

    __slots__ = ("_agent_turn", "_before", "_value")

    def __init__(self, agent_turn: AgentTurn, base: StoredState | None = None) -> None:
        self._agent_turn = agent_turn
        self._before = base
        self._value: Any = None

    def open(self) -> Any:
        """Return a new copy. Raises :class:`TurnError` if the state cannot be stored."""
        if self._before is None:
            self._before = stored_state(self._agent_turn.state)
        self._value = self._agent_turn.agent.new_state(self._before)
        return self._value

    def get(self) -> Any:
        """Return the copy. Raises :class:`TurnError` if the state cannot be stored."""
        return self.open() if self._before is None else self._value

    def assign(self, value: Any) -> None:
        """Replace the copy. Raises :class:`TurnError` for a value that cannot be a state."""
        self.get()
        self._value = self._agent_turn.agent.assigned_state(value)

    def stored(self) -> StoredState | None:
        """Return the stored form of the copy, None if the hook has not read it."""
        return None if self._before is None else stored_state(self._value)

    def apply(self, effects: Iterable[Mapping[str, Any]]) -> None:
        """Apply the effects of the tool call that the hook runs, which are stored separately."""
        if self._before is not None:
            for stored, gone in state_changes(effects):
                self._value = changed_state(self._value, stored, gone)
            self._before = stored_state(self._value)

    def take_changes(self) -> list[dict[str, Any]]:
        """Return the effect of the changes since the last call. Raises :class:`TurnError` for an invalid state."""
        after = self.stored()
        if self._before is None or after is None:
            return []
        before, self._before = self._before, after
        return state_effects(before, after, removes=self._agent_turn.agent.has_plain_state)

    def with_change(self, result: ToolResult, context: ToolContext) -> ToolResult:
        """Return the result of a tool call with the changes of the copy. The changes of a failed call are dropped.

        A copy that cannot be stored makes the result an error.
        """
        if result.is_error or not context.has_used_state:
            return result
        try:
            self.assign(context.state)
            found = self.take_changes()
        except TurnError as error:
            return ToolResult(f"the tool left a state that cannot be stored: {error}", is_error=True)
        return replace(result, effects=(*result.effects, *found)) if found else result


class HookContext(TurnContext):
    """The context of a hook: the attributes of the turn, and a copy of the state.

    Args:
        agent_turn: The agent's part in the turn.
        skill_state: The skills that the conversation has loaded.
        state: The copy of the state.
        step: The id of the step of the request or call.
        hook: The name of the hook.
    """

    __slots__ = ("_hook", "_skill_state", "_state", "_step")

    _hook: str
    _skill_state: SkillState
    _state: StateCopy
    _step: str

    def __init__(
        self, agent_turn: AgentTurn, skill_state: SkillState, state: StateCopy, *, step: str, hook: str
    ) -> None:
        super().__init__(agent_turn)
        for name, value in (("_hook", hook), ("_skill_state", skill_state), ("_state", state), ("_step", step)):
            object.__setattr__(self, name, value)

    @property
    def call_id(self) -> str:
        return self._agent_turn.steps.call_id(self._step)

    @property
    def state(self) -> Any:
        return self._state.get()

    @state.setter
    def state(self, value: Any) -> None:
        self._state.assign(value)

    @property
    def skills(self) -> list[str]:
        return self._skill_state.names

    @property
    def artifacts(self) -> dict[str, str]:
        saved = self._skill_state.artifacts
        return {name: artifact_ref(name, version) for name, version in saved.items()}

    def _reject(self, method: str) -> NoReturn:
        raise TurnError(
            f"ctx.{method} is not available in {self._hook}, because a replay does not call the hook: call it in "
            "on_event, or await the function that you need"
        )

    def chat(self, message: Any = None, **options: Any) -> Any:
        self._reject("chat")

    def call_tool(self, name: str, arguments: Any = None, /, **more: Any) -> Any:
        self._reject("call_tool")

    def step(self, name: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._reject("step")

    def wait(self, name: str, payload: Any = None, **options: Any) -> Any:
        self._reject("wait")

    def sleep(self, seconds: Any, **options: Any) -> Any:
        self._reject("sleep")

    def sleep_until(self, when: Any, **options: Any) -> Any:
        self._reject("sleep_until")

    def cancel_wait(self, wait: str) -> Any:
        self._reject("cancel_wait")

    def forget(self) -> None:
        self._reject("forget")

    def emit(self, output: Any) -> None:
        self._reject("emit")

    def emit_to(self, tag: str, output: Any) -> None:
        self._reject("emit_to")


class _HookStep:
    """Hooks in one durable step, and the state copy that they share.

    Args:
        agent_turn: The agent's part in the turn.
        skill_state: The skills that the conversation has loaded.
        step: The id of the step.
    """

    __slots__ = ("_agent", "_agent_turn", "_skill_state", "_state", "_step")

    def __init__(self, agent_turn: AgentTurn, skill_state: SkillState, step: str) -> None:
        self._agent_turn = agent_turn
        self._agent = agent_turn.agent
        self._skill_state = skill_state
        self._step = step
        self._state = StateCopy(agent_turn)

    async def _decision(self, hook: str, subject: Any, function: Callable[..., Any] | None = None) -> Any:
        """Return what an agent's hook, or ``function``, returns. Raises :class:`TurnError` for its exceptions."""
        context = HookContext(self._agent_turn, self._skill_state, self._state, step=self._step, hook=hook)
        try:
            found = (function or getattr(self._agent.agent, hook))(subject, context)
            return await found if inspect.isawaitable(found) else found
        except (SkillsError, TurnInterruptedError):
            raise
        except Exception as error:  # hooks are the user's
            raise TurnError(f"agent {self._agent.plan.agent_id}: {hook} failed: {error_text(error)}") from error

    def _wrong(self, hook: str, value: Any, wanted: str) -> TurnError:
        found = type(value).__name__
        return TurnError(f"agent {self._agent.plan.agent_id}: {hook} returned a {found}: return {wanted}")


class RequestHooks(_HookStep):
    """Hooks around one model request. The journal stores their decisions with the response."""

    __slots__ = ("_unloaded",)

    def __init__(self, agent_turn: AgentTurn, skill_state: SkillState, step: str) -> None:
        super().__init__(agent_turn, skill_state, step)
        self._unloaded: list[str] = []

    async def evict(self, most: int) -> None:
        """Unload skills that the agent chooses, if more than ``most`` are loaded. A replay unloads the same ones."""
        if 0 < most < len(self._skill_state) and self._agent.hooks.evict:
            entry = self._agent_turn.steps.journal.peek(self._step)
            self._unloaded = await self._chosen() if entry is None else list(entry.get("unloaded", ()))
            for name in self._unloaded:
                self._skill_state.apply(unload_effect(name))

    async def _chosen(self) -> list[str]:
        loaded = self._skill_state.names
        chosen = await self._decision("evict", list(loaded))
        if chosen is None:
            return []
        names = [chosen] if isinstance(chosen, str) or not isinstance(chosen, Iterable) else list(chosen)
        for name in names:
            if name not in loaded:
                raise TurnError(
                    f"agent {self._agent.plan.agent_id}: evict returned {name!r}, which is not a loaded skill: return "
                    f"names of its argument ({', '.join(loaded)}), or None"
                )
        return names

    async def before_model(self, request: ModelRequest) -> ModelRequest | ModelResponse | Refusal:
        """Return the request to send, or what replaces its response."""
        if not self._agent.hooks.before_model:
            return request
        # Copies: a hook that changes a list or dict must not change the conversation or the settings of other turns.
        given = replace(request, messages=list(request.messages), settings=dict(request.settings))
        found = await self._decision("before_model", given)
        found = given if found is None else found
        if isinstance(found, ModelRequest) and not all(isinstance(of, _MESSAGES) for of in found.messages):
            raise self._wrong("before_model", found, "a request whose messages are messages of flink_skills.agents")
        if isinstance(found, ModelRequest) and found.messages != request.messages:
            # A hook can remove a call and leave its result.
            return replace(found, messages=well_formed_conversation(found.messages))
        if isinstance(found, (ModelRequest, ModelResponse, Refusal)):
            return found
        if isinstance(found, str):
            return ModelResponse(found)
        raise self._wrong("before_model", found, "None, a ModelRequest, a ModelResponse, a string or a Refusal")

    def decisions(self) -> dict[str, Any]:
        """Return the decisions for the journal."""
        changes = self._state.take_changes()
        return {**({"unloaded": self._unloaded} if self._unloaded else {}), **({"state": changes} if changes else {})}


class ToolHook(_HookStep):
    """The hooks around one tool call: the agent's, and inside it the tool's."""

    __slots__ = ()

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        execute: Callable[[Mapping[str, Any], StoredState | None], Awaitable[ToolResult]],
        around: Callable[..., Any] | None = None,
    ) -> ToolResult:
        """Return the result of a call of the tool ``name``.

        Args:
            name: The name of the tool.
            arguments: The arguments of the call.
            execute: Runs the call with arguments and a state. None: the agent's state.
            around: The tool's hook.
        """
        effects: list[Mapping[str, Any]] = []

        async def run(changed: Mapping[str, Any]) -> ToolResult:
            effects.extend(self._state.take_changes())
            result = await execute(changed, self._state.stored())
            self._state.apply(result.effects)
            effects.extend(result.effects)
            return result

        async def run_inside(changed: Mapping[str, Any]) -> ToolResult:
            return await self._around(f"around of tool {name}", name, changed, run, around)

        inner = run if around is None else run_inside
        if self._agent.hooks.around_tool:
            found = await self._around("around_tool", name, arguments, inner)
        else:
            found = await inner(arguments)
        # The effects are those of the call that ran, whatever its result became.
        return replace(found, effects=(*effects, *self._state.take_changes()))

    async def _around(
        self,
        hook: str,
        name: str,
        arguments: Mapping[str, Any],
        run: Callable[[Mapping[str, Any]], Awaitable[ToolResult]],
        function: Callable[..., Any] | None = None,
    ) -> ToolResult:
        async def checked(changed: Mapping[str, Any]) -> ToolResult:
            if not isinstance(changed, Mapping):
                raise TurnError(
                    f"agent {self._agent.plan.agent_id}: {hook} ran {name!r} with a {type(changed).__name__}: "
                    "give call.run() a mapping of arguments"
                )
            return await run(changed)

        call = ToolInvocation(name, arguments, checked, hook)
        try:
            found = await self._decision(hook, call, function)
            if found is None:
                found = call.result if call.result is not None else await call.run()
        finally:
            call.close()
        if isinstance(found, Refusal):
            return ToolResult(f"{name} was not called: {found.reason}", is_error=True)
        if isinstance(found, str):
            return ToolResult(found)
        if not isinstance(found, ToolResult):
            raise self._wrong(hook, found, "None, a ToolResult, a string or a Refusal")
        return found
