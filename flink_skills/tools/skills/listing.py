"""``skill_list``, ``skill_list_docs`` and ``skill_list_tools``: what there is to load and to select."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import Field

from flink_skills.skill.text import clean_line
from flink_skills.tools.base import ToolContext, ToolResult
from flink_skills.tools.skills.arguments import NoArguments, SkillArguments, Switch
from flink_skills.tools.skills.documents import docs_of
from flink_skills.tools.skills.face import SkillFace, known_skill
from flink_skills.tools.skills.offer import brought_note, tool_names
from flink_skills.tools.state import SkillState

if TYPE_CHECKING:
    from flink_skills.manager.view import SkillView

__all__ = ["SkillList", "SkillListDocs", "SkillListTools"]

_SHOWN = 500
_SHOWN_CHARS = 16_000
_SHORTEST = 40


class _ListArguments(NoArguments):
    menu: Switch = Field(False, description="Descriptions too, and what is loaded.")


class SkillList(SkillFace[_ListArguments]):
    """``skill_list``: the names of the skills, or a menu with descriptions and marks."""

    tool_name = "skill_list"
    description = "Names of all skills."
    model = _ListArguments

    async def _run(self, asked: _ListArguments, view: SkillView, context: ToolContext) -> ToolResult:
        loaded = context.skill_state or SkillState()
        # What hides from the menu of the prompt hides here, unless it is loaded.
        names = [name for name in view if name in loaded or not _hides(name, view)]
        if not asked.menu:
            return listed(names)
        value = [{"name": name, "description": _description(name, view), "loaded": name in loaded} for name in names]
        room = max(_SHORTEST, _SHOWN_CHARS // max(1, len(names)))
        lines = [
            f"- {entry['name']}{' [loaded]' if entry['loaded'] else ''}: {_short(str(entry['description']), room)}"
            for entry in value
        ]
        return ToolResult("\n".join(lines) or "There are no skills.", value=value)


class SkillListDocs(SkillFace[SkillArguments]):
    """``skill_list_docs``: the documents of a skill."""

    tool_name = "skill_list_docs"
    description = "Paths of a skill's documents."
    model = SkillArguments

    async def _run(self, asked: SkillArguments, view: SkillView, context: ToolContext) -> ToolResult:
        return listed(await docs_of(known_skill(asked.skill, view), view))


class SkillListTools(SkillFace[SkillArguments]):
    """``skill_list_tools``: the tools that a skill's ``Tools:`` section names, and nothing else.

    What tools a skill brings itself is known once it is loaded, so before that a line says that it brings some. Then
    those of them that the section names are listed as they are called.
    """

    tool_name = "skill_list_tools"
    description = "Tools that a skill declares."
    model = SkillArguments

    async def _run(self, asked: SkillArguments, view: SkillView, context: ToolContext) -> ToolResult:
        name = known_skill(asked.skill, view)
        declared: Sequence[str] = await asyncio.to_thread(view.declared_tools, name)
        loaded = (context.skill_state or SkillState()).get(name)
        if loaded is not None and loaded.bundled:
            declared = (await tool_names(name, loaded, self._services, view, context)).declared(declared)
        found = listed(declared)
        is_loaded = loaded is not None
        note = await asyncio.to_thread(brought_note, name, self._services, view, is_loaded=is_loaded)
        return replace(found, content=f"{found.content}\n{note}") if note else found


def listed(names: Sequence[str]) -> ToolResult:
    """``names`` as a JSON array; of very many the first, and how many more there are."""
    text = json.dumps([clean_line(name) for name in names[:_SHOWN]], ensure_ascii=False)
    if len(names) > _SHOWN:
        text += f"\n({len(names) - _SHOWN} more are not shown)"
    return ToolResult(text, value=list(names))


def _hides(name: str, view: SkillView) -> bool:
    skill = view.get(name)
    return skill is not None and skill.hidden


def _description(name: str, view: SkillView) -> str:
    skill = view.get(name)
    return clean_line(skill.description) if skill is not None else ""


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
