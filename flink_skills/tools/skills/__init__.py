"""The tools for skills: list, load and read skills, select their documents and tools, and run commands with them."""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.tools.skills.shell_tool import ExecuteShellCommand as ExecuteShellCommand
    from flink_skills.tools.skills.skill_exec import caller_of as caller_of
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
