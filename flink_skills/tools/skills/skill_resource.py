"""``load_skill_resource``: reads text files, a part at a time: those of skills, artifacts, and the workspace's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from flink_skills.errors import ResourceError
from flink_skills.manager.activation import ResourceText, page_of
from flink_skills.options import SkillOptions
from flink_skills.skill.text import clean
from flink_skills.tools.argument_model import Also, ArgumentModel
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext, ToolResult, ToolSpec
from flink_skills.tools.function import result_of
from flink_skills.tools.media import Media, has_media_name
from flink_skills.tools.skills.skill_face import SkillTool, known_skill
from flink_skills.tools.skills.skill_paths import (
    artifact_data,
    check_staged,
    check_staged_content,
    relative_path,
    resolve_reference,
    skill_file,
    unescaped,
    workspace_path,
)

if TYPE_CHECKING:
    from flink_skills.manager.view import SkillView
    from flink_skills.tools.skills.skill_face import ToolServices

_MAX_PART, _SMALLEST_PART = 1 << 20, 64
_MAX_MEDIA = 64 << 20
_LINKS = ("inputs/", "out/", "work/")
# The offset and the largest length of a part, in bytes.
_Part = tuple[int, int]
_Found = ResourceText | Media
# Characters of the line with the offset of the next part.
_NOTE_CHARS = 120
# Marks the beginning or end of a part inside a file. No text contains it.
_CUT = b"\0cut\0"


class _Arguments(ArgumentModel):
    name: Annotated[str | None, Also("skill", "skill_name")] = None
    path: Annotated[str, Also("file", "file_path", "filename", "resource_path")] = Field(
        min_length=1, description="Relative to the skill's folder."
    )
    offset: int = Field(0, ge=0, description="Byte to continue at in a long file.")


class LoadSkillResource(SkillTool[_Arguments]):
    """``load_skill_resource``: reads a file of a skill, a part at a time.

    ``path`` may be a reference: ``artifact://name[@version]``, ``workspace://path`` or ``skill://name/path``. A
    reference needs no ``name``.
    ``inputs/x``, ``out/x`` and ``work/x`` are files of the workspace if the skill has no such file. Absolute paths of
    skills and of the workspace, as texts and commands show them, are accepted, and paths that begin with ``$WORK_DIR``,
    ``$OUTPUT_DIR`` or ``$SKILLS_DIR``. An image, a PDF document or audio of a kind that the model accepts is returned
    as media.
    """

    tool_name = "load_skill_resource"
    description = "Read a text file of a skill, such as a reference that its instructions name."
    model = _Arguments
    uses_loaded = True

    def __init__(self, services: ToolServices) -> None:
        super().__init__(services)
        most: int = services.config.get(SkillOptions.CONTENT_MAX_BYTES)
        self._most_media = min(most or _MAX_MEDIA, _MAX_MEDIA)
        kinds = ["artifact://name"] if services.artifacts is not None else []
        kinds += ["workspace://path"] if services.shell is not None else []
        what = "text file, image or PDF" if services.accepts else "text file"
        about = f"Read a {what} of a skill; without a name, {' or '.join(kinds)}."
        if not kinds:
            about = self.description.replace("text file", what)
        self._spec = ToolSpec(self.tool_name, about, self._spec.parameters)

    async def _run(self, asked: _Arguments, view: SkillView, context: ToolContext) -> ToolResult:
        path = asked.path.strip()
        limit = _MAX_PART if not context.max_output else max(_SMALLEST_PART, context.max_output - _NOTE_CHARS)
        while True:
            found = await self._part_of(asked, path, min(limit, _MAX_PART), view, context)
            if isinstance(found, Media):
                return result_of(found)
            answer = _answer(found)
            # Characters that stand for others, such as __BASE_DIR__, can make a text longer than its file.
            if not context.max_output or len(answer.content) <= context.max_output or limit == _SMALLEST_PART:
                return answer
            limit = max(_SMALLEST_PART, limit // 2)

    async def _part_of(self, asked: _Arguments, path: str, limit: int, view: SkillView, context: ToolContext) -> _Found:
        if "://" in path:
            return await self._referred(path, (asked.offset, limit), view, context)
        if path.startswith(("/", "$")) or asked.name is None:
            return await self._shown(asked, path, limit, view, context)
        return await self._of_skill(known_skill(asked.name, view), path, (asked.offset, limit), view, context)

    async def _shown(self, asked: _Arguments, path: str, limit: int, view: SkillView, context: ToolContext) -> _Found:
        """Read a file by the absolute path that a text or a command shows, or by one that begins with a variable."""
        part = (asked.offset, limit)
        found = skill_file(path, view)
        if found is not None:
            return await self._of_skill(found.skill, found.path, part, view, context)
        if self._services.shell is not None:
            workspaces = self._services.shell.workspaces.root
            inside = relative_path(path)
            if path.startswith(f"{workspaces}/"):
                inside = workspace_path(path, await context.get_workspace())
            if inside is not None:
                return await self._of_workspace(inside, part, view, context)
        if asked.name is None:
            raise ArgumentError(f"Which skill has {path!r}? Give its name.")
        return await self._of_skill(known_skill(asked.name, view), path, part, view, context)

    async def _referred(self, text: str, part: _Part, view: SkillView, context: ToolContext) -> _Found:
        store = self._services.artifacts
        reference = resolve_reference(text, view, context, store)
        if reference.scheme == "skill":
            return await self._of_skill(reference.skill, reference.path, part, view, context)
        if reference.scheme == "workspace" or store is None:
            return await self._of_workspace(reference.path, part, view, context)
        data = await artifact_data(reference, context, store)
        offset, limit = part
        if has_media_name(reference.path, context.accepts) and (media := Media.recognized(data, _base(reference.path))):
            return media
        return self._part(text, data[offset : offset + limit], offset, len(data))

    async def _of_skill(self, name: str, path: str, part: _Part, view: SkillView, context: ToolContext) -> _Found:
        try:
            if has_media_name(path, context.accepts):
                read, key = view.read_bytes, context.display_key
                data = await asyncio.to_thread(read, name, path, self._most_media, key=key)
                if data is not None and (media := Media.recognized(data, _base(path))):
                    return media
            return await asyncio.to_thread(view.read_resource, name, path, *part, key=context.display_key)
        except ResourceError:
            listed = await asyncio.to_thread(unescaped, path, name, view)
            if listed is not None:
                return await asyncio.to_thread(view.read_resource, name, listed, *part, key=context.display_key)
            if self._services.shell is None or not path.startswith(_LINKS):
                raise
            # A skill's folder in the workspace has links of these names.
            return await self._of_workspace(path, part, view, context)

    async def _of_workspace(self, path: str, part: _Part, view: SkillView, context: ToolContext) -> _Found:
        if self._services.shell is None:
            raise ArgumentError("There is no workspace here: this job runs no commands.")
        is_of_skill = check_staged(path, view)
        workspace = await context.get_workspace()
        if has_media_name(path, context.accepts):
            data, total = await asyncio.to_thread(workspace.read_part, path, 0, self._most_media)
            media = Media.recognized(data, _base(path))
            if media is not None and len(data) == total:
                return media
        data, total = await asyncio.to_thread(workspace.read_part, path, *part)
        if is_of_skill:
            head = data if not part[0] else (await asyncio.to_thread(workspace.read_part, path, 0, _MAX_PART))[0]
            check_staged_content(path, head)
        return self._part(path, data, part[0], total)

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


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _answer(part: ResourceText) -> ToolResult:
    value = {
        "text": part.text,
        "offset": part.offset,
        "next_offset": part.next_offset,
        "total_bytes": part.total_bytes,
    }
    content = f"[from {part.origin}]\n{part.text}" if part.origin else part.text
    if part.next_offset is not None:
        content += (
            f"\n[bytes {part.offset} to {part.next_offset} of {part.total_bytes}; "
            f"continue with offset={part.next_offset}]"
        )
    return ToolResult(content, value=value)
