"""Tool ``Read``: lines of a file in the workspace or of a skill, or of an artifact."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from flink_skills.errors import ResourceError
from flink_skills.execution.workspace.workspace_paths import READABLE, parts_of
from flink_skills.manager import SkillView
from flink_skills.skill.text import clean
from flink_skills.tools.argument_model import Also, ArgumentModel
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext
from flink_skills.tools.files.file_tool import Area, StoredTool
from flink_skills.tools.files.text_files import (
    MAX_BYTES,
    MAX_CHARS,
    MAX_LINES,
    LinePage,
    page_of_data,
    page_of_text,
    read_page,
)
from flink_skills.tools.skills.skill_paths import artifact_data, resolve_reference, skill_file

if TYPE_CHECKING:
    from flink_skills.artifacts.artifact_names import Reference

_REFERENCE = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://")


class _ReadArguments(ArgumentModel):
    path: Annotated[str, Also("file_path", "file", "filename")]
    start_line: Annotated[int | None, Field(ge=1, description="First line, from 1."), Also("offset", "start")] = None
    end_line: Annotated[int | None, Field(ge=1, description="Last line, included."), Also("end")] = None


class Read(StoredTool[_ReadArguments]):
    """Returns lines of a text file, each after its number and `` | ``.

    ``{success, content, total_lines, read_range}``; ``read_range`` is such as ``"1-40"``. At most 10,000 lines and
    256 Ki characters a call, and not more than the job allows for a result. ``note`` states what is missing, and
    ``next_line`` is where to continue. Of files above 10 MB the lines are read in parts.

    ``path`` may be a reference: ``skill://name/path``, ``workspace://path`` or ``artifact://name[@version]``. Of these,
    skill files and artifacts have 10 MB at most.
    """

    tool_name = "Read"
    description = (
        "Read a text file, by its path or a reference such as artifact://name. Each line has its number in front, as "
        f"in '12 | text'; these numbers are not part of the file. Returns at most {MAX_LINES} lines: read the rest "
        "with start_line."
    )
    model = _ReadArguments

    async def _answer(self, request: _ReadArguments, context: ToolContext) -> dict[str, Any]:
        start = _start(request)
        if _REFERENCE.match(request.path) is None:
            path = _path_of_skill(request.path, context)
            if path is None:
                return await super()._answer(request, context)
            request = request.model_copy(update={"path": path})
        reference = resolve_reference(request.path.strip(), _view(context), context, context.artifacts)
        page = await _read_reference(reference, start, request.end_line, context)
        if page is not None:
            return _result(request, page, context.max_output)
        place = "/".join(("$WORKSPACE_DIR", *parts_of(reference.path, READABLE)))
        return await super()._answer(request.model_copy(update={"path": place}), context)

    def _work(
        self, request: _ReadArguments, area: Area, root: int, context: ToolContext, stop: threading.Event
    ) -> dict[str, Any]:
        target = area.locate(root, request.path)
        if area.kind(root, target) == "folder":
            raise ArgumentError(f"{request.path!r} is a folder: name a file in it. Glob lists its files.")
        with area.file(root, target) as descriptor:
            return _result(request, read_page(descriptor, _start(request), request.end_line), context.max_output)


async def _read_reference(reference: Reference, start: int, end: int | None, context: ToolContext) -> LinePage | None:
    """Return the lines ``start`` to ``end`` of a file in a skill, or of an artifact.

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
        if not reference.path.startswith("inputs/"):
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


def _path_of_skill(path: str, context: ToolContext) -> str | None:
    """Return the reference of a file by the absolute path that the text of a skill shows.

    Return None for any other path, and for a loaded skill: that is in the workspace.
    """
    if not path.startswith("/") or context.skills is None:
        return None
    found = skill_file(path, context.skills)
    loaded = context.skill_state or ()
    return None if found is None or found.skill in loaded else f"skill://{found.skill}/{found.path}"


def _start(request: _ReadArguments) -> int:
    start = request.start_line or 1
    if request.end_line is not None and request.end_line < start:
        raise ArgumentError(f"end_line {request.end_line} is before start_line {start}: swap them.")
    return start


def _result(request: _ReadArguments, page: LinePage, limit: int) -> dict[str, Any]:
    """Return the result, with as many lines as ``limit`` characters of JSON can have, 0 for all."""
    start = _start(request)
    if start > max(page.total, 1):
        raise ArgumentError(f"{request.path!r} has {page.total} lines, and start_line is {start}.")
    value = _value(request, page)
    while limit and len(page.lines) > 1 and (size := len(json.dumps(value, ensure_ascii=False))) > limit:
        # A little less than the share that fits, as lines differ in length.
        page = replace(page, lines=page.lines[: max(1, len(page.lines) * limit * 9 // (size * 10))], cut=0)
        value = _value(request, page)
    return value


def _value(request: _ReadArguments, page: LinePage) -> dict[str, Any]:
    value: dict[str, Any] = {
        "success": True,
        "content": "\n".join(f"{number} | {line}" for number, line in enumerate(page.lines, page.first)),
        "total_lines": page.total,
        "read_range": f"{page.first}-{page.last}" if page.lines else "0-0",
    }
    if page.encoding != "utf-8":
        value["encoding"] = page.encoding
    notes = []
    if page.cut:
        notes.append(f"line {page.first} has more than {MAX_CHARS} characters and is cut: use Bash (cut -c) for more")
    if page.last < min(request.end_line or page.total, page.total):
        value["next_line"] = page.last + 1
        notes.append(
            f"these are lines {page.first} to {page.last} of {page.total}: continue with start_line={page.last + 1}"
        )
    if notes:
        value["note"] = "; ".join(notes)
    return value
