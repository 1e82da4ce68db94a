"""The tools that list skills, their documents and their tools, and that select from these."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field, WithJsonSchema

from flink_skills.skill.text import clean_line
from flink_skills.tools.argument_model import ArgumentModel
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext, ToolResult
from flink_skills.tools.profiles import TOOL_NAMES
from flink_skills.tools.skills.offer import ToolNames, brought_note, offer_of, tool_names
from flink_skills.tools.skills.skill_face import (
    DocsArguments,
    SkillArguments,
    SkillTool,
    ToolsArguments,
    asked_docs,
    docs_of,
    known_names,
    known_skill,
    max_doc_chars,
)
from flink_skills.tools.skills.skill_prompts import docs_block, skill_block
from flink_skills.tools.state import (
    ALL,
    LoadedSkill,
    Selection,
    SkillState,
    docs_effect,
    names_of,
    tools_effect,
    united,
)

if TYPE_CHECKING:
    from flink_skills.manager.view import SkillView

_SHOWN = 500
_SHOWN_CHARS = 16_000
_SHORTEST = 40


class _ListArguments(ArgumentModel):
    menu: bool = Field(False, description="Descriptions too, and what is loaded.")


class SkillList(SkillTool[_ListArguments]):
    """``skill_list``: the names of the skills, or a menu with descriptions and marks."""

    tool_name = "skill_list"
    description = "Names of all skills."
    model = _ListArguments

    async def _run(self, asked: _ListArguments, view: SkillView, context: ToolContext) -> ToolResult:
        loaded = context.skill_state or SkillState()
        # Hidden skills are omitted, as in the menu of the prompt, unless they are loaded.
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


class SkillListDocs(SkillTool[SkillArguments]):
    """``skill_list_docs``: the documents of a skill."""

    tool_name = "skill_list_docs"
    description = "Paths of a skill's documents."
    model = SkillArguments

    async def _run(self, asked: SkillArguments, view: SkillView, context: ToolContext) -> ToolResult:
        return listed(await docs_of(known_skill(asked.skill, view), view))


class SkillListTools(SkillTool[SkillArguments]):
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
    """Return names as a JSON array. A long list has the first names, and the number of the others."""
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


_ADD, REPLACE, CLEAR = MODES = ("add", "replace", "clear")
# Any string is valid. An unknown mode adds a note to the result.
_Mode = Annotated[str | None, WithJsonSchema({"type": "string", "enum": list(MODES)})]


def _mode_of(asked: str | None) -> tuple[str, str]:
    """Return the mode, and a note if it is not the requested one.

    >>> _mode_of(" Add "), _mode_of("merge")[0]
    (('add', ''), 'replace')
    """
    mode = (asked or REPLACE).strip().lower()
    if mode in MODES:
        return mode, ""
    return REPLACE, f"There is no mode {asked!r}: took {REPLACE}. Modes: {', '.join(MODES)}."


def _changed(before: Selection, mode: str, asked: Selection) -> Selection:
    """Return the selection after ``asked`` is applied in ``mode``.

    >>> _changed(("a",), "add", ("b",)), _changed(("a",), "replace", ("b",)), _changed(("a",), "clear", ("b",))
    (('a', 'b'), ('b',), ())
    """
    if mode == CLEAR:
        return ()
    return asked if mode == REPLACE else united(before, asked)


class _DocsArguments(DocsArguments):
    mode: _Mode = REPLACE


class _ToolsArguments(ToolsArguments):
    mode: _Mode = REPLACE


class SkillSelectDocs(SkillTool[_DocsArguments]):
    """``skill_select_docs``: chooses the documents of a loaded skill."""

    tool_name = "skill_select_docs"
    description = "Choose which documents of a loaded skill you see."
    model = _DocsArguments
    changes_state = True

    async def _run(self, asked: _DocsArguments, view: SkillView, context: ToolContext) -> ToolResult:
        name = known_skill(asked.skill, view)
        before = _loaded(name, context, "docs")
        mode, note = _mode_of(asked.mode)
        _check_named(asked, mode, "docs", everything=asked.include_all_docs)
        wanted = await asked_docs(name, asked.docs, asked.include_all_docs, view, context) if mode != CLEAR else ()
        docs = _changed(before.docs, mode, wanted)
        value: dict[str, Any] = {
            "skill": name,
            "mode": mode,
            "selected_docs": names_of(docs, await docs_of(name, view) if docs == ALL else ()),
            "include_all_docs": docs == ALL,
        }
        if not self._services.settings.loads_in_place:
            return _answer(value, note, docs_effect(name, docs))
        had = names_of(before.docs, await docs_of(name, view) if before.docs == ALL else ())
        most, text = max_doc_chars(self._services), ""
        gone = not set(had) <= set(value["selected_docs"])
        if gone:
            # This result replaces the earlier ones, which have documents that are no longer selected.
            loaded = replace(before, docs=docs)
            text = await asyncio.to_thread(skill_block, name, loaded, view, max_doc_chars=most)
        elif more := [path for path in value["selected_docs"] if path not in had]:
            # This result is the only place with their text.
            text = await asyncio.to_thread(docs_block, name, more, view, max_doc_chars=most)
        answer = _answer(value, note, docs_effect(name, docs, digest=before.digest if gone else ""))
        return replace(answer, content=f"{answer.content}\n{text}") if text else answer


class SkillSelectTools(SkillTool[_ToolsArguments]):
    """``skill_select_tools``: chooses the tools of a loaded skill."""

    tool_name = "skill_select_tools"
    description = "Choose which tools of a loaded skill you can call; fewer cost less."
    model = _ToolsArguments
    changes_state = True

    async def _run(self, asked: _ToolsArguments, view: SkillView, context: ToolContext) -> ToolResult:
        name = known_skill(asked.skill, view)
        before = _loaded(name, context, "tools")
        mode, note = _mode_of(asked.mode)
        _check_named(asked, mode, "tools", everything=asked.include_all_tools)
        declared = await asyncio.to_thread(view.declared_tools, name)
        names = await tool_names(name, before, self._services, view, context)
        every = _of_skills(names.selected(declared, replace(before, tools=ALL)))
        wanted: Selection = ALL
        if mode == CLEAR:
            wanted = ()
        elif not asked.include_all_tools:
            meant, anyway = _meant(asked.tools, names)
            # Also one of the pool that the skill does not name.
            there = [tool for tool in dict.fromkeys((*every, *names.pool)) if tool not in names.taken]
            wanted = known_names("tool", meant, there, name)
            note = " ".join(text for text in (note, anyway) if text)
        had = ALL if before.tools == ALL else _of_skills(names.selected(declared, before))
        tools = _changed(had, mode, wanted)
        value: dict[str, Any] = {
            "skill": name,
            "mode": mode,
            "selected_tools": names_of(tools, every),
            "include_all_tools": tools == ALL,
        }
        offer = await offer_of(name, replace(before, tools=tools), self._services, view, context)
        return _answer(value | offer.missing_json(), note, tools_effect(name, tools))


def _of_skills(tools: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(tool for tool in tools if tool not in TOOL_NAMES)


def _meant(asked: Sequence[str], names: ToolNames) -> tuple[list[str], str]:
    """Return the names of the tools ``asked`` without those that need no selection, and a note about the latter."""
    meant = [names.meant(tool.strip()) for tool in asked]
    anyway = [tool for tool in meant if tool in names.taken]
    note = f"Not part of a skill, and always there: {', '.join(anyway)}." if anyway else ""
    return [tool for tool in meant if tool not in names.taken], note


def _loaded(name: str, context: ToolContext, what: str) -> LoadedSkill:
    found = (context.skill_state or SkillState()).get(name)
    if found is None:
        also = " with these docs" if what == "docs" else ""
        raise ArgumentError(f"Skill {name} is not loaded: load it first{also}, then select its {what}.")
    return found


def _check_named(asked: BaseModel, mode: str, what: str, *, everything: bool) -> None:
    """Raise :class:`ArgumentError` for a replacement without new values. Only the mode ``clear`` deselects all."""
    if mode == REPLACE and what not in asked.model_fields_set and not everything:
        raise ArgumentError(
            f"Nothing is changed, for you name no {what}: give {what}=[…] or include_all_{what}=true, "
            f'or mode="{CLEAR}" to have none.'
        )


def _answer(value: dict[str, Any], note: str, effect: dict[str, Any]) -> ToolResult:
    value = value | ({"note": note} if note else {})
    return ToolResult(json.dumps(value, ensure_ascii=False), value=value, effects=(effect,))
