"""The six file tools with one working folder."""

from __future__ import annotations

from typing import Any

from flink_skills.tools.base import Tool, ToolContext
from flink_skills.tools.dynamic.toolset_base import BaseToolSet
from flink_skills.tools.files.bash import Bash
from flink_skills.tools.files.edit import Edit
from flink_skills.tools.files.file_search import Glob, Grep
from flink_skills.tools.files.file_tool import FileTool
from flink_skills.tools.files.read import Read
from flink_skills.tools.files.write import Write
from flink_skills.tools.tool_names import matches

__all__ = ["FileToolSet"]


class FileToolSet(BaseToolSet):
    """``Read``, ``Write``, ``Edit``, ``Grep``, ``Glob`` and ``Bash`` on the workspace of each key.

    ``cwd`` is their working folder, see :class:`~flink_skills.tools.files.file_tool.FileTool`. Raises
    :class:`~flink_skills.errors.ConfigError` for a folder that is none of a workspace, and where google-re2 is not
    installed.

    >>> [tool.spec.name for tool in FileToolSet("reports").tools]
    ['Read', 'Write', 'Edit', 'Grep', 'Glob', 'Bash']
    """

    name = "files"
    uses_workspace = True

    def __init__(self, cwd: str | None = None) -> None:
        kinds: tuple[type[FileTool[Any]], ...] = (Read, Write, Edit, Grep, Glob, Bash)
        self.tools: tuple[Tool, ...] = tuple(kind(cwd) for kind in kinds)

    def tool_names(self) -> list[str]:
        return [tool.spec.name for tool in self.tools]

    def can_bring(self, pattern: str) -> bool:
        return any(matches(name, (pattern,)) for name in self.tool_names())

    async def get_tools(self, context: ToolContext) -> tuple[Tool, ...]:
        """All six."""
        return self.tools
