"""The tools for skills: list, load and read skills, select their documents and tools, and run commands with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.tools.skills.shell_tool import ExecuteShellCommand as ExecuteShellCommand
    from flink_skills.tools.skills.skill_exec import caller_of as caller_of

_HOMES = {"ExecuteShellCommand": "shell_tool", "caller_of": "skill_exec"}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
