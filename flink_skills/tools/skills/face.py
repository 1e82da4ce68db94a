"""What the tools about skills have in common: the names in their schemas, and a model's mistakes as results."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel

from flink_skills.errors import SkillsError, near_misses
from flink_skills.tools.arguments import ArgumentError, Arguments
from flink_skills.tools.base import CheckedTool, ToolContext, ToolResult, ToolSpec

if TYPE_CHECKING:
    from flink_skills.manager.view import SkillView
    from flink_skills.tools.services import ToolServices

__all__ = ["MAX_NAMES_IN_SCHEMA", "SkillFace", "caller_view", "known_skill", "unknown_name"]

# With more names than this an enumeration costs more than it helps.
MAX_NAMES_IN_SCHEMA = 256
_SHOWN_NAMES = 20

M = TypeVar("M", bound=BaseModel)


class SkillFace(CheckedTool, Generic[M]):
    """A tool with the arguments ``model``, of which the one that names a skill lists the skills there are."""

    tool_name: ClassVar[str]
    description: ClassVar[str]
    model: type[M]

    def __init__(self, services: ToolServices) -> None:
        self._services = services
        self._arguments = Arguments(self.tool_name, self.model)
        schema = self._arguments.schema
        for about in schema["properties"].values():
            # What happens when an argument is left out is no news where it is nothing.
            if not about.get("default", True):
                del about["default"]
        for argument in ("skill", "name"):
            about = schema["properties"].get(argument)
            if about is not None and 0 < len(services.view.names) <= MAX_NAMES_IN_SCHEMA:
                about["enum"] = sorted(services.view.names)
        self._spec = ToolSpec(self.tool_name, self.description, schema)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            asked = self._arguments.read(arguments)
            return await self._run(asked, caller_view(self._services, context), context)
        except (ArgumentError, SkillsError) as error:
            return ToolResult(str(error), is_error=True)

    @abstractmethod
    async def _run(self, asked: M, view: SkillView, context: ToolContext) -> ToolResult:
        """Do what was asked; what it raises is told to the model."""


def caller_view(services: ToolServices, context: ToolContext) -> SkillView:
    """The effective set of the calling model, should the tool be shared by several."""
    return context.skills if context.skills is not None else services.view


def known_skill(name: str, view: SkillView) -> str:
    """``name``, or the one name that only differs in case and blanks; raises :class:`ArgumentError`."""
    if name in view:
        return name
    folded = [known for known in view.names if known.casefold() == name.strip().casefold()]
    if len(folded) == 1:
        return folded[0]
    raise ArgumentError(unknown_name("skill", name, view.names))


def unknown_name(what: str, name: str, known: Iterable[str], *, place: str = "") -> str:
    """That there is no ``what`` of this name, with near ones and some of those there are.

    >>> unknown_name("document", "guid.md", ["guide.md"], place=" in skill a")
    "There is no document 'guid.md' in skill a. Did you mean guide.md? Documents: guide.md."
    """
    names = sorted(known)
    near = _near(name, names)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    shown = ", ".join(names[:_SHOWN_NAMES]) or "none"
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return f"There is no {what} {name!r}{place}.{hint} {what.capitalize()}s: {shown}{more}."


def _near(name: str, names: Sequence[str]) -> list[str]:
    """The names most like ``name``; of paths, those whose last part is like its last part come first."""
    ends: dict[str, str] = {}
    for known in names:
        ends.setdefault(known.rpartition("/")[2], known)
    found = [ends[end] for end in near_misses(name.rpartition("/")[2], ends)]
    return list(dict.fromkeys([*found, *near_misses(name, names)]))[:3]
