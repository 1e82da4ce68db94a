"""The agent class that users write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from flink_skills.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from flink_skills.agents.context import AgentContext
    from flink_skills.agents.models.base import ChatModel
    from flink_skills.telemetry import Observer
    from flink_skills.tools.calling import Approval, ApprovalRequest

__all__ = ["Agent"]


class _Override:
    """``Agent.override`` of a class and of an instance."""

    def __get__(self, agent: Agent | None, cls: type[Agent]) -> Callable[..., Any]:
        from flink_skills.agents.overriding import override_models

        name = (agent if agent is not None else cls).name
        id_ = name if isinstance(name, str) and name else f"{cls.__module__}.{cls.__qualname__}"

        def override(*, model: Any) -> Any:
            return override_models(id_, model)

        return override


class Agent:
    """An agent: what it is told, which skills, models and tools it has, and what it does with an event.

    Subclass it and declare; without more code each event goes through the loop of model and tools, and the
    answer is emitted. Override :meth:`on_event` for a workflow of your own.

    Attributes:
        instructions: System text. A ``@prompt`` method named ``instructions`` does the same.
        output_type: Type of the answer (a pydantic model or anything pydantic can validate). The model is
            asked again while its answer does not fit. None: the answer is text.
        input_type: For an agent that is a tool of another one (``@agent_tool``): a pydantic model of what it is asked.
            None: a text, ``request``.
        session: ``"event"``: each event is a conversation of its own. ``"key"``: the conversation goes on over
            the events of a key.
        session_selector: With ``session = "key"``, what tells the conversations of one key apart: a field of the
            events, or a function (a method, too) of an event that gives a text or a number. None, or an event without
            the field: the key's one conversation. ``ctx.state`` and the workspace are the key's all the same.
        state_type: A pydantic model or a dataclass for ``ctx.state``; None: a dict.
        skill_names: The only skills of the job and of the agent that its models may see, a list of names. None: all of
            them. The ``skill_names`` of a chat model narrow this further. An agent that is a tool has its own.
        approve_tools: Tools whose calls :meth:`approve` answers for, by name or pattern, in addition to those of
            ``skills.tools.approve``.
        run_code: Whether the code of its models' answers is run in the sandbox; None: as ``skills.code.enabled`` says.
        route: A :class:`Route`: chats that name no model go to the chat model that a field of the event chooses. None:
            to the first chat model.
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

    def visible_skills(self, event: Any, ctx: AgentContext) -> Iterable[str] | None:
        """The only skills that the models may see for this event, of those that they have; None: all of them.

        Asked once, when a turn begins, and again when it is restarted: the answer must be the same for the same event,
        key and state.
        """
        return None

    def approve(self, request: ApprovalRequest) -> Approval | bool | str | Awaitable[Approval | bool | str]:
        """Whether a call may be made of a tool that ``skills.tools.approve`` names: True, False, or a text, which is a
        no and its reason for the model. May be asynchronous, and take as long as the turn may.

        Asked where the call is made, so again if the turn is restarted before the call has a result.
        """
        return "this agent approves no calls: give it a method approve"

    def listeners(self) -> Sequence[Observer]:
        """Who is told what happens in the turns of this agent, in the process where they run: calls and results, and
        with ``wants_deltas`` answers while they arrive. Asked once in each worker, which closes them with the agent.

        They are told everything as it is, secrets in it too. What they raise is logged and harms no turn.
        """
        return ()

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        """Handle one event. What is returned, when not None, is emitted.

        Everything that is slow, costs money or has an effect belongs into a durable step
        (``ctx.chat``, ``ctx.call_tool``, ``ctx.step``): after a failure the method runs again from its
        beginning, and finished steps answer from the journal. The code between the steps must therefore
        ask for the same steps when given the same event, state and answers.
        """
        return await ctx.chat(event)
