"""Base classes of tools: a name, a description, a JSON schema and an asynchronous call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

from pydantic_core import from_json

from flink_skills.errors import ExecutionError
from flink_skills.hints import none_is_default
from flink_skills.options import NO_OPTIONS, JobConfig
from flink_skills.other_frameworks import CONTEXT_WORDS, TOOL_WORDS, check_words
from flink_skills.resource import Resource
from flink_skills.telemetry import CustomMetrics, MetricGroup
from flink_skills.telemetry.activity import replace_surrogates
from flink_skills.tools.arguments import Arguments, Canonical
from flink_skills.tools.media import Media
from flink_skills.tools.schemas import fit_schema

if TYPE_CHECKING:
    from flink_skills.artifacts import ArtifactStore
    from flink_skills.execution.workspace import Workspace
    from flink_skills.manager.view import SkillView
    from flink_skills.tools.commands.runner import ShellRunner
    from flink_skills.tools.control import CallControl
    from flink_skills.tools.state import SkillState


@dataclass(frozen=True)
class ToolSpec:
    """The description of a tool for models. ``parameters`` is a JSON schema of type ``object``."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class ArgumentChange(NamedTuple):
    """The difference between the arguments of a call that ran and those that were requested.

    ``differs`` is False if it only consists of defaults.
    """

    new: Mapping[str, Any]
    gone: Sequence[str]
    differs: bool

    def applied(self, requested: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that ran."""
        return {name: value for name, value in requested.items() if name not in self.gone} | dict(self.new)


_REPEATED = "note: the same call gave the same result"


class Repeat(NamedTuple):
    """The digest for a call and its result, and how often they occurred in the chat."""

    digest: str
    times: int


@none_is_default
@dataclass(frozen=True)
class ToolResult:
    """The outcome of a tool call.

    Attributes:
        content: The result for the model.
        is_error: True if the call failed.
        value: The result as JSON-like data, for code that calls the tool.
        effects: Changes of the skill state, see :meth:`flink_skills.tools.state.SkillState.apply`. The journal stores
            them, so that a replay has the same state without the call.
        retryable: True if the same call may succeed later.
        sections: The parts of ``content`` in order, if they are shortened separately when it is longer than
            ``skills.tool.max-output``. They are not stored.
        media: Images, PDF documents and audio that the model receives with ``content``. The journal has their
            locations.
        compared: What tells the result from that of an equal call, if ``content`` has parts that always differ, such as
            a duration. None: ``content``. It is not stored.
    """

    content: str
    is_error: bool = False
    value: Any = None
    effects: tuple[Mapping[str, Any], ...] = ()
    retryable: bool = False
    sections: tuple[str, ...] = field(default=(), repr=False, compare=False)
    media: tuple[Media, ...] = ()
    compared: Any = field(default=None, repr=False, compare=False)
    # Set by the runtime.
    ran: ArgumentChange | None = field(default=None, repr=False, compare=False)
    repeat: Repeat | None = field(default=None, repr=False, compare=False)

    @property
    def told(self) -> str:
        """The content as a model reads it. It states that the result is empty, and how often the call was repeated."""
        content = self.content if self.content.strip() or self.media else "(The result is empty.)"
        if self.repeat is None or self.repeat.times == 1:
            return content
        return f"{content}\n\n{_REPEATED} {self.repeat.times} times; change the arguments or answer"


def says_repeated(content: str) -> bool:
    """Return True if ``content`` states that the call was repeated."""
    return content.rpartition("\n")[2].startswith(_REPEATED)


@dataclass(frozen=True)
class StreamedArguments:
    """The arguments of a call that a model has written so far.

    ``tool`` is the tool's name, ``model_call_id`` the id of the call in the response. ``delta`` is the text since the
    last notification of the tool, and ``text`` is all text: JSON without its end. With ``discarded`` the call is
    withdrawn, because the request is retried or failed. ``text`` is then empty.

    >>> StreamedArguments("write", "call-1", ' "Dear Ms', '{"to": "ann", "text": "Dear Ms').arguments
    {'to': 'ann', 'text': 'Dear Ms'}
    """

    tool: str
    model_call_id: str
    delta: str
    text: str
    discarded: bool = False

    @cached_property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments so far. They are not validated, and the last string or number can be incomplete.

        Empty if the text does not begin with a JSON object.
        """
        # Parsed on access, because each parse reads the whole text.
        try:
            found = from_json(replace_surrogates(self.text), allow_partial="trailing-strings", cache_strings="keys")
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class AgentAnswer:
    """The answer of an agent that was called as a tool, or the ``problem`` with which its call failed.

    ``state`` is the agent's state at the end. ``artifacts`` are the newest versions of the artifacts that it saved, by
    name. ``session`` is what the call added to a conversation that later calls continue, as JSON-like data.
    """

    answer: Any = None
    problem: str = ""
    state: Any = None
    artifacts: Mapping[str, str] = field(default_factory=dict)
    session: Mapping[str, Any] | None = None


class Caller(Protocol):
    """The agent that calls a tool. It runs other agents in its own turn."""

    @property
    def state(self) -> Any:
        """The state of the agent that calls."""

    async def run_agent(self, agent: Any, event: Any, *, state: Any, budget: Any, session: str = "") -> AgentAnswer:
        """Run an open agent on ``event``, with ``state`` and within ``budget``.

        Its steps are steps of the caller's turn. ``session`` is the prefix of a conversation of the caller's session
        that the call continues. Empty: the call has a new conversation.

        Raises:
            LimitError: The turn, or an agent that calls the caller, has reached a limit.
            Exception: Whatever the agent's own code raises.
        """


class ToolWaits(Protocol):
    """The waits of a tool call in a turn."""

    @property
    def waited(self) -> float:
        """The time in seconds that the call has waited for answers."""

    def limited(self, leave: Callable[[], None], take: Callable[[], Awaitable[None]]) -> None:
        """Leave the call's place among those of its tool while it waits, and take one before it continues."""

    def begin_again(self) -> None:
        """Report that the tool is called again. Waits of the earlier call that have ended return the same answers."""

    def asked_approval(
        self, tool: str, arguments: Mapping[str, Any], canonical: Callable[[Mapping[str, Any]], Canonical]
    ) -> Any | None:
        """Return the question about this call that an earlier attempt has asked, None if it has asked none.

        ``canonical`` reads the arguments of that question, which can be those of an earlier release.
        """

    async def approval(
        self, tool: str, arguments: Mapping[str, Any], asked: Any, canonical: Callable[[Mapping[str, Any]], Canonical]
    ) -> Any:
        """Return the decision of a person about this call. ``canonical`` reads the arguments that a person changes.

        Raises :class:`~flink_skills.errors.LimitError` without a decision in time, if ``asked`` fails the turn.
        """

    async def wait(self, name: str, payload: Any, *, question: str, timeout: Any, answer_type: Any) -> Any:
        """See :meth:`ToolContext.wait`."""


_UNREAD: Any = object()


def _unreported() -> MetricGroup:
    return CustomMetrics().of_agent("")


@dataclass
class ToolContext:
    """The circumstances of a call of a tool.

    Attributes:
        key: The key of the event.
        event: The event of the turn, or the event of the agent if it is itself a tool.
        timestamp: The timestamp of the event in milliseconds since 1970. None: the stream has no event time.
        session_id: The id of the conversation by the agent's ``session_selector``, empty without one.
        owner: The owner of the artifacts and processes: the agent of the job, and the key.
        turn: The number of the turn on its key, from 1.
        call_id: The id of the call, which is the same on every retry.
        attempt: The number of the attempt at the call, from 1.
        agent: The name of the agent.
        model: The name of the chat model that calls. It is empty for a call of the agent's code.
        skills: The skills that the model may load.
        skill_state: The skills that are loaded.
        workspace: The workspace of the key for tools with ``uses_workspace``. Others call :meth:`get_workspace`.
        open_workspace: Opens the workspace.
        staged_inputs: A record for each file of the event in ``work/inputs/``, since the workspace was opened.
        shell: Runs commands in the sandbox of the job. None: the job has none.
        artifacts: Stores the artifacts of the job. None: the job has none.
        max_output: The number of characters of the result that a model reads, 0 for all. A tool that returns a file in
            pages returns pages of this size.
        accepts: The kinds of media that the model accepts: ``image``, ``pdf`` and ``audio``.
        open_state: Returns a copy of the agent's state for :attr:`state`. None outside turns.
        caller: The agent that calls, which can run other agents. None outside turns.
        waits: The waits of the call. None outside turns.
        arguments: The arguments with which the call runs, after an approval and hooks.
        begin: Stores that the call begins, and returns the number of the attempt at it. None: nothing is stored.
        control: What control records have paused or refused. None outside turns.
        config: The options, see :attr:`flink_skills.AgentContext.config`. Outside turns it has only defaults.
        metrics: The custom metrics, see :attr:`flink_skills.AgentContext.metrics`. Outside turns they are not reported.
    """

    key: Any = None
    owner: str = ""
    turn: int = 0
    call_id: str = ""
    attempt: int = 1
    agent: str = ""
    model: str = ""
    skills: SkillView | None = None
    skill_state: SkillState | None = None
    workspace: Workspace | None = None
    open_workspace: Callable[[], Awaitable[Workspace]] | None = field(default=None, repr=False)
    staged_inputs: Sequence[Mapping[str, Any]] = ()
    shell: ShellRunner | None = field(default=None, repr=False)
    artifacts: ArtifactStore | None = field(default=None, repr=False)
    max_output: int = 0
    accepts: frozenset[str] = frozenset()
    event: Any = field(default=None, repr=False)
    timestamp: int | None = None
    session_id: str = ""
    open_state: Callable[[], Any] | None = field(default=None, repr=False)
    caller: Caller | None = field(default=None, repr=False)
    waits: ToolWaits | None = field(default=None, repr=False)
    arguments: Mapping[str, Any] | None = field(default=None, repr=False)
    begin: Callable[[], Awaitable[int]] | None = field(default=None, repr=False)
    control: CallControl | None = field(default=None, repr=False)
    config: JobConfig = field(default=NO_OPTIONS, repr=False)
    metrics: MetricGroup = field(default_factory=_unreported, repr=False, compare=False)

    _state: Any = field(default=_UNREAD, init=False, repr=False, compare=False)

    if not TYPE_CHECKING:  # a type checker finds these attributes itself

        def __getattr__(self, name: str) -> Any:
            advice = CONTEXT_WORDS.get(name, "").replace("ctx.", "context.")
            raise AttributeError(f"ToolContext has no attribute {name!r}{': ' if advice else ''}{advice}")

    @property
    def state(self) -> Any:
        """The state of the key: a dict, or an instance of the agent's ``state_type``.

        It is a copy. If a tool changes it, the changes are stored in the journal with the result of the call, and
        applied to ``ctx.state`` in the order of the calls. Changes of a call that returns an error are dropped. Tool
        sets and approvers can only read it. Outside turns it is an empty dict.
        """
        if self._state is _UNREAD:
            self._state = self.open_state() if self.open_state is not None else {}
        return self._state

    @state.setter
    def state(self, value: Any) -> None:
        self._state = value

    @property
    def has_used_state(self) -> bool:
        """True if :attr:`state` was read or assigned."""
        return self._state is not _UNREAD

    def forget_state(self) -> None:
        """Drop the changes of :attr:`state`, before the call is repeated."""
        self._state = _UNREAD

    async def wait(
        self, name: str, payload: Any = None, *, question: str = "", timeout: Any = None, answer_type: Any = None
    ) -> Any:
        """Wait for an answer from outside, see :meth:`flink_skills.AgentContext.wait`.

        When the answer arrives, the tool is called again from its beginning. Effects therefore belong after the wait.
        The time limit of the tool does not run while it waits.

        Raises:
            WaitTimeout: The wait has no answer in time.
            WaitCancelled: The wait was cancelled.
            ExecutionError: The tool was called outside a turn.
        """
        if self.waits is None:
            raise ExecutionError(f"the wait {name!r} needs a turn: this call of the tool belongs to none")
        return await self.waits.wait(name, payload, question=question, timeout=timeout, answer_type=answer_type)

    async def get_workspace(self) -> Workspace:
        """Return the workspace of the key. Open it if no tool of this turn has used it yet.

        Raises :class:`~flink_skills.errors.ExecutionError` if the job has no workspaces.
        """
        if self.workspace is None:
            if self.open_workspace is None:
                raise ExecutionError("this job has no workspaces: set skills.shell.enabled to true")
            self.workspace = await self.open_workspace()
        return self.workspace

    @property
    def display_key(self) -> str:
        """The key in the form of audit trails and metadata."""
        return "" if self.key is None else str(self.key)


class TurnInterruptedError(Exception):
    """Ends or restarts the turn. It is the only exception of a tool that does not become a result."""


class Tool(Resource, ABC):
    """A tool. A mistake by the model is a :class:`ToolResult` with ``is_error``, never an exception.

    Attributes:
        uses_workspace: True if calls need ``context.workspace``. Only these calls create the workspace of a key.
        changes_state: True if its effects decide what other tools do. In one model response, the calls after it wait
            for it, and it waits for the calls before.
        sequence_argument: The name of an argument. Calls of one response with the same value of it run one after
            another. Empty: they can run at the same time.
        ends_chat: True if its result is the answer of the model. This applies if the response has no other call, and
            the result is not an error.
        runs_in: The execution location of a call: the worker (code of the job), the sandbox (code of a skill or a
            model) or a remote machine.
        idempotent: False if it must not be called twice for one call of a model. See ``skills.tool.lost-calls``.
        timeout: Maximum duration of a call in seconds. None: the limit of the job, see
            :class:`flink_skills.tools.calling.CallLimits`.
        max_output: Maximum number of characters of a result. None: the limit of the job.
        max_concurrent: Maximum number of calls at the same time in a worker. None: the limit of the job.
        repeats: True if a model may get the same result for the same call any number of times, such as a tool that
            polls. See ``skills.turn.max-repeats``.
        approve: True if each call needs the approval of the agent, as if ``skills.tools.approve`` named the tool.
        around: A function that runs each call, as :meth:`Agent.around_tool` does. It runs inside that hook.
        remarks: What a model does not learn from its description, each with its fix. The job logs them as warnings.
        is_streaming: True if it receives arguments while the model writes them, see :meth:`on_arguments`. Requests that
            offer it are streams.
    """

    resource_type: ClassVar[str] = "tool"

    def __new__(cls, *_: Any, **given: Any) -> Any:
        check_words(cls, given, TOOL_WORDS)
        return super().__new__(cls)

    uses_workspace: bool = False
    changes_state: bool = False
    sequence_argument: str = ""
    ends_chat: bool = False
    runs_in: Literal["worker", "sandbox", "remote"] = "worker"
    idempotent: bool = True
    timeout: float | None = None
    max_output: int | None = None
    max_concurrent: int | None = None
    repeats: bool = False
    approve: bool = False
    around: Callable[..., Any] | None = None
    remarks: tuple[str, ...] = ()
    is_streaming: bool = False

    @property
    @abstractmethod
    def spec(self) -> ToolSpec:
        """The description for models. It must not change during a turn."""

    def prompt_addition(self) -> str:
        """Return an addition to the system text of models that can call this tool. It can be empty.

        A chat calls this method once, when it first offers the tool, and stores the addition with the response to that
        request. All later requests have the same addition, including those after a failover.
        """
        return ""

    @property
    def speaks(self) -> bool:
        """True if the tool overrides :meth:`prompt_addition`."""
        return getattr(self.prompt_addition, "__func__", None) is not Tool.prompt_addition

    def canonical(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments in the form that the call uses: declared names, types and defaults, as JSON-like data.

        The runtime calls this method once for each call, before hooks and approvals. These, the records and
        :meth:`call` get its result, and a call that does not fit ends before them. The result has to be its own
        canonical form. The default reads the JSON schema of :attr:`spec`: spellings of the declared names,
        ``required``, types, ``enum``, ``minimum`` and ``maximum``, and the defaults of the arguments.

        Args:
            arguments: The arguments that a model, a person, a hook or code gave.

        Raises:
            ValueError: The arguments do not fit. The message is the result for the model.

        Example:
            >>> def canonical(self, arguments):
            ...     return super().canonical({"currency": "EUR", **arguments})
        """
        spec = self.spec
        return fit_schema(spec.name, arguments, spec.parameters)

    def skills_of(self, arguments: Mapping[str, Any], context: ToolContext) -> Collection[str]:
        """Return the names of the skills that a call uses. It does not run if a control record refuses one of them."""
        return ()

    def rejected(self, arguments: Mapping[str, Any], error: Exception) -> ToolResult:
        """Return the result of a call with invalid arguments. ``error`` is the one of :meth:`canonical`."""
        return ToolResult(str(error), is_error=True)

    @abstractmethod
    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool. In a turn ``arguments`` are the result of :meth:`canonical`.

        A value that is not a result becomes one, as that of a function does: a dict is JSON for the model.
        """

    async def on_arguments(self, streamed: StreamedArguments, context: ToolContext) -> None:
        """Receive the arguments of a call that a model has written so far, if the tool ``is_streaming``.

        ``context`` has the ``call_id`` of the later call. The call can be withdrawn, rejected or invalid, so this
        method must have no lasting effect. An exception is logged, and ends the notifications for this call. Nothing is
        stored in the journal, and a response from the journal is not reported again.
        """


class CheckedTool(Tool):
    """Tool whose arguments are a pydantic model. Its constructor sets both attributes."""

    _arguments: Arguments[Any]
    _spec: ToolSpec

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def canonical(self, arguments: Mapping[str, Any]) -> Canonical:
        return self._arguments.canonical(arguments)
