"""``Glob``: files by a pattern of their paths."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Annotated, Any

from pydantic import Field

from flink_skills.execution.workspace.globs import Globs, Position
from flink_skills.execution.workspace.workspace_paths import WorkspacePathError
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext
from flink_skills.tools.files.area import Area
from flink_skills.tools.files.file_tool import MAX_SEARCHES, StoredTool
from flink_skills.tools.files.names import ROOTS
from flink_skills.tools.files.walking import Walk
from flink_skills.tools.given import Also, Given

__all__ = ["Glob"]

_SECONDS = 20.0
_MAX_PATTERN = 1000
_MAX_RESULTS = 10_000


class _GlobArguments(Given):
    pattern: Annotated[str, Also("glob")]
    include_dirs: Annotated[bool, Also("include_folders", "dirs")] = False
    max_results: Annotated[int, Field(ge=1, le=_MAX_RESULTS), Also("limit")] = 1000


class Glob(StoredTool[_GlobArguments]):
    """Lists files whose path matches a pattern, sorted; links are not followed and not listed.

    ``{success, matches, count, truncated, pattern}``. ``*`` and ``?`` stay within a name, ``**`` is any number of
    folders, ``[a-z]`` one character and ``{a,b}`` either; one pattern stands for 256 at the most.
    """

    tool_name = "Glob"
    description = "List files by a pattern, such as '**/*.py' or 'src/*.{js,ts}'. Relative to the working folder."
    model = _GlobArguments
    max_threads = MAX_SEARCHES

    def _work(
        self, asked: _GlobArguments, area: Area, root: int, context: ToolContext, stop: threading.Event
    ) -> dict[str, Any]:
        if len(asked.pattern) > _MAX_PATTERN:
            raise ArgumentError(f"The pattern has more than {_MAX_PATTERN} characters: split it.")
        try:
            globs = Globs([area.names.pattern(asked.pattern)], ROOTS)
        except WorkspacePathError as error:
            raise ArgumentError(f"pattern: {error}") from None

        def enter(name: str, position: Position) -> Position | None:
            return globs.enter(name, position) or None

        walk: Walk[Position] = Walk(area, enter, seconds=_SECONDS, stop=stop)
        found: list[str] = []
        truncated = False
        with ExitStack() as held:
            folder = held.enter_context(area.folder(root, area.locate(root, "$WORKSPACE_DIR")))
            for entry in walk.below(folder, (), globs.start):
                if entry.is_folder and not asked.include_dirs:
                    continue
                if not globs.is_match(entry.parts[-1], entry.position):
                    continue
                if len(found) >= asked.max_results:
                    truncated = True
                    break
                found.append(area.names.shown(entry.parts) + ("/" if entry.is_folder else ""))
        value: dict[str, Any] = {
            "success": True,
            "matches": found,
            "count": len(found),
            "truncated": truncated or bool(walk.unfinished),
            "pattern": asked.pattern,
        }
        if walk.unfinished:
            value["note"] = f"the list is incomplete: {walk.unfinished}. Name a folder in the pattern."
        elif truncated:
            value["note"] = f"there are more than {asked.max_results}: narrow the pattern, or raise max_results"
        return value
