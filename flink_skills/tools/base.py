"""What a tool is: a name, a description, a JSON schema and an asynchronous call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from flink_skills.errors import ExecutionError
from flink_skills.resource import Resource
from flink_skills.tools.media import Media

if TYPE_CHECKING:
    from flink_skills.artifacts import ArtifactStore
    from flink_skills.execution.workspace import Workspace
    from flink_skills.manager.view import SkillView
    from flink_skills.tools.commands.runner import ShellRunner
    from flink_skills.tools.state import SkillState
    from flink_skills.tools.streaming.streamed import StreamedArguments

__all__ = ["AgentAnswer", "Caller", "Tool", "ToolContext", "ToolResult", "ToolSpec", "TurnInterruptedError"]


@dataclass(frozen=True)
class ToolSpec:
    """What a model is told of a tool. ``parameters`` is a JSON schema of type ``object``."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class ToolResult:
    """The outcome of a tool call.

    ``content`` is the text for the model. ``value`` is the same as JSON-like data for code that called the
    tool itself. ``effects`` are changes of the turn's skill state (see
    :meth:`flink_skills.tools.state.SkillState.apply`), kept in the journal, so that a replay ends in
    the same state without calling the tool again. ``retryable`` says of an error that the same call may succeed later.
    ``sections`` are the parts of ``content`` in order, if it has parts that are shortened separately when it is longer
    than ``skills.tool.max-output``. They are not stored. ``media`` are images, PDF documents and audio that the model
    receives with ``content``. The journal contains their locations.
    """

    content: str
    is_error: bool = False
    value: Any = None
    effects: tuple[Mapping[str, Any], ...] = ()
    retryable: bool = False
    sections: tuple[str, ...] = field(default=(), repr=False, compare=False)
    media: tuple[Media, ...] = ()


@dataclass(frozen=True)
class AgentAnswer:
    """The answer of an agent that was called as a tool, or the ``problem`` with which its call failed.

    ``state`` is the agent's state at the end. ``artifacts`` are the newest versions of the artifacts that it saved, by
    name.
    """

    answer: Any = None
    problem: str = ""
    state: Any = None
    artifacts: Mapping[str, str] = field(default_factory=dict)


class Caller(Protocol):
    """The agent that calls a tool. It runs other agents in its own turn."""

    @property
    def state(self) -> Any:
        """The state of the agent that calls."""

    async def run_agent(self, agent: Any, event: Any, *, state: Any, budget: Any) -> AgentAnswer:
        """Run an open agent on ``event``, with ``state`` and within ``budget``.

        Its steps are steps of the caller's turn.

        Raises:
            LimitError: The turn, or an agent that calls the caller, has reached a limit.
            Exception: Whatever the agent's own code raises.
        """


_UNREAD: Any = object()


@dataclass
class ToolContext:
    """Where and for whom a tool runs.

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
        extra: Values that tools of the job share in a call.
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
    extra: dict[str, Any] = field(default_factory=dict)

    _state: Any = field(default=_UNREAD, init=False, repr=False, compare=False)

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

    async def get_workspace(self) -> Workspace:
        """The key's workspace, opened if no tool of this turn has used it yet.

        Raises :class:`~flink_skills.errors.ExecutionError` where the job has none.
        """
        if self.workspace is None:
            if self.open_workspace is None:
                raise ExecutionError("this job has no workspaces: set skills.shell.enabled to true")
            self.workspace = await self.open_workspace()
        return self.workspace

    @property
    def display_key(self) -> str:
        """The stream key as audit trails and metadata show it."""
        return "" if self.key is None else str(self.key)


class TurnInterruptedError(Exception):
    """Ends or restarts the turn that a tool was called in. The one error of a tool that becomes no result."""


class Tool(Resource, ABC):
    """A tool. A mistake by the model is a :class:`ToolResult` with ``is_error``, never an exception.

    ``uses_workspace`` says whether calls need ``context.workspace``: a key's workspace is only made for those that do.
    ``changes_state`` says that its effects decide what other tools do: of the calls of one model response, those after
    it wait for it, and it waits for those before. ``ends_chat`` says that its result, where it is the only call of a
    model response and no error, is the answer that the model was asked for.

    ``runs_in`` is the execution location of a call: the worker (code of the job), the sandbox (code of a skill or of a
    model) or a remote machine. A tool that is not ``idempotent`` must not be called twice for one call of a model, see
    ``skills.tool.lost-calls``. ``timeout`` (seconds), ``max_output`` (characters) and ``max_concurrent`` are its own
    limits; None: those of the job (:class:`flink_skills.tools.calling.CallLimits`).

    One that ``is_streaming`` is given arguments while the model writes them (:meth:`on_arguments`), before it is called
    with all of them; requests that offer it are made as streams.
    """

    resource_type: ClassVar[str] = "tool"

    uses_workspace: bool = False
    changes_state: bool = False
    ends_chat: bool = False
    runs_in: Literal["worker", "sandbox", "remote"] = "worker"
    idempotent: bool = True
    timeout: float | None = None
    max_output: int | None = None
    max_concurrent: int | None = None
    is_streaming: bool = False

    @property
    @abstractmethod
    def spec(self) -> ToolSpec:
        """What models are told. Must not change while a turn runs."""

    def prompt_addition(self) -> str:
        """What the system text of a model that may call this tool has besides; empty: nothing.

        Asked for once in a chat, when the tool is first offered there, and kept with the response to that request: the
        later requests have the same text, after a failover too, whatever this would say by then.
        """
        return ""

    @property
    def speaks(self) -> bool:
        """Whether it has a :meth:`prompt_addition` of its own."""
        return getattr(self.prompt_addition, "__func__", None) is not Tool.prompt_addition

    @abstractmethod
    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool. ``arguments`` were parsed from the model's JSON and not yet validated."""

    async def on_arguments(self, streamed: StreamedArguments, context: ToolContext) -> None:
        """A model has written more of the arguments of a call. Asked of tools that are ``is_streaming``.

        ``context`` is that of the call to come, with the same ``call_id``, but no call may follow: what is given may be
        withdrawn, refused or wrong, so this only looks. What it raises is logged, and it is not asked again for this
        call; nothing of it is journalled, and an answer that is taken from the journal is not given again.
        """
