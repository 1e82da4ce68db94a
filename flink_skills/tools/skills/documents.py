"""The documents of a skill that a model asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flink_skills.options import SkillOptions
from flink_skills.tools.base import ToolContext
from flink_skills.tools.skills.selecting import known_names, names_of
from flink_skills.tools.state import ALL, Selection

if TYPE_CHECKING:
    from flink_skills.manager.view import SkillView
    from flink_skills.tools.services import ToolServices

__all__ = ["asked_docs", "docs_of", "max_doc_chars"]


def max_doc_chars(services: ToolServices) -> int:
    """How much of a document a model may get at once."""
    return services.config.get(SkillOptions.PROMPT_MAX_DOC_CHARS)


async def docs_of(skill: str, view: SkillView) -> list[str]:
    """The documents of ``skill``; looks at its folder."""
    return await asyncio.to_thread(view.docs, skill)


async def asked_docs(
    skill: str, docs: Sequence[str], all_docs: bool, view: SkillView, context: ToolContext
) -> Selection:
    """The documents of ``skill`` that were asked for, told to the audit trail.

    Raises :class:`~flink_skills.tools.arguments.ArgumentError` for one that is not there.
    """
    if not docs and not all_docs:
        return ()
    there = await docs_of(skill, view)
    asked = ALL if all_docs else known_names("document", docs, there, skill)
    await asyncio.to_thread(view.note_docs, skill, names_of(asked, there), key=context.display_key)
    return asked
