"""What a tool is: a name, a description, a JSON schema and an asynchronous call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flink_skills.execution.workspace import Workspace
    from flink_skills.manager.view import SkillView
    from flink_skills.tools.state import SkillState

__all__ = ["Tool", "ToolContext", "ToolResult", "ToolSpec"]


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

    ``call_id`` is the same on every retry of the same call; ``attempt`` counts from 1.
    """

    key: Any = None
    turn: int = 0
    call_id: str = ""
    attempt: int = 1
    agent: str = ""
    skills: SkillView | None = None
    skill_state: SkillState | None = None
    workspace: Workspace | None = None
    extra: dict[str, Any] = field(default_factory=dict)


class Tool(ABC):
    """A tool. A mistake by the model is a :class:`ToolResult` with ``is_error``, never an exception.

    ``uses_workspace`` says whether calls need ``context.workspace``: a key's workspace is only made for those that do.
    """

    uses_workspace: bool = False

    @property
    @abstractmethod
    def spec(self) -> ToolSpec:
        """What models are told. Must not change while a turn runs."""

    @abstractmethod
    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool. ``arguments`` were parsed from the model's JSON and not yet validated."""
