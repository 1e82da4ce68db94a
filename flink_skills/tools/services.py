"""What the tools for skills work with. Tools are thin; what they do is here, once for each job or each model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flink_skills.manager.view import SkillView
from flink_skills.options import SkillConfig
from flink_skills.tools.settings import SkillSettings

if TYPE_CHECKING:
    from flink_skills.artifacts import ArtifactStore
    from flink_skills.tools.commands.runner import ShellRunner
    from flink_skills.tools.dynamic.bundled import BundledTools
    from flink_skills.tools.dynamic.pool import ToolPool
    from flink_skills.tools.interactive.sessions import ProcessSessions

__all__ = ["ToolServices"]


@dataclass(frozen=True)
class ToolServices:
    """The services of one model. What a job does not have is None.

    ``view`` are the skills that the model may use, ``settings`` how it gets them and ``own_tools`` the names of the
    agent's own tools that it has; the others are the same for all models of a job. ``toolsets`` give tools that models
    always have, ``pool`` has those that skills activate.
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
