"""The interface that the code of an agent works with."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, overload

from typing_extensions import TypeVar

from flink_skills.errors import near_misses
from flink_skills.models.messages import Media, Usage
from flink_skills.options import JobConfig
from flink_skills.other_frameworks import CONTEXT_WORDS
from flink_skills.telemetry import MetricGroup

# Defaults: an agent without these types is not an error for a strict type checker.
StateT = TypeVar("StateT", default=Any)
OutputT = TypeVar("OutputT", default=Any)
_T = TypeVar("_T")
_P = ParamSpec("_P")


class Fresh(Enum):
    """The type of :data:`FRESH`."""

    FRESH = "fresh"


#: A conversation that begins with a call of ``ctx.chat`` and ends with it.
FRESH = Fresh.FRESH


class AgentContext(ABC, Generic[StateT, OutputT]):
    """One turn, as the code of an agent sees it.

    Type checkers know the type of ``ctx.state`` and of the answers of ``ctx.chat`` from the arguments of the class:
    ``ctx: AgentContext[Stock, Verdict]`` in an agent ``Agent[Stock, Verdict]``.

    ``chat``, ``call_tool``, ``step``, ``wait`` and ``sleep`` are durable: their results are stored in the journal of
    the turn, and a turn that is restarted after a failure reads them from there. All other attributes can be read at
    any time.
    """

    __slots__ = ()

    if not TYPE_CHECKING:  # a type checker finds these attributes itself

        def __getattr__(self, name: str) -> Any:
            public = [known for known in dir(AgentContext) if not known.startswith("_")]
            near = near_misses(name, public) if not name.startswith("_") else []
            advice = CONTEXT_WORDS.get(name) or (f"did you mean {near[0]!r}?" if near else "")
            raise AttributeError(f"AgentContext has no attribute {name!r}{': ' if advice else ''}{advice}")

        def __setattr__(self, name: str, value: Any) -> None:
            try:
                super().__setattr__(name, value)
            except AttributeError:
                raise AttributeError(
                    f"ctx.{name} cannot be set, because a context lasts for one turn: keep values in ctx.state, such "
                    f"as ctx.state[{name!r}] = …"
                ) from None

    @property
    @abstractmethod
    def key(self) -> Any:
        """The key of the event."""

    @property
    @abstractmethod
    def session_id(self) -> str:
        """The id of the conversation by the agent's ``session_selector``, empty without one."""

    @property
    @abstractmethod
    def turn(self) -> int:
        """The number of this turn on its key, from 1."""

    @property
    @abstractmethod
    def timestamp(self) -> int | None:
        """The timestamp of the event in milliseconds since 1970, None if the stream has no event time."""

    @property
    @abstractmethod
    def call_id(self) -> str:
        """The id of the step whose function runs now, the id of the turn outside steps.

        It is the same on every retry, so that a receiver can recognize a repetition.
        """

    @property
    @abstractmethod
    def state(self) -> StateT:
        """The state of the key: a dict, or an instance of the agent's ``state_type``.

        Change it in place. It is stored when the turn succeeds. A dict can have JSON values, tuples, sets, dates,
        times, ``Decimal``, ``UUID`` and ``bytes``. An assignment of anything else to a key of the state raises
        :class:`TurnError`. A value that was added to a list or dict in the state raises it at the end of the turn.
        """

    @state.setter
    @abstractmethod
    def state(self, value: StateT) -> None: ...

    @property
    @abstractmethod
    def usage(self) -> Usage:
        """The tokens and model requests of this turn so far."""

    @property
    @abstractmethod
    def finish_reason(self) -> str:
        """The reason why the last answer of a chat model ended, with the same name for all providers.

        ``stop`` or ``tool_calls`` is a complete answer, ``length`` a cut one, ``content_filter`` a filtered one. Any
        other name is that of the provider. It is empty if the provider gives none, and before the first answer.
        """

    @property
    @abstractmethod
    def skills(self) -> list[str]:
        """The names of the skills that are loaded now, in order of use.

        In a hook they are loaded in the conversation that sends the request or calls the tool. Otherwise they are
        loaded in any conversation that all chats with a model share, or that continued in this turn.

        Example:
            >>> if "refunds" in ctx.skills:
            ...     ctx.metrics.counter("refunds").inc()
        """

    @property
    @abstractmethod
    def skills_loaded_in_turn(self) -> list[str]:
        """The names of the skills that this turn loaded, in order, including unloaded ones."""

    @property
    @abstractmethod
    def artifacts(self) -> dict[str, str]:
        """References to the newest version of each artifact that the conversation saved, by name.

        Example: ``{"report.csv": "artifact://report.csv@0f3a…"}``.
        """

    @property
    @abstractmethod
    def content(self) -> tuple[Media, ...]:
        """The images, PDF documents and audio in the ``content_fields`` of the event, in order."""

    @property
    @abstractmethod
    def config(self) -> JobConfig:
        """The options of the job, read-only.

        ``config.get`` accepts constants of :class:`SkillOptions` and keys. Custom keys start with ``skills.user.``, and
        their values are strings. The worker replaces ``${env:NAME}`` and ``${file:/path}`` in such a value.

        Raises:
            UnknownNameError: By ``get``, if the job does not set a custom key and no default is passed.

        Example:
            >>> limit = int(ctx.config.get("skills.user.tenant-limit", default="5"))
            >>> seconds = ctx.config.get(SkillOptions.TURN_TIMEOUT)
        """

    @property
    @abstractmethod
    def metrics(self) -> MetricGroup:
        """The custom metrics: counters, gauges and histograms.

        The worker reports them to Flink as ``agent.<id>.user.<name>``. They are not durable. Code between steps runs
        again after a failure and counts again. The function of a step counts on each run of the step. It does not count
        when its result is read from the journal.

        Raises:
            TurnError: By the methods of the group, for an invalid name or value.

        Example:
            >>> ctx.metrics.counter("refunds").inc()
            >>> ctx.metrics.gauge("backlog").set(3)
            >>> ctx.metrics.group("tenant", "acme").histogram("amount").update(12.5)
        """

    @overload
    def chat(
        self,
        message: Any = None,
        *,
        model: str | None = None,
        content: Sequence[Media] | None = None,
        conversation: str | Fresh | None = None,
        system: str | None = None,
    ) -> Coroutine[Any, Any, OutputT]: ...

    @overload
    def chat(
        self,
        message: Any = None,
        *,
        output_type: None,
        model: str | None = None,
        content: Sequence[Media] | None = None,
        conversation: str | Fresh | None = None,
        system: str | None = None,
    ) -> Coroutine[Any, Any, str]: ...

    @overload
    def chat(
        self,
        message: Any = None,
        *,
        output_type: type[_T],
        model: str | None = None,
        content: Sequence[Media] | None = None,
        conversation: str | Fresh | None = None,
        system: str | None = None,
    ) -> Coroutine[Any, Any, _T]: ...

    @overload
    def chat(
        self,
        message: Any = None,
        *,
        output_type: Any,
        model: str | None = None,
        content: Sequence[Media] | None = None,
        conversation: str | Fresh | None = None,
        system: str | None = None,
    ) -> Coroutine[Any, Any, Any]: ...

    @abstractmethod
    def chat(
        self,
        message: Any = None,
        *,
        model: str | None = None,
        output_type: Any = ...,
        content: Sequence[Media] | None = None,
        conversation: str | Fresh | None = None,
        system: str | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Let a chat model answer, with its skills and tools.

        Args:
            message: A string, or anything that an event can be. None: the event of this turn.
            model: The name of a ``@chat_model_setup``. None: the first one of the agent.
            output_type: The type of the answer. The default is the agent's ``output_type``. None: text.
            content: The images, PDF documents and audio that the model receives with the message. None: those of the
                event if the message is the event, else none.
            conversation: The name of a conversation with the model, which has its own messages and loaded skills. With
                ``session = "key"`` it continues in later turns. :data:`FRESH`: a conversation for this call only. None:
                the conversation that all chats with the model share.
            system: The instructions for this call, in place of those of the model. The list of skills follows them.

        Returns:
            The answer: a ``str``, or an instance of ``output_type``.

        Raises:
            ModelError: The model cannot be reached after all retries, or its answer was filtered.
            LimitError: The turn is at a limit (steps, tokens).
            TurnError: The model gave no usable answer, or a cut one. ``finish_reason`` of the error has the reason.

        Example:
            >>> draft = await ctx.chat(event, conversation="writer")
            >>> problems = await ctx.chat(draft, conversation="critic", system="You find mistakes.")
        """

    @abstractmethod
    def call_tool(
        self, name: str, arguments: Any = None, /, *, model: str | None = None, **more: Any
    ) -> Coroutine[Any, Any, Any]:
        """Call a tool as a model would, as a durable step.

        Args:
            name: A tool of the agent, or one of the runtime such as ``execute_shell_command``.
            arguments: The arguments as a mapping. Keyword arguments are added to it.
            model: The chat model whose skills and tools apply. None: the first one of the agent. An agent without
                models can call all of its tools.

        Returns:
            The result of the tool as JSON-like data.

        Raises:
            TurnError: The tool returned an error.

        Example:
            >>> stock = await ctx.call_tool("look_up_stock", item="A-1")
        """

    @overload
    def step(
        self, name: str, fn: Callable[_P, Coroutine[Any, Any, _T]], *args: _P.args, **kwargs: _P.kwargs
    ) -> Coroutine[Any, Any, _T]: ...

    @overload
    def step(self, name: str, fn: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> Coroutine[Any, Any, _T]: ...

    @overload
    def step(
        self, name: str, fn: Callable[..., Any], *args: Any, result_type: type[_T], **kwargs: Any
    ) -> Coroutine[Any, Any, _T]: ...

    @overload
    def step(
        self, name: str, fn: Callable[..., Any], *args: Any, result_type: Any, **kwargs: Any
    ) -> Coroutine[Any, Any, Any]: ...

    @abstractmethod
    def step(
        self, name: str, fn: Callable[..., Any], *args: Any, result_type: Any = None, **kwargs: Any
    ) -> Coroutine[Any, Any, Any]:
        """Run ``fn(*args, **kwargs)`` as a durable step.

        Args:
            name: The name of the step in the journal. Several steps can have the same name.
            fn: A plain function, which runs in a thread, or an asynchronous one.
            result_type: The type of a result that is not JSON-like: anything that pydantic can write and read.
                A return annotation that pydantic can read has the same effect.

        Raises:
            TurnError: The result cannot be stored in the journal.
            Exception: Whatever ``fn`` raises.

        Example:
            >>> total = await ctx.step("total", add_up, event["items"])
        """

    @overload
    def wait(
        self,
        name: str,
        payload: Any = None,
        *,
        answer_type: type[_T],
        question: str = "",
        timeout: float | dt.timedelta | str | None = None,
        event_time: bool = False,
    ) -> Coroutine[Any, Any, _T]: ...

    @overload
    def wait(
        self,
        name: str,
        payload: Any = None,
        *,
        answer_type: Any = None,
        question: str = "",
        timeout: float | dt.timedelta | str | None = None,
        event_time: bool = False,
    ) -> Coroutine[Any, Any, Any]: ...

    @abstractmethod
    def wait(
        self,
        name: str,
        payload: Any = None,
        *,
        question: str = "",
        timeout: float | dt.timedelta | str | None = None,
        answer_type: Any = None,
        event_time: bool = False,
    ) -> Coroutine[Any, Any, Any]:
        """Wait for an answer from outside, such as the decision of a person, as a durable step.

        The turn occupies no worker while it waits. When the answer arrives, the turn runs again from its beginning, and
        finished steps return their results from the journal. The question is emitted to the side output ``waits``. The
        answer comes from the stream of ``.answers(…)``, with the key and the id of the wait. Its name instead of the id
        answers the oldest open wait of that name.

        Args:
            name: The name of the wait: letters, digits, ``_``, ``-`` and ``.``.
            payload: JSON-like data for the person or program that answers.
            question: The question for people.
            timeout: The maximum time to wait: seconds, a ``timedelta``, or text such as ``"2 d"``. None: no limit.
            answer_type: The type of the answer: a pydantic model, or any type that pydantic can validate. An answer
                that does not fit becomes an error record, and the wait continues. None: JSON-like data.
            event_time: True to measure the timeout in event time, from the event's timestamp.

        Returns:
            The answer. It is the field ``answer`` of the answer's record, or the record if it has no such field.

        Raises:
            WaitTimeout: The wait has no answer in time, or the inputs of the job have ended.
            WaitCancelled: The wait was cancelled.
            TurnError: An argument cannot be used.

        Example:
            >>> decision = await ctx.wait(
            ...     "refund-approval", {"order": event["order"]}, timeout="2 d", answer_type=Decision
            ... )
        """

    @abstractmethod
    def sleep(self, seconds: float | dt.timedelta | str, *, event_time: bool = False) -> Coroutine[Any, Any, None]:
        """Continue after a time, as a durable step. The turn occupies no worker while it sleeps.

        Args:
            seconds: Seconds, a ``timedelta``, or text such as ``"1 h"``.
            event_time: False: processing time. True: event time, from the event's timestamp.

        Raises:
            TurnError: The time cannot be used, or the event has no timestamp.
        """

    @abstractmethod
    def sleep_until(self, when: dt.datetime | int, *, event_time: bool = False) -> Coroutine[Any, Any, None]:
        """Continue at a time, as a durable step. See :meth:`sleep`.

        Args:
            when: A ``datetime`` with a time zone, or milliseconds since 1970.
            event_time: False: processing time. True: when the watermark has passed ``when``.

        Raises:
            TurnError: The time cannot be used.
        """

    @abstractmethod
    def cancel_wait(self, wait: str) -> Coroutine[Any, Any, None]:
        """Cancel a wait of this turn or of another turn of the key, as a durable step.

        The code that waits receives :class:`WaitCancelled`. A wait that does not exist has an error record.

        Args:
            wait: The id or the name of the wait.
        """

    @abstractmethod
    def forget(self) -> None:
        """Erase the key at the end of this turn.

        The outputs of the turn are emitted. Then the session, the state, the waits, the artifacts, the workspace and
        the processes of the key are erased, with all that the turn changes in them. Events that arrive later start
        without any of them. A turn that fails erases nothing.

        Example:
            >>> if event["kind"] == "erase":
            ...     ctx.forget()
        """

    @abstractmethod
    def emit(self, output: Any) -> None:
        """Emit an output. The outputs of a turn leave together when it ends, with the event's timestamp."""

    @abstractmethod
    def emit_to(self, tag: str, output: Any) -> None:
        """Emit an output to the side output ``tag``.

        Raises :class:`TurnError` for ``events``, ``waits`` and names that start with ``flink_skills.``, which are
        reserved.
        """
