"""Skills that bring tools, used by keys as turns use them: real processes, and the tools of the profile ``full``."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from flink_skills import ToolResult
from flink_skills.execution import IsolationReport, WorkspaceManager, command_user
from flink_skills.execution.backends import HygieneBackend
from flink_skills.manager import SkillView
from flink_skills.options import SkillConfig
from flink_skills.skill import AgentSkill
from flink_skills.tools import ShellRunner, SkillSettings, SkillState, ToolContext, ToolServices, ToolSet, profile_tools
from flink_skills.tools.dynamic import BundledTools, Described, active_tools


class Bundles:
    """Skills with tools, and the services of a worker that runs them."""

    def __init__(self, shell: ShellRunner, bundled: BundledTools, skills: Mapping[str, Mapping[str, str]]) -> None:
        self.shell = shell
        self.bundled = bundled
        self.view = SkillView(
            [AgentSkill(name, f"All about {name}.", "How to.", files) for name, files in skills.items()]
        )

    def key(self, name: str = "k") -> Key:
        return Key(self, name)

    async def describe(self, skill: str, key: str = "k") -> Described:
        found = self.view.get(skill)
        assert found is not None
        return await self.bundled.describe(found, self.key(key).context)


class Key:
    """Calls tools for one key of the stream; effects are applied before the next call."""

    def __init__(self, bundles: Bundles, name: str) -> None:
        self._bundles = bundles
        settings = SkillSettings.of(SkillConfig(), {"skill_tools": "full"})
        services = ToolServices(bundles.view, settings=settings, shell=bundles.shell, bundled=bundles.bundled)
        # Those about skills: the others have tests of their own.
        names = [name for name in settings.tools if name in ("skill_load", "skill_unload", "skill_list_tools")]
        self._faces = profile_tools(names, services)
        self.state = SkillState()
        self.context = ToolContext(
            key=name,
            call_id="call-1",
            skills=bundles.view,
            skill_state=self.state,
            workspace=bundles.shell.workspaces.for_key(f'"{name}"'),
        )

    def tools(self) -> ToolSet:
        """What the model can call now."""
        taken = [tool.spec.name for tool in self._faces]
        active = active_tools(self.state, self._bundles.view, {}, self._bundles.bundled, taken)
        return ToolSet([*self._faces, *active.tools])

    async def load(self, skill: str) -> ToolResult:
        return await self.call("skill_load", skill=skill)

    async def call(self, tool: str, /, **arguments: Any) -> ToolResult:
        result = await self.tools().call(tool, arguments, self.context)
        for effect in result.effects:
            self.state.apply(effect)
        return result


@contextlib.asynccontextmanager
async def opened(
    folder: Path,
    skills: Mapping[str, Mapping[str, str]],
    *,
    backend: str = "",
    most: int | None = None,
    idle: float = 60.0,
    wait: float = 30.0,
    base_env: Mapping[str, str] | None = None,
    **options: object,
) -> AsyncIterator[Bundles]:
    """The services of a worker; ``backend`` is a proved one, "" for commands that are kept apart by nothing."""
    config = SkillConfig({name: str(value) for name, value in options.items()})
    if backend:
        config = SkillConfig({"skills.shell.backend": backend, **options})
        shell = await ShellRunner.start(config, WorkspaceManager(folder / "workspaces", user=command_user(config)))
    else:
        plain = HygieneBackend()
        workspaces = WorkspaceManager(folder / "workspaces", base_env=base_env)
        shell = ShellRunner(plain, workspaces, config, report=IsolationReport(plain.level, plain.name))
        await plain.start()
    bundled = BundledTools(shell, config, most=most, idle=idle, wait=wait)
    try:
        yield Bundles(shell, bundled, skills)
    finally:
        await bundled.close()
        assert bundled.running == 0
        await shell.close()
        shell.workspaces.close()
        assert not (folder / "workspaces").exists()
