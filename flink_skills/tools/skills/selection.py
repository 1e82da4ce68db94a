"""``skill_select_docs`` and ``skill_select_tools``: which part of a loaded skill a model has before it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, WithJsonSchema

from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext, ToolResult
from flink_skills.tools.profiles import TOOL_NAMES
from flink_skills.tools.skills.arguments import DocsArguments, ToolsArguments
from flink_skills.tools.skills.context import docs_block, skill_block
from flink_skills.tools.skills.documents import asked_docs, docs_of, max_doc_chars
from flink_skills.tools.skills.face import SkillFace, known_skill
from flink_skills.tools.skills.offer import ToolNames, offer_of, tool_names
from flink_skills.tools.skills.selecting import CLEAR, MODES, REPLACE, changed, known_names, mode_of, names_of
from flink_skills.tools.state import ALL, LoadedSkill, Selection, SkillState, docs_effect, tools_effect

if TYPE_CHECKING:
    from flink_skills.manager.view import SkillView

__all__ = ["SkillSelectDocs", "SkillSelectTools"]

# Any text is taken: an unknown mode is answered, not refused.
_Mode = Annotated[str | None, WithJsonSchema({"type": "string", "enum": list(MODES)})]


class _DocsArguments(DocsArguments):
    mode: _Mode = REPLACE


class _ToolsArguments(ToolsArguments):
    mode: _Mode = REPLACE


class SkillSelectDocs(SkillFace[_DocsArguments]):
    """``skill_select_docs``: chooses the documents of a loaded skill."""

    tool_name = "skill_select_docs"
    description = "Choose which documents of a loaded skill you see."
    model = _DocsArguments
    changes_state = True

    async def _run(self, asked: _DocsArguments, view: SkillView, context: ToolContext) -> ToolResult:
        name = known_skill(asked.skill, view)
        before = _loaded(name, context, "docs")
        mode, note = mode_of(asked.mode)
        _check_said(asked, mode, "docs", everything=asked.include_all_docs)
        wanted = await asked_docs(name, asked.docs, asked.include_all_docs, view, context) if mode != CLEAR else ()
        docs = changed(before.docs, mode, wanted)
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
            # Nothing else will bring them before the model.
            text = await asyncio.to_thread(docs_block, name, more, view, max_doc_chars=most)
        answer = _answer(value, note, docs_effect(name, docs, digest=before.digest if gone else ""))
        return replace(answer, content=f"{answer.content}\n{text}") if text else answer


class SkillSelectTools(SkillFace[_ToolsArguments]):
    """``skill_select_tools``: chooses the tools of a loaded skill."""

    tool_name = "skill_select_tools"
    description = "Choose which tools of a loaded skill you can call; fewer cost less."
    model = _ToolsArguments
    changes_state = True

    async def _run(self, asked: _ToolsArguments, view: SkillView, context: ToolContext) -> ToolResult:
        name = known_skill(asked.skill, view)
        before = _loaded(name, context, "tools")
        mode, note = mode_of(asked.mode)
        _check_said(asked, mode, "tools", everything=asked.include_all_tools)
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
        tools = changed(had, mode, wanted)
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
    """The tools ``asked`` as they are called, without those that need no selection, and what to say of these."""
    meant = [names.meant(tool.strip()) for tool in asked]
    anyway = [tool for tool in meant if tool in names.taken]
    said = f"Not part of a skill, and always there: {', '.join(anyway)}." if anyway else ""
    return [tool for tool in meant if tool not in names.taken], said


def _loaded(name: str, context: ToolContext, what: str) -> LoadedSkill:
    found = (context.skill_state or SkillState()).get(name)
    if found is None:
        also = " with these docs" if what == "docs" else ""
        raise ArgumentError(f"Skill {name} is not loaded: load it first{also}, then select its {what}.")
    return found


def _check_said(asked: BaseModel, mode: str, what: str, *, everything: bool) -> None:
    """Raise :class:`ArgumentError` where nothing was said that could be selected instead: that is no wish to clear."""
    if mode == REPLACE and what not in asked.model_fields_set and not everything:
        raise ArgumentError(
            f"Nothing is changed, for you name no {what}: give {what}=[…] or include_all_{what}=true, "
            f'or mode="{CLEAR}" to have none.'
        )


def _answer(value: dict[str, Any], note: str, effect: dict[str, Any]) -> ToolResult:
    value = value | ({"note": note} if note else {})
    return ToolResult(json.dumps(value, ensure_ascii=False), value=value, effects=(effect,))
