"""``load_skill_resource``: reads text files, a part at a time: those of skills, artifacts, and the workspace's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from flink_skills.errors import ResourceError
from flink_skills.manager.paging import ResourceText, page_of
from flink_skills.skill.text import clean
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext, ToolResult, ToolSpec
from flink_skills.tools.given import Also, Given
from flink_skills.tools.skills.arguments import Count, OptionalText, Text
from flink_skills.tools.skills.face import SkillFace, known_skill

if TYPE_CHECKING:
    from flink_skills.manager.view import SkillView
    from flink_skills.tools.services import ToolServices

__all__ = ["LoadSkillResource"]

_LARGEST_PART = 1 << 20
# Stands where a part begins or ends inside a file; no text has it.
_CUT = b"\0cut\0"


class _Arguments(Given):
    name: Annotated[OptionalText, Also("skill", "skill_name")] = None
    path: Annotated[Text, Also("file", "file_path", "filename", "resource_path")] = Field(
        description="Relative to the skill's folder."
    )
    offset: Count = Field(0, description="Byte to go on at in a long file.")


class LoadSkillResource(SkillFace[_Arguments]):
    """``load_skill_resource``: reads a file of a skill, a part at a time.

    ``path`` may be a reference as well: ``artifact://name[@version]``, ``workspace://path``, and
    ``skill://name/path``; ``name`` is not needed then. ``inputs/x`` is a file of the event where the skill has none of
    that name.
    """

    tool_name = "load_skill_resource"
    description = "Read a text file of a skill, such as a reference that its instructions name."
    model = _Arguments

    def __init__(self, services: ToolServices) -> None:
        super().__init__(services)
        kinds = ["artifact://name"] if services.artifacts is not None else []
        kinds += ["workspace://path"] if services.shell is not None else []
        if kinds:
            about = f"Read a text file of a skill; without a name, {' or '.join(kinds)}."
            self._spec = ToolSpec(self.tool_name, about, self._spec.parameters)

    async def _run(self, asked: _Arguments, view: SkillView, context: ToolContext) -> ToolResult:
        path = asked.path.strip()
        if "://" in path:
            return _answer(await self._referred(path, asked.offset, view, context))
        if asked.name is None:
            raise ArgumentError(f"Which skill has {path!r}? Give its name.")
        return _answer(await self._of_skill(known_skill(asked.name, view), path, asked.offset, view, context))

    async def _referred(self, text: str, offset: int, view: SkillView, context: ToolContext) -> ResourceText:
        # Not above: a model that reads skills only needs none of this.
        from flink_skills.tools.skills.references import artifact_data, resolve_reference

        store = self._services.artifacts
        reference = resolve_reference(text, view, context, store)
        if reference.scheme == "skill":
            return await self._of_skill(reference.skill, reference.path, offset, view, context)
        if reference.scheme == "workspace" or store is None:
            return await self._of_workspace(reference.path, offset, view, context)
        data = await artifact_data(reference, context, store)
        return self._part(text, data[offset : offset + _LARGEST_PART], offset, len(data))

    async def _of_skill(self, name: str, path: str, offset: int, view: SkillView, context: ToolContext) -> ResourceText:
        try:
            return await asyncio.to_thread(view.read_resource, name, path, offset, key=context.shown_key)
        except ResourceError:
            if self._services.shell is None or not path.startswith("inputs/"):
                raise
            # A skill's folder in the workspace has a link of this name to the inputs of the event.
            return await self._of_workspace(path, offset, view, context)

    async def _of_workspace(self, path: str, offset: int, view: SkillView, context: ToolContext) -> ResourceText:
        if self._services.shell is None:
            raise ArgumentError("There is no workspace here: this job runs no commands.")
        # Not above: see _referred.
        from flink_skills.tools.skills.staged import check_staged, check_staged_content

        is_of_skill = check_staged(path, view)
        workspace = await context.need_workspace()
        data, total = await asyncio.to_thread(workspace.read_part, path, offset, _LARGEST_PART)
        if is_of_skill:
            head = data if not offset else (await asyncio.to_thread(workspace.read_part, path, 0, _LARGEST_PART))[0]
            check_staged_content(path, head)
        return self._part(path, data, offset, total)

    def _part(self, shown: str, data: bytes, offset: int, total: int) -> ResourceText:
        if offset > total:
            raise ArgumentError(f"{shown!r} has {total} bytes; offset {offset} is behind its end")
        if b"\0" in data:
            raise ArgumentError(f"{shown!r} is a binary file of {total} bytes; use it through a command")
        page = page_of(data, offset, total)
        return page._replace(text=clean(self._without_hidden(page)))

    def _without_hidden(self, page: ResourceText) -> str:
        """The text without the values of ``skills.env``, which a command may have written to a file."""
        shell = self._services.shell
        if shell is None:
            return page.text
        data = page.text.encode("utf-8", "replace")
        if page.offset:
            data = shell.hidden.in_bytes(_CUT + data, _CUT).removeprefix(_CUT)
        if page.next_offset is not None:
            data = shell.hidden.in_bytes(data + _CUT, _CUT).removesuffix(_CUT)
        return shell.hidden.in_bytes(data).decode(errors="replace")


def _answer(part: ResourceText) -> ToolResult:
    value = {
        "text": part.text,
        "offset": part.offset,
        "next_offset": part.next_offset,
        "total_bytes": part.total_bytes,
    }
    content = part.text
    if part.next_offset is not None:
        content += (
            f"\n[bytes {part.offset} to {part.next_offset} of {part.total_bytes}; go on with offset={part.next_offset}]"
        )
    return ToolResult(content, value=value)
