"""What a tool is: a name, a description, a JSON schema and an asynchronous call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flink_skills.errors import ExecutionError

if TYPE_CHECKING:
    from flink_skills.execution.workspace import Workspace
    from flink_skills.manager.view import SkillView
    from flink_skills.tools.state import SkillState

__all__ = ["Tool", "ToolContext", "ToolResult", "ToolSpec", "TurnInterruptedError"]


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
    the same state without calling the tool again.
    """

    content: str
    is_error: bool = False
    value: Any = None
    effects: tuple[Mapping[str, Any], ...] = ()


@dataclass
class ToolContext:
    """Where and for whom a tool runs.

    ``call_id`` is the same on every retry of the same call; ``attempt`` counts from 1. ``owner`` stands for the job's
    agent and the key: artifacts and processes belong to it. ``workspace`` is the key's, for
    tools with ``uses_workspace``; others that come to need it call :meth:`need_workspace`. ``staged_inputs`` describes
    the files of the event that are in ``work/inputs/`` since the workspace was opened (row F22).
    """

    key: Any = None
    owner: str = ""
    turn: int = 0
    call_id: str = ""
    attempt: int = 1
    agent: str = ""
    skills: SkillView | None = None
    skill_state: SkillState | None = None
    workspace: Workspace | None = None
    open_workspace: Callable[[], Awaitable[Workspace]] | None = field(default=None, repr=False)
    staged_inputs: Sequence[Mapping[str, Any]] = ()
    extra: dict[str, Any] = field(default_factory=dict)

    async def need_workspace(self) -> Workspace:
        """The key's workspace, opened if no tool of this turn has used it yet.

        Raises :class:`~flink_skills.errors.ExecutionError` where the job has none.
        """
        if self.workspace is None:
            if self.open_workspace is None:
                raise ExecutionError("this job has no workspaces: set skills.shell.enabled to true")
            self.workspace = await self.open_workspace()
        return self.workspace

    @property
    def shown_key(self) -> str:
        """The stream key as audit trails and metadata show it."""
        return "" if self.key is None else str(self.key)


class TurnInterruptedError(Exception):
    """Ends or restarts the turn that a tool was called in. The one error of a tool that becomes no result."""


class Tool(ABC):
    """A tool. A mistake by the model is a :class:`ToolResult` with ``is_error``, never an exception.

    ``uses_workspace`` says whether calls need ``context.workspace``: a key's workspace is only made for those that do.
    ``changes_state`` says that its effects decide what other tools do: of the calls of one model response, those after
    it wait for it, and it waits for those before.
    """

    uses_workspace: bool = False
    changes_state: bool = False

    @property
    @abstractmethod
    def spec(self) -> ToolSpec:
        """What models are told. Must not change while a turn runs."""

    @abstractmethod
    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool. ``arguments`` were parsed from the model's JSON and not yet validated."""
