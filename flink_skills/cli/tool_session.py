"""The tools of one skill, described and called by what does so in a job."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from flink_skills.cli.left_files import look
from flink_skills.cli.limit_words import LIMITS, asked_limits, capped_notes
from flink_skills.cli.trial import LOOKED_INTO, Outcome, left_since, run_in_scratch
from flink_skills.cli.trial_inputs import named_inputs, one_skill, put_inputs
from flink_skills.errors import ConfigError, SkillsError, UnknownNameError
from flink_skills.execution import WorkspaceManager
from flink_skills.execution.configuration import limits_from
from flink_skills.execution.workspace.scratch import check_commands
from flink_skills.manager import SkillView
from flink_skills.options import SkillConfig
from flink_skills.skill import AgentSkill
from flink_skills.tools import ShellRunner, ToolContext, ToolResult
from flink_skills.tools.dynamic import BundledTools, Described, tool_places

__all__ = ["AskedTools", "SkillTools", "ToolOutcome", "with_tools"]


@dataclass(frozen=True)
class AskedTools:
    """The words of a command about the tools of a skill.

    ``limits``, ``timeout`` and ``inputs`` are as for ``flink-skills exec``.
    """

    source: str
    config: SkillConfig
    skill: str | None = None
    limits: tuple[str, ...] = ()
    timeout: str | None = None
    inputs: tuple[str, ...] = ()


@dataclass
class ToolOutcome(Outcome):
    """The outcome of tools so far. ``places`` are the file and line of each tool."""

    skill: str = ""
    path: str = ""
    described: Described = field(default_factory=Described)
    places: Mapping[str, str] = field(default_factory=dict)
    result: ToolResult | None = None
    seconds: float = 0.0


class SkillTools:
    """The tools of a skill, in a temporary workspace."""

    def __init__(self, skill: AgentSkill, bundled: BundledTools, context: ToolContext, outcome: ToolOutcome) -> None:
        self.skill = skill
        self._bundled = bundled
        self._context = context
        self._outcome = outcome

    @property
    def specs(self) -> dict[str, Mapping[str, Any]]:
        """The descriptions of the tools by name."""
        return {str(spec["name"]): spec for spec in self._outcome.described.specs}

    @property
    def problems(self) -> tuple[str, ...]:
        """The reasons why other tools are missing."""
        return self._outcome.described.problems

    async def call(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Call a tool as a model does, and note the result and the files that it left."""
        workspace = await self._context.need_workspace()
        before = look(workspace.root, LOOKED_INTO)
        started = time.monotonic()
        self._outcome.result = await self._bundled.call(self.skill.name, name, arguments, self._context)
        self._outcome.seconds = time.monotonic() - started
        shell = self._context.shell
        assert shell is not None  # noqa: S101 - with_tools sets it
        self._outcome.files, notes = left_since(before, workspace, shell.hidden)
        self._outcome.notes += notes


def with_tools(
    asked: AskedTools, work: Callable[[SkillTools], Awaitable[None]] | None = None
) -> tuple[int, ToolOutcome]:
    """Describe the tools of a skill, then run ``work`` with them.

    Returns:
        The exit code of a signal that interrupted the command, or 0, and the outcome.

    Raises:
        SkillsError: The words of the command line cannot be used. ``work`` may raise :class:`ConfigError` as well.
    """
    config = asked.config
    check_commands(config)
    limits = asked_limits(asked.limits, asked.timeout)
    job = limits_from(config)
    outcome = ToolOutcome(notes=capped_notes(limits, job))
    for name, value in asdict(replace(job, **limits).capped_by(job)).items():  # type: ignore[arg-type]
        if name in limits:
            config.set(LIMITS[name].option, value)
    inputs = named_inputs(asked.inputs)
    refused: list[SkillsError] = []
    with one_skill(asked.skill, [asked.source], config) as skill:
        outcome.skill, outcome.path, outcome.places = skill.name, skill.path or "", tool_places(skill)

        async def run(workspaces: WorkspaceManager) -> None:
            shell = await ShellRunner.start(config, workspaces)
            outcome.report = shell.report
            outcome.notes += shell.remarks()
            bundled = BundledTools(shell, config)
            try:
                workspace = workspaces.for_key("flink-skills call")
                workspace.ensure()
                put_inputs(inputs, workspace)
                context = ToolContext(
                    key="flink-skills call",
                    call_id="call",
                    skills=SkillView([skill]),
                    workspace=workspace,
                    shell=shell,
                )
                if bundled.brings_tools(skill):
                    outcome.described = await bundled.describe(skill, context)
                if work is not None:
                    try:
                        await work(SkillTools(skill, bundled, context, outcome))
                    except (ConfigError, UnknownNameError) as error:
                        refused.append(error)
            finally:
                await bundled.close()
                await shell.close()

        interrupted = run_in_scratch(config, run, outcome.fail)
    if refused and not interrupted:
        raise refused[0]
    return interrupted, outcome
