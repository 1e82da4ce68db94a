"""What an agent's ``on_event`` works with."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from flink_skills.agents.messages import Media, Usage
from flink_skills.agents.next_event import RESERVED_TAGS
from flink_skills.artifacts import artifact_ref
from flink_skills.errors import TurnError, near_misses
from flink_skills.other_frameworks import CONTEXT_WORDS
from flink_skills.telemetry.event_record import EVENTS_TAG

if TYPE_CHECKING:
    from flink_skills.agents.agent_run import AgentRun

__all__ = ["AgentContext"]


class AgentContext:
    """One turn, as the agent sees it.

    ``chat``, ``call_tool`` and ``step`` are durable: once finished they are in the turn's journal, and when the turn
    is restarted after a failure they answer from there. Attributes that are plain data may be read at any time.
    """

    def __init__(self, run: AgentRun) -> None:
        self._run = run

    if not TYPE_CHECKING:  # a type checker finds these attributes itself

        def __getattr__(self, name: str) -> Any:
            public = [known for known in dir(type(self)) if not known.startswith("_")]
            near = near_misses(name, public) if not name.startswith("_") else []
            advice = CONTEXT_WORDS.get(name) or (f"did you mean {near[0]!r}?" if near else "")
            raise AttributeError(f"AgentContext has no attribute {name!r}{': ' if advice else ''}{advice}")

        def __setattr__(self, name: str, value: Any) -> None:
            if name not in ("_run", "state"):
                raise AttributeError(
                    f"ctx.{name} cannot be set, because a context lasts for one turn: keep values in ctx.state, such "
                    f"as ctx.state[{name!r}] = …"
                )
            super().__setattr__(name, value)

    @property
    def key(self) -> Any:
        """The key of the event."""
        return self._run.turn.key

    @property
    def session_id(self) -> str:
        """Which conversation of the key this is, by the agent's ``session_selector``; empty without one."""
        return self._run.turn.session_id

    @property
    def turn(self) -> int:
        """Number of this turn on its key, from 1."""
        return self._run.turn.start.number

    @property
    def timestamp(self) -> int | None:
        """The event's timestamp in milliseconds since 1970, if the stream has event time."""
        return self._run.turn.start.timestamp

    @property
    def call_id(self) -> str:
        """Id of the step that runs now (inside of a step's function) or of the turn. The same on every retry, so that
        whoever receives it can recognise a repetition."""
        return self._run.turn.current_call_id()

    @property
    def state(self) -> Any:
        """The key's state: a dict, or an instance of the agent's ``state_type``. Change it in place; it is stored when
        the turn ends well.

        A dict holds what JSON has, and tuples, sets, dates, times, ``Decimal``, ``UUID`` and ``bytes``. Anything else
        raises :class:`TurnError`: where it is assigned to a key of the state, or at the end of the turn where it was
        added to a list or dict in the state.
        """
        return self._run.state

    @state.setter
    def state(self, value: Any) -> None:
        self._run.state = self._run.runtime.assigned_state(value)

    @property
    def usage(self) -> Usage:
        """Tokens and model requests of this turn so far."""
        return self._run.turn.usage

    @property
    def loaded_skills(self) -> list[str]:
        """Names of the skills that this turn loaded, in order."""
        return list(self._run.loaded)

    @property
    def artifacts(self) -> dict[str, str]:
        """What this conversation saved: references such as ``artifact://report.csv@0f3a…`` by name, the newest each."""
        return {name: artifact_ref(name, version) for name, version in self._run.artifacts.items()}

    @property
    def content(self) -> tuple[Media, ...]:
        """The images, PDF documents and audio in the ``content_fields`` of the event, in order."""
        return self._run.content

    def chat(
        self,
        message: Any = None,
        *,
        model: str | None = None,
        output_type: Any = ...,
        content: Sequence[Media] | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Let a chat model answer, with its skills and tools, until it has a final answer.

        Args:
            message: A text, or anything an event can be; None: the event of this turn. Chats of one turn continue one
                conversation per model.
            model: Name of a ``@chat_model_setup``; None: the agent's first.
            output_type: What the answer must be; default: the agent's ``output_type``. None: text.
            content: The images, PDF documents and audio that the model receives with the message. None: those of the
                event if the message is the event, else none.

        Returns:
            The answer: a ``str``, or an instance of ``output_type``.

        Raises:
            ModelError: the model cannot be reached, after all retries.
            LimitError: the turn is at a limit (steps, tokens).
            TurnError: the model gave no usable answer.
        """
        return self._run.awaited(
            "ctx.chat", self._run.chat(message, model=model, output_type=output_type, content=content)
        )

    def call_tool(
        self, name: str, arguments: Any = None, /, *, model: str | None = None, **more: Any
    ) -> Coroutine[Any, Any, Any]:
        """Call a tool as a model would, durably.

        Args:
            name: A tool of the agent, or one of the runtime's such as ``execute_shell_command``.
            arguments: The arguments as a mapping; keyword arguments add to it.
            model: The chat model whose skills and tools count; None: the agent's first, or, for an agent without
                models, all of its skills and tools.

        Returns:
            The tool's result as JSON-like data.

        Raises:
            TurnError: the tool answered with an error.
        """
        call = self._run.call_tool(name, {**(arguments or {}), **more}, model=model)
        return self._run.awaited(f"ctx.call_tool({name!r})", call)

    def step(
        self, name: str, fn: Callable[..., Any], *args: Any, result_type: Any = None, **kwargs: Any
    ) -> Coroutine[Any, Any, Any]:
        """Run ``fn(*args, **kwargs)`` as a durable step.

        Args:
            name: What the step is called in the journal; the same name may be used several times.
            fn: A plain function (it runs on a thread) or an async one.
            result_type: Type of the result where it is not JSON-like: anything pydantic can write and read.
                A return annotation that pydantic can read does the same.

        Raises:
            TurnError: the result cannot be kept in the journal.
            Exception: whatever ``fn`` raises.
        """
        return self._run.awaited(f"ctx.step({name!r})", self._run.step(name, fn, args, kwargs, result_type))

    def emit(self, output: Any) -> None:
        """Emit an output. Outputs of a turn leave together when it ends, with the event's timestamp."""
        self._run.emit("", output)

    def emit_to(self, tag: str, output: Any) -> None:
        """Emit to the side output ``tag``. Raises :class:`TurnError` for ``events``, and for names that start with
        ``flink_skills.``: these outputs are the runtime's own."""
        if not tag.isascii():
            try:
                tag.encode()
            except UnicodeEncodeError as error:
                raise TurnError(f"emit_to({tag!r}): {error}; choose a tag without lone surrogates") from None
        if tag == EVENTS_TAG or tag.startswith(RESERVED_TAGS):
            raise TurnError(f"emit_to({tag!r}): this side output is the runtime's own; choose another tag")
        self._run.emit(tag, output)
