"""The agent class that users write, the answers of its hooks, and replacements of its models in tests."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, get_args, get_origin

from flink_skills.agents.declare.context import AgentContext, OutputT, StateT
from flink_skills.errors import ConfigError, PlanError, TurnError, UnknownNameError
from flink_skills.models.base import ChatModel
from flink_skills.models.messages import ModelRequest, ModelResponse
from flink_skills.models.registry import ModelSetup, check_setup, create_model
from flink_skills.options import SkillConfig
from flink_skills.telemetry import OnDelta
from flink_skills.tools.base import ToolResult

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from flink_skills.models.base import ChatModel
    from flink_skills.models.messages import ModelRequest, ModelResponse
    from flink_skills.telemetry import Observer
    from flink_skills.tools.base import ToolResult
    from flink_skills.tools.calling import Approval, ApprovalRequest


@dataclass(frozen=True)
class Refusal:
    """The result of a hook that refuses a request to a model or a tool call.

    A refused request fails the turn. A refused call returns an error with the reason to the model.

    Attributes:
        reason: The reason, one sentence.

    >>> Refusal("the budget of this tenant is spent").reason
    'the budget of this tenant is spent'
    """

    reason: str


class ToolInvocation:
    """A tool call, as :meth:`Agent.around_tool` and the ``around`` of a tool receive it.

    Attributes:
        name: The name of the tool.
        arguments: A copy of the canonical arguments: declared names, types and defaults. They fit the tool.

    Example:
        >>> result = await call.run({**call.arguments, "limit": 10})
    """

    __slots__ = ("_execute", "_hook", "arguments", "name", "result")

    def __init__(
        self,
        name: str,
        arguments: Mapping[str, Any],
        execute: Callable[[Mapping[str, Any]], Awaitable[ToolResult]],
        hook: str = "around_tool",
    ) -> None:
        self._hook = hook
        self.name = name
        self.arguments = arguments
        self._execute: Callable[[Mapping[str, Any]], Awaitable[ToolResult]] | None = execute
        #: The result of :meth:`run`, None before.
        self.result: ToolResult | None = None

    async def run(self, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Call the tool, and return its result. A call that fails returns a result with ``is_error``.

        Changed arguments that do not fit the tool return its error. The runtime requests the approval that the tool
        needs, and applies limits and retries.

        Args:
            arguments: The arguments. None: those of the call.

        Raises:
            TurnError: The hook runs the call a second time, or after the hook has ended.
            LimitError: The turn is at a limit.
        """
        execute, self._execute = self._execute, None
        if execute is None:
            raise TurnError(f"{self._hook} ran the call of {self.name!r} more than once, or after its end: run it once")
        self.result = await execute(self.arguments if arguments is None else arguments)
        return self.result

    def close(self) -> None:
        """Reject a later :meth:`run`."""
        self._execute = None


Replacement = ChatModel | str
"""A model, or ``"provider:model"``."""

_current: ContextVar[ModelOverrides | None] = ContextVar("flink_skills_model_overrides", default=None)


class Named(Protocol):
    """A chat model of a plan, or a fallback of one."""

    @property
    def name(self) -> str: ...


class Model(Named, Protocol):
    """A chat model of a plan."""

    @property
    def fallback(self) -> Sequence[Named]: ...


class Planned(Protocol):
    """An agent of a plan: the plans themselves import agents, which import this module."""

    @property
    def agent_id(self) -> str: ...

    @property
    def models(self) -> Sequence[Model]: ...

    def tree(self) -> Iterator[Planned]: ...


