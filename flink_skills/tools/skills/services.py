"""Services that the tools for skills of one model use, and the creation of these tools."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flink_skills.manager.view import SkillView
from flink_skills.options import SkillConfig
from flink_skills.tools.base import Tool
from flink_skills.tools.profiles import COMMAND_TOOLS, FACES, TOOL_FILES, TOOLS_ABOUT_TOOLS, SkillSettings

if TYPE_CHECKING:
    from flink_skills.artifacts import ArtifactStore
    from flink_skills.tools.commands.runner import ShellRunner
    from flink_skills.tools.dynamic.bundled import BundledTools
    from flink_skills.tools.dynamic.tool_pool import ToolPool
    from flink_skills.tools.runs.process_sessions import ProcessSessions


@dataclass(frozen=True)
class ToolServices:
    """The services of one model. A service that the job does not have is None.

    ``view`` contains the skills of the model, ``own_tools`` the names of the agent's tools that it has, and
    ``accepts`` the kinds of media that it accepts. The other services are the same for all models of a job.
    ``toolsets`` has tools that models always have, ``pool`` those that skills activate.
    """

    view: SkillView
    config: SkillConfig = field(default_factory=SkillConfig)
    settings: SkillSettings = field(default_factory=SkillSettings)
    shell: ShellRunner | None = None
    sessions: ProcessSessions | None = None
    artifacts: ArtifactStore | None = None
    toolsets: ToolPool | None = None
    pool: ToolPool | None = None
    bundled: BundledTools | None = None
    own_tools: frozenset[str] = frozenset()
    accepts: frozenset[str] = frozenset()


def profile_tools(names: Sequence[str], services: ToolServices) -> list[Tool]:
    """Return the tools of a model, of those ``names`` that can work in the job.

    A job without a shell has no tools for commands. Without skills there is only ``execute_shell_command``. Without a
    pool of tools and a skill that has tools, no tool lists or selects these.
    """
    missing = set(COMMAND_TOOLS) if services.shell is None else set()
    about_tools = not TOOLS_ABOUT_TOOLS.isdisjoint(names)
    if about_tools and services.pool is None and not services.view.has_tools(TOOL_FILES):
        missing |= TOOLS_ABOUT_TOOLS
    return [
        _face(name)(services)
        for name in names
        if name not in missing and (services.view.names or name == "execute_shell_command")
    ]


def _face(name: str) -> Callable[[ToolServices], Tool]:
    module, _, attribute = FACES[name].partition(":")
    face: Callable[[ToolServices], Tool] = getattr(importlib.import_module(module), attribute)
    return face
