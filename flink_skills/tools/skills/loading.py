"""``load_skill``, ``unload_skill`` and ``load_skill_resource``: how a model gets at what skills say.

All of them see the caller's effective skill set only. A skill outside of it and one that does not exist get
the same answer.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from flink_skills.errors import SkillsError
from flink_skills.tools.arguments import ArgumentError, Arguments
from flink_skills.tools.base import Tool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools.state import SkillState, load_effect, touch_effect, unload_effect

if TYPE_CHECKING:
    from flink_skills.manager.view import SkillView

__all__ = [
    "LOAD_SKILL",
    "LOAD_SKILL_RESOURCE",
    "UNLOAD_SKILL",
    "LoadSkill",
    "LoadSkillResource",
    "UnloadSkill",
]

LOAD_SKILL = "load_skill"
UNLOAD_SKILL = "unload_skill"
LOAD_SKILL_RESOURCE = "load_skill_resource"

# Row C13: with more names than this an enumeration costs more than it helps.
_MOST_NAMES_IN_SCHEMA = 256
_SHOWN_NAMES = 20

M = TypeVar("M", bound=BaseModel)


class _NameArguments(BaseModel):
    model_config = ConfigDict(extra="ignore")
    name: str = Field(min_length=1, description="Name of the skill, as in the list of available skills.")


class _ResourceArguments(_NameArguments):
    path: str = Field(min_length=1, description="Path of the file relative to the skill's folder.")
    offset: int = Field(0, ge=0, description="Byte to begin at, for the next part of a long file.")


class _SkillTool(Tool, Generic[M]):
    """What the tools have in common: the names in the schema, and mistakes as results."""

    def __init__(self, view: SkillView, name: str, description: str, model: type[M]) -> None:
        self._arguments = Arguments(name, model)
        schema = self._arguments.schema
        if len(view.names) <= _MOST_NAMES_IN_SCHEMA:
            schema["properties"]["name"]["enum"] = sorted(view.names)
            del schema["properties"]["name"]["minLength"]
        self._view = view
        self._spec = ToolSpec(name, description, schema)

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            asked = self._arguments.read(arguments)
            # The set of the calling model, should the tool be shared by several.
            view = context.skills if context.skills is not None else self._view
            return await self._run(asked, view, context)
        except (ArgumentError, SkillsError) as error:
            return ToolResult(str(error), is_error=True)

    @abstractmethod
    async def _run(self, asked: M, view: SkillView, context: ToolContext) -> ToolResult: ...


class LoadSkill(_SkillTool[_NameArguments]):
    """Gives the model a skill's instructions."""

    def __init__(self, view: SkillView) -> None:
        super().__init__(
            view,
            LOAD_SKILL,
            "Load a skill: get its full instructions and the list of its files. Do this before you act on a "
            "task that the skill's description fits.",
            _NameArguments,
        )
        self._read_before: set[str] = set()

    async def _run(self, asked: _NameArguments, view: SkillView, context: ToolContext) -> ToolResult:
        name, key = _permitted(asked.name, view), _shown_key(context)
        if name in self._read_before:
            # The view keeps what it has read: a thread would cost more than the call.
            activation = view.activate(name, key=key)
        else:
            activation = await asyncio.to_thread(view.activate, name, key=key)
            self._read_before.add(name)
        value = {"name": name, "digest": activation.digest, "path": str(activation.path or "")}
        loaded = context.skill_state or SkillState()
        if loaded.digest(name) == activation.digest:
            return ToolResult(
                f"Skill {name} is loaded already: follow its instructions above.",
                value=value,
                effects=(touch_effect(name),),
            )
        return ToolResult(activation.text, value=value, effects=(load_effect(name, activation.digest),))


class UnloadSkill(_SkillTool[_NameArguments]):
    """Puts a skill away."""

    def __init__(self, view: SkillView) -> None:
        super().__init__(
            view,
            UNLOAD_SKILL,
            "Put a loaded skill away when its instructions are no longer needed.",
            _NameArguments,
        )

    async def _run(self, asked: _NameArguments, view: SkillView, context: ToolContext) -> ToolResult:
        name = _permitted(asked.name, view)
        loaded = context.skill_state or SkillState()
        if name not in loaded:
            others = ", ".join(other for other in loaded if other in view)
            return ToolResult(f"Skill {name} is not loaded. Loaded skills: {others or 'none'}.", is_error=True)
        return ToolResult(f"Skill {name} is unloaded.", value={"name": name}, effects=(unload_effect(name),))


class LoadSkillResource(_SkillTool[_ResourceArguments]):
    """Reads a file of a skill, a part at a time."""

    def __init__(self, view: SkillView) -> None:
        super().__init__(
            view,
            LOAD_SKILL_RESOURCE,
            "Read a text file of a skill, such as a reference that its instructions name.",
            _ResourceArguments,
        )

    async def _run(self, asked: _ResourceArguments, view: SkillView, context: ToolContext) -> ToolResult:
        name = _permitted(asked.name, view)
        part = await asyncio.to_thread(view.read_resource, name, asked.path, asked.offset, key=_shown_key(context))
        value = {
            "text": part.text,
            "offset": part.offset,
            "next_offset": part.next_offset,
            "total_bytes": part.total_bytes,
        }
        content = part.text
        if part.next_offset is not None:
            content += (
                f"\n[bytes {part.offset} to {part.next_offset} of {part.total_bytes}; go on with "
                f"offset={part.next_offset}]"
            )
        return ToolResult(content, value=value)


def _shown_key(context: ToolContext) -> str:
    """The stream key as the audit trail shows it."""
    return "" if context.key is None else str(context.key)


def _permitted(name: str, view: SkillView) -> str:
    """``name``, or the one name that only differs in case and blanks; raises :class:`ArgumentError`."""
    if name in view:
        return name
    folded = [known for known in view.names if known.casefold() == name.strip().casefold()]
    if len(folded) == 1:
        return folded[0]
    near = view.near(name)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    names = sorted(view.names)
    shown = ", ".join(names[:_SHOWN_NAMES]) or "none"
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    raise ArgumentError(f"There is no skill {name!r}.{hint} Skills: {shown}{more}.")