class ModelOverrides:
    """Replacements of models by the id of their agent; an agent that is a tool has those of its caller, or its own."""

    def __init__(self, by_agent: Mapping[str, Mapping[str, Replacement] | Replacement] | None = None) -> None:
        self._by_agent = dict(by_agent or {})

    def with_agent(self, agent: str, models: Mapping[str, Replacement] | Replacement) -> ModelOverrides:
        """Return these replacements and those of ``agent``."""
        return ModelOverrides({**self._by_agent, agent: models})

    def __or__(self, other: ModelOverrides) -> ModelOverrides:
        return ModelOverrides({**self._by_agent, **other._by_agent})

    def of(self, plan: Planned) -> bool:
        """Return True if a model of ``plan``, or of an agent that it calls, is replaced.

        Raises :class:`UnknownNameError` for a replacement of a model that the agent does not have.
        """
        for each in plan.tree():
            models = self._by_agent.get(each.agent_id)
            for name in models if isinstance(models, Mapping) else ():
                known = [of.name for model in each.models for of in (model, *model.fallback)]
                if name not in known:
                    raise UnknownNameError("chat model", name, known, place=f"override of agent {each.agent_id}")
        return any(each.agent_id in self._by_agent for each in plan.tree())

    def model(self, callers: tuple[str, ...], model: Named, config: SkillConfig) -> ChatModel | None:
        """Return the replacement for ``model``, or None. ``callers`` are agent ids, each called by the one before it.

        An agent's own replacement takes precedence over one of its callers.
        """
        for agent in reversed(callers):
            models = self._by_agent.get(agent)
            if isinstance(models, Mapping):
                # Names are those of this agent's models alone.
                models = models.get(model.name) if agent == callers[-1] else None
            if models is not None:
                return _Borrowed(models) if isinstance(models, ChatModel) else create_model(_setup(models), config)
        return None


