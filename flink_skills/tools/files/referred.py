"""Files that a reference names, for ``Read``: those of skills, and artifacts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from flink_skills.errors import ResourceError
from flink_skills.manager import SkillView
from flink_skills.skill.text import clean
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext
from flink_skills.tools.files.lines import MAX_BYTES, LinePage, page_of_data, page_of_text
from flink_skills.tools.skills.skill_paths import artifact_data, resolve_reference

if TYPE_CHECKING:
    from flink_skills.artifacts.reference import Reference

__all__ = ["located", "read_lines"]

_INPUTS = "inputs/"


def located(text: str, context: ToolContext) -> Reference:
    """Return the file that the reference ``text`` names for the calling model. Raises as :func:`resolve_reference`."""
    return resolve_reference(text, _view(context), context, context.artifacts)


async def read_lines(reference: Reference, start: int, end: int | None, context: ToolContext) -> LinePage | None:
    """Return the lines ``start`` to ``end`` of a file of a skill, or of an artifact.

    Return None if the file is in the workspace: a skill's folder there has a link ``inputs`` to the event's inputs.

    Raises:
        ArgumentError: The file is binary or has more than 10 MB.
        SkillsError: The file does not exist or cannot be read.
    """
    if reference.scheme == "artifact":
        assert context.artifacts is not None  # noqa: S101 - the reference was resolved with this store
        data = await artifact_data(reference, context, context.artifacts)
        return await asyncio.to_thread(_page_of_artifact, data, start, end)
    if reference.scheme != "skill":
        return None
    try:
        text = await asyncio.to_thread(_skill_text, reference, context)
    except ResourceError:
        if not reference.path.startswith(_INPUTS):
            raise
        return None
    return await asyncio.to_thread(page_of_text, text, start, end)


def _page_of_artifact(data: bytes, start: int, end: int | None) -> LinePage:
    page = page_of_data(data, start, end)
    return LinePage([clean(line) for line in page.lines], page.first, page.total, page.encoding, page.cut)


def _skill_text(reference: Reference, context: ToolContext) -> str:
    view, parts, offset = _view(context), list[str](), 0
    while True:
        page = view.read_resource(reference.skill, reference.path, offset, key=context.display_key)
        if page.total_bytes > MAX_BYTES:
            raise ArgumentError(
                f"{str(reference)!r} has {page.total_bytes} bytes, and the maximum is {MAX_BYTES}: use a command."
            )
        parts.append(page.text)
        if page.next_offset is None:
            return "".join(parts)
        offset = page.next_offset


def _view(context: ToolContext) -> SkillView:
    return context.skills if context.skills is not None else SkillView([])
