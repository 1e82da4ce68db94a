"""``load_skill``, ``unload_skill``, ``skill_load`` and ``skill_unload``.

All of them see the caller's effective skill set only. A skill outside of it and one that does not exist get
the same answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from flink_skills.tools.argument_model import Also, ArgumentModel
from flink_skills.tools.arguments import ArgumentError, Canonical, plain_name
from flink_skills.tools.base import ToolContext, ToolResult
from flink_skills.tools.profiles import LOAD_SKILL
from flink_skills.tools.skills.offer import describe_brought, offer_of
from flink_skills.tools.skills.skill_face import (
    DocsArguments,
    SkillArguments,
    SkillTool,
    asked_docs,
    docs_of,
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
    load_effect,
    names_of,
    touch_effect,
    united,
    unload_effect,
)

if TYPE_CHECKING:
    from flink_skills.manager.activation import Activation
    from flink_skills.manager.view import SkillView
    from flink_skills.tools.skills.skill_face import ToolServices

# Names that models give to an argument for a file of a skill.
_FILE_WORDS = frozenset(("path", "file", "filepath", "filename", "resource", "resourcepath"))


class _NameArguments(ArgumentModel):
    skill: Annotated[str, Also("skill_name")] = Field(min_length=1, alias="name")


class _Load(SkillTool[Any]):
    """Base class of the tools that load a skill."""

    changes_state = True

    def __init__(self, services: ToolServices) -> None:
        super().__init__(services)
        self._read_before: set[str] = set()

    async def _load(
        self, asked: str, docs: Sequence[str], all_docs: bool, view: SkillView, context: ToolContext
    ) -> ToolResult:
        name = known_skill(asked, view)
        activation = await self._activate(name, view, context)
        wanted = await asked_docs(name, docs, all_docs, view, context)
        before = (context.skill_state or SkillState()).get(name)
        if before is not None and before.digest == activation.digest:
            return await self._again(activation, before, wanted, view)
        brought = await describe_brought(name, self._services, view, context)
        loaded = LoadedSkill(activation.digest, wanted, None, brought.specs)
        offer = await offer_of(name, loaded, self._services, view, context)
        lines = [await self._first_line(activation, loaded, view), *offer.lines, *brought.notes]
        skill = view.get(name)
        server = skill.server if skill is not None else ""
        effect = load_effect(name, activation.digest, docs=wanted, bundled=brought.specs, server=server)
        return ToolResult("\n".join(lines), value=_value(activation, wanted) | offer.to_json(), effects=(effect,))

    async def _first_line(self, activation: Activation, loaded: LoadedSkill, view: SkillView) -> str:
        """Return a line about the load, or the content of the skill if requests do not contain it otherwise."""
        if not self._services.settings.loads_in_place:
            return f"loaded: {activation.name}{_with_docs(loaded.docs)}"
        if not loaded.docs:
            return activation.text
        most = max_doc_chars(self._services)
        return await asyncio.to_thread(skill_block, activation.name, loaded, view, max_doc_chars=most)

    async def _again(
        self, activation: Activation, before: LoadedSkill, wanted: Selection, view: SkillView
    ) -> ToolResult:
        """Return the result for a skill that is already loaded: one line, and new documents."""
        name, docs = activation.name, united(before.docs, wanted)
        in_place, new = self._services.settings.loads_in_place, docs != before.docs
        # With the lifetime "once", the content was in a request and is about to be unloaded. It is shown again.
        expired = before.shown and self._services.settings.lifetime == "once"
        text = f"already loaded: {name}{_with_docs(docs)}"
        if in_place and not new:
            text = f"Skill {name} is loaded already: follow its instructions above."
        elif in_place:
            there = await docs_of(name, view) if docs == ALL else ()
            more = [path for path in names_of(docs, there) if path not in before.docs]
            most = max_doc_chars(self._services)
            text += "\n" + await asyncio.to_thread(docs_block, name, more, view, max_doc_chars=most)
        if before.tools is not None and not before.tools:
            # A model that loads a skill again expects its tools, but the selection is kept.
            fix = " (skill_select_tools adds them)" if "skill_select_tools" in self._services.settings.tools else ""
            text += f"\nTools selected: none{fix}"
        effect = docs_effect(name, docs) if new or expired else touch_effect(name)
        return ToolResult(text, value=_value(activation, docs), effects=(effect,))

    async def _activate(self, name: str, view: SkillView, context: ToolContext) -> Activation:
        if name in self._read_before:
            # The view caches the content. A thread would cost more than the call.
            return view.activate(name, key=context.display_key)
        activation = await asyncio.to_thread(view.activate, name, key=context.display_key)
        self._read_before.add(name)
        return activation


class LoadSkill(_Load):
    """``load_skill``: gives the model a skill's instructions."""

    tool_name = LOAD_SKILL
    description = (
        "Get a skill's instructions and the list of its files, before you act on a task that its description fits."
    )
    model = _NameArguments

    def canonical(self, arguments: Mapping[str, Any]) -> Canonical:
        for name, value in arguments.items():
            # Otherwise the model would mistake the content of the skill for that of the file.
            if value and plain_name(str(name)) in _FILE_WORDS:
                other = "load_skill_resource"
                fix = f" To read a file of a skill, call {other} with name and path."
                more = fix if other in self._services.settings.tools else ""
                text = f"load_skill has no argument {name!r}: it gives the instructions of a skill.{more}"
                raise ArgumentError(text)
        return super().canonical(arguments)

    async def _run(self, asked: _NameArguments, view: SkillView, context: ToolContext) -> ToolResult:
        return await self._load(asked.skill, (), False, view, context)


class SkillLoad(_Load):
    """``skill_load``: loads a skill, with some or all of its documents; again, with more of them."""

    tool_name = "skill_load"
    description = "Load a skill, with documents; load it again for more of them."
    model = DocsArguments

    async def _run(self, asked: DocsArguments, view: SkillView, context: ToolContext) -> ToolResult:
        return await self._load(asked.skill, asked.docs, asked.include_all_docs, view, context)


class UnloadSkill(SkillTool[Any]):
    """``unload_skill``: unloads a skill."""

    tool_name = "unload_skill"
    description = "Unload a skill that is no longer needed."
    model: type[Any] = _NameArguments
    changes_state = True

    def skills_of(self, arguments: Mapping[str, Any], context: ToolContext) -> Collection[str]:
        return ()

    async def _run(self, asked: _NameArguments | SkillArguments, view: SkillView, context: ToolContext) -> ToolResult:
        loaded = context.skill_state or SkillState()
        # A skill that the model may no longer use can still be unloaded.
        name = asked.skill if asked.skill in loaded else known_skill(asked.skill, view)
        if name not in loaded:
            others = ", ".join(other for other in loaded if other in view)
            return ToolResult(f"Skill {name} is not loaded. Loaded skills: {others or 'none'}.", is_error=True)
        return ToolResult(f"Skill {name} is unloaded.", value={"name": name}, effects=(unload_effect(name),))


class SkillUnload(UnloadSkill):
    """``skill_unload``: unloads a skill with its documents and tools."""

    tool_name = "skill_unload"
    description = "Put a loaded skill away."
    model = SkillArguments


def _with_docs(docs: Selection) -> str:
    return "" if not docs else f", with {'all documents' if docs == ALL else ', '.join(docs)}"


def _value(activation: Activation, docs: Selection) -> dict[str, Any]:
    value = {"name": activation.name, "digest": activation.digest, "path": str(activation.path or "")}
    return value | ({"docs": ALL if docs == ALL else list(docs)} if docs else {})