class _Borrowed(ChatModel):
    """A model of the caller, which outlives the agents that use it."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self.name = model.name
        self.accepts = model.accepts

    async def request(self, request: ModelRequest) -> ModelResponse:
        return await self._model.request(request)

    async def stream(self, request: ModelRequest, on_delta: OnDelta) -> ModelResponse:
        return await self._model.stream(request, on_delta)


def current_overrides() -> ModelOverrides:
    """Return the replacements that are in effect here."""
    return _current.get() or ModelOverrides()


@contextlib.contextmanager
def override_models(agent: str, model: Mapping[str, Replacement] | Replacement) -> Iterator[Any]:
    """Replace the chat models of the agent with the id ``agent``. See :meth:`Agent.override`."""
    for one in model.values() if isinstance(model, Mapping) else [model]:
        if isinstance(one, str):
            check_setup(_setup(one), place=f"override of agent {agent}")
        elif not isinstance(one, ChatModel):
            raise ConfigError(
                f"override of agent {agent}: model is of type {type(one).__name__}: give a ChatModel, such as "
                "flink_skills.testing.ScriptedModel, a text such as 'offline', or a dict of them by the model's name"
            )
    token = _current.set(current_overrides().with_agent(agent, model))
    try:
        yield model
    finally:
        _current.reset(token)


def _setup(text: str) -> ModelSetup:
    return ModelSetup.parse(text)


class _Override:
    """``Agent.override`` of a class and of an instance."""

    def __get__(self, agent: Agent | None, cls: type[Agent]) -> Callable[..., Any]:
        name = (agent if agent is not None else cls).name
        id_ = name if isinstance(name, str) and name else f"{cls.__module__}.{cls.__qualname__}"

        def override(*, model: Any) -> Any:
            return override_models(id_, model)

        return override


class Agent(Generic[StateT, OutputT]):
    """An agent: its instructions, skills, models and tools, and the code that handles an event.

    Subclass it and declare attributes. Without more code, each event goes through the loop of model and tools, and the
    agent emits the answer. Override :meth:`on_event` for another workflow.

    ``Agent[State, Output]`` states ``state_type`` and ``output_type`` for type checkers and for the runtime.

    Attributes:
        instructions: The system text. A ``@prompt`` method named ``instructions`` has the same effect.
        output_type: The type of the answer: a pydantic model, or any type that pydantic can validate. The model gets
            another request if its answer does not fit. None: a string.
        input_type: For an agent that is a tool of another one (``@agent_tool``): a pydantic model for the request.
            None: a string, ``request``.
        session: ``"event"``: each event has its own conversation. ``"key"``: the conversation continues over the
            events of a key.
        session_selector: With ``session = "key"``, selects a conversation: a field of the events, or a function or
            method that receives the event and returns a string or a number. None, or an event without the field: the
            key has one conversation. All conversations of a key share ``ctx.state`` and the workspace.
        state_type: A pydantic model or a dataclass for ``ctx.state``. None: a dict.
        skill_names: The names of the only skills of the job and of the agent that its models may see. None: all of
            them. The ``skill_names`` of a chat model narrow this further. An agent that is a tool has its own.
        approve_tools: Names or patterns of tools whose calls :meth:`approve` decides, in addition to those of
            ``skills.tools.approve``.
        run_code: True to run the code of its models' answers in the sandbox. None: the value of
            ``skills.code.enabled``.
        route: A :class:`Route`. A field of the event then chooses the chat model of chats that name no model. None: the
            first chat model.
        model: Shorthand for a chat model without a ``@chat_model_setup``: ``"offline"`` or ``"provider:model"``.

    >>> class Triage(Agent):
    ...     instructions = "You triage incidents of Flink jobs."
    ...     model = "offline"
    """

    if not TYPE_CHECKING:  # a type checker finds these arguments itself

        def __init__(self, *arguments: Any, **named: Any) -> None:
            if arguments or named:
                given = ", ".join([*("…" for _ in arguments), *(f"{name}=…" for name in named)])
                raise PlanError(
                    f"{type(self).__qualname__}({given}): an agent is configured by attributes of a class, such as "
                    "'class Triage(Agent): name = \"triage\"', or by arguments that its own __init__ declares"
                )

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        for base in vars(cls).get("__orig_bases__", ()):
            if not isinstance(origin := get_origin(base), type) or not issubclass(origin, Agent):
                continue
            for name, stated in zip(("state_type", "output_type"), get_args(base), strict=False):
                if (
                    stated in (Any, str, type(None))
                    or isinstance(stated, TypeVar)
                    or (get_origin(stated) or stated) is dict
                ):
                    continue  # text, and a state that is a dict, are the defaults
                declared = vars(cls).get(name, stated)
                if declared != stated:
                    raise PlanError(
                        f"{cls.__qualname__}: {name} is {declared!r}, and Agent[…] of its bases says {stated!r}: state "
                        "the type in one of the two places"
                    )
                setattr(cls, name, stated)

    # Any: a method with @prompt or @chat_model_setup may have the name of either.
    instructions: Any = ""
    output_type: Any = None
    input_type: Any = None
    session: str = "event"
    session_selector: Any = None
    state_type: Any = None
    model: Any = None
    route: Any = None
    run_code: bool | None = None
    approve_tools: Sequence[str] = ()
    skill_names: Sequence[str] | None = None

    #: Field of an event that holds files for commands: a list of mappings with ``name`` and ``data`` (bytes or base64),
    #: ``text`` or ``uri`` (``artifact://…``). They are staged to ``work/inputs/``, and models read only their names.
    files_field: str = "files"

    #: Fields of an event that hold images, PDF documents and audio for models: bytes, base64, ``data:`` URLs, addresses
    #: under ``skills.files.allowed``, artifacts, or lists of these. The text of the event has their names instead.
    content_fields: Sequence[str] = ()

    #: Field of an event with the id or the name of a wait. An event with a value in this field is the answer to that
    #: wait of its key, and has no turn. Do not combine it with approvals, which the author of an event could answer.
    #: Empty: no event is an answer.
    answer_field: str = ""

    #: Name of the agent in plans, metrics and call ids; empty: the class's qualified name.
    name: str = ""

    if TYPE_CHECKING:

        @classmethod
        def override(cls, *, model: Mapping[str, ChatModel | str] | ChatModel | str) -> AbstractContextManager[Any]:
            """Replace the chat models of the agent in a ``with`` block, for tests with ``from_list``.

            Call it on the class or on an instance. The replacement applies to agents that are tools of this one as
            well, unless they have another one. The agent keeps its skills, tools and prompts.

            Args:
                model: A :class:`ChatModel` or ``"provider:model"`` for all models, or a dict of these by the name of
                    the model.

            Raises:
                ConfigError: ``model`` is of another type.

            >>> with Triage.override(model=ScriptedModel(["Ask payments."])):
            ...     answers = agents_env.from_list(["billing is down"]).apply(Triage).to_list()
            """
    else:
        override = _Override()

    def answer_of(self, event: Any) -> tuple[str, Any] | None:
        """Return the wait that an event answers, and the answer. Return None for an event that has a turn."""
        if not self.answer_field:
            return None
        wait = event.get(self.answer_field) if isinstance(event, Mapping) else getattr(event, self.answer_field, None)
        return (str(wait), event) if wait else None

    def visible_skills(self, event: Any, ctx: AgentContext[StateT, OutputT]) -> Iterable[str] | None:
        """Return the names of the only skills that the models may see for this event. None: all skills that they have.

        The runtime calls it when a turn begins, and again when it is restarted. It must return the same for the same
        event, key and state.
        """
        return None

    def approve(self, request: ApprovalRequest) -> Approval | bool | str | Awaitable[Approval | bool | str]:
        """Approve or reject a call of a tool that ``skills.tools.approve`` names. It can be asynchronous.

        Return True to approve, and False or a reason for the model to reject. It may take as long as the turn. The
        runtime calls it before the call, and again if the turn is restarted before the call has a result.
        """
        return "this agent approves no calls: give it a method approve"

    async def before_model(
        self, request: ModelRequest, ctx: AgentContext
    ) -> ModelRequest | ModelResponse | Refusal | str | None:
        """Decide about a request to a chat model before it is sent.

        The hooks of an agent run inside a durable step. The journal stores the response, and a replay does not call the
        hook. A hook can therefore use a clock, a random number or a service. If the worker is lost before the response
        is stored, the hook runs again with the request.

        ``ctx`` has the attributes of the turn. ``ctx.state`` is a copy: its changes are stored with the response.
        ``ctx.chat``, ``ctx.call_tool``, ``ctx.step`` and ``ctx.emit`` are not available in a hook.

        Args:
            request: The request. It can be one that summarizes a conversation.
            ctx: The turn.

        Returns:
            None to send the request, or another request to send, such as ``replace(request, settings={…})``. A
            :class:`ModelResponse` or a string answers instead of the model. A :class:`Refusal` fails the turn.

        Raises:
            Exception: Any exception fails the turn.
        """
        return None

    async def around_tool(
        self, call: ToolInvocation, ctx: AgentContext[StateT, OutputT]
    ) -> ToolResult | Refusal | str | None:
        """Decide about a tool call. The hook can change its arguments, run it, and change its result.

        It runs inside the durable step of the call, see :meth:`before_model`. It precedes the checks of the arguments,
        approval, limits and retries, which :meth:`ToolInvocation.run` applies. It is called for calls of models, of
        ``ctx.call_tool`` and of code in answers. It is not called for a tool that does not exist, or for arguments that
        are not an object.

        Args:
            call: The call.
            ctx: The turn. ``ctx.state`` has the changes of the tool after ``call.run()``.

        Returns:
            None for the result of ``call.run()``, which is called if the hook has not done so. A :class:`ToolResult` or
            a string replaces the result; the effects of the call, such as a loaded skill, remain. A :class:`Refusal`
            returns an error to the model.

        Raises:
            Exception: Any exception fails the turn.
        """
        return None

    async def evict(self, loaded: Sequence[str], ctx: AgentContext[StateT, OutputT]) -> Iterable[str] | str | None:
        """Choose the skills to unload when a conversation has more than ``skills.max-loaded``.

        The runtime calls it before a request to a model. The journal stores the choice with the response.

        Args:
            loaded: The names of the loaded skills, the one used longest ago first.
            ctx: The turn.

        Returns:
            One name or several. None: the skills used longest ago. If more skills must be unloaded than the hook
            returns, those used longest ago are unloaded as well.

        Raises:
            Exception: Any exception fails the turn.
        """
        return None

    def listeners(self) -> Sequence[Observer]:
        """Return the observers of the turns of this agent. They run in the process of the turns.

        They receive calls and results, and with ``wants_deltas`` answers while they arrive. The content is unchanged,
        including secrets. A worker calls this method one time, and closes the observers with the agent. An exception of
        an observer is logged and affects no turn.
        """
        return ()

    async def on_event(self, event: Any, ctx: AgentContext[StateT, OutputT]) -> Any:
        """Handle one event. A result that is not None is emitted.

        Put everything that is slow, costs money or has an effect into a durable step (``ctx.chat``, ``ctx.call_tool``,
        ``ctx.step``). After a failure the method runs again from its beginning, and finished steps return their results
        from the journal. The code between the steps must therefore request the same steps for the same event, state
        and results.
        """
        return await ctx.chat(event)
