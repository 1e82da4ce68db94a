"""Bundled tools of one skill, described and called with the sandbox of a job."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from flink_skills.cli.run.exec_files import copy_inputs, open_skill, parse_inputs
from flink_skills.cli.run.exec_run import OUTPUT_DIRS, Outcome, changed_files, run_in_scratch
from flink_skills.cli.run.limit_args import LIMITS, cap_notes, parse_limits
from flink_skills.cli.run.output_listing import list_outputs
from flink_skills.errors import ConfigError, SkillsError, UnknownNameError
from flink_skills.execution import WorkspaceManager
from flink_skills.execution.configuration import limits_from
from flink_skills.execution.workspace.scratch import check_commands
from flink_skills.manager import SkillView
from flink_skills.options import SkillConfig
from flink_skills.skill import AgentSkill
from flink_skills.tools import ShellRunner, ToolContext, ToolResult
from flink_skills.tools.dynamic import BundledTools, Described, tool_places
from flink_skills.tools.profiles import brings_tools

__all__ = ["SkillTools", "ToolOutcome", "ToolsRequest", "run_with_tools"]


@dataclass(frozen=True)
class ToolsRequest:
    """Arguments of ``flink-skills tools`` and ``flink-skills call``.

    Attributes:
        skill: Name of the skill. None selects the only skill of ``source``.
        limits: Values of ``--limit NAME=VALUE``.
        timeout: Value of ``--timeout``.
        inputs: Paths of ``--input``.
    """

    source: str
    config: SkillConfig
    skill: str | None = None
    limits: tuple[str, ...] = ()
    timeout: str | None = None
    inputs: tuple[str, ...] = ()


@dataclass
class ToolOutcome(Outcome):
    """Outcome of describing or calling tools. ``locations`` are the file and line of each tool."""

    skill: str = ""
    path: str = ""
    described: Described = field(default_factory=Described)
    locations: Mapping[str, str] = field(default_factory=dict)
    result: ToolResult | None = None
    seconds: float = 0.0


class SkillTools:
    """Bundled tools of a skill in a temporary workspace."""

    def __init__(self, skill: AgentSkill, bundled: BundledTools, context: ToolContext, outcome: ToolOutcome) -> None:
        self.skill = skill
        self._bundled = bundled
        self._context = context
        self._outcome = outcome

    @property
    def specs(self) -> dict[str, Mapping[str, Any]]:
        """Return the descriptions of the tools by name."""
        return {str(spec["name"]): spec for spec in self._outcome.described.specs}

    @property
    def problems(self) -> tuple[str, ...]:
        """Return the reasons why other tools are missing."""
        return self._outcome.described.problems

    async def call(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Call a tool as a model does, and store the result and the changed files in the outcome."""
        workspace = await self._context.get_workspace()
        before = list_outputs(workspace.root, OUTPUT_DIRS)
        started = time.monotonic()
        self._outcome.result = await self._bundled.call(self.skill.name, name, arguments, self._context)
        self._outcome.seconds = time.monotonic() - started
        shell = self._context.shell
        assert shell is not None  # noqa: S101 - run_with_tools sets it
        self._outcome.files, notes = changed_files(before, workspace, shell.hidden)
        self._outcome.notes += notes


def run_with_tools(
    request: ToolsRequest, work: Callable[[SkillTools], Awaitable[None]] | None = None
) -> tuple[int, ToolOutcome]:
    """Describe the tools of a skill, then run ``work`` with them.

    Returns:
        The exit code of the signal that interrupted the command, or 0, and the outcome.

    Raises:
        SkillsError: An argument is invalid, or ``work`` raised :class:`ConfigError` or :class:`UnknownNameError`.
    """
    config = request.config
    check_commands(config)
    limits = parse_limits(request.limits, request.timeout)
    job = limits_from(config)
    outcome = ToolOutcome(notes=cap_notes(limits, job))
    for name, value in asdict(replace(job, **limits).capped_by(job)).items():  # type: ignore[arg-type]
        if name in limits:
            config.set(LIMITS[name].option, value)
    inputs = parse_inputs(request.inputs)
    usage_errors: list[SkillsError] = []
    with open_skill(request.skill, [request.source], config) as skill:
        outcome.skill, outcome.path, outcome.locations = skill.name, skill.path or "", tool_places(skill)

        async def run(workspaces: WorkspaceManager) -> None:
            shell = await ShellRunner.start(config, workspaces)
            outcome.report = shell.report
            outcome.notes += shell.remarks()
            bundled = BundledTools(shell, config)
            try:
                workspace = workspaces.for_key("flink-skills call")
                workspace.ensure()
                copy_inputs(inputs, workspace)
                context = ToolContext(
                    key="flink-skills call",
                    call_id="call",
                    skills=SkillView([skill]),
                    workspace=workspace,
                    shell=shell,
                )
                if brings_tools(skill):
                    outcome.described = await bundled.describe(skill, context)
                if work is not None:
                    try:
                        await work(SkillTools(skill, bundled, context, outcome))
                    except (ConfigError, UnknownNameError) as error:
                        usage_errors.append(error)
            finally:
                await bundled.close()
                await shell.close()

        signal_code = run_in_scratch(config, run, outcome.fail)
    if usage_errors and not signal_code:
        raise usage_errors[0]
    return signal_code, outcome
