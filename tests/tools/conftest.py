from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from flink_skills.execution import IsolationReport, WorkspaceManager
from flink_skills.execution.backends import HygieneBackend
from flink_skills.manager import AgentSkillManager, SkillView
from flink_skills.options import SkillConfig
from flink_skills.tools import (
    ShellRunner,
    SkillSettings,
    SkillState,
    ToolContext,
    ToolServices,
    ToolSet,
    profile_tools,
)

LogTriage = """---
name: log-triage
description: Finds the root cause in a Flink log.
---
Run `sh scripts/where.sh`. Levels are in references/levels.md.
"""


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    folder = tmp_path / "skills"
    for name, text in {
        "log-triage/SKILL.md": LogTriage,
        "log-triage/scripts/where.sh": 'pwd; echo "$SKILL_NAME"\n',
        "log-triage/references/levels.md": "WARN, ERROR: " + "x" * 3000 + "end",
        "billing/SKILL.md": "---\nname: billing\ndescription: Reads invoices.\n---\nUse scripts/sum.sh.\n",
        "billing/scripts/sum.sh": "echo 42\n",
        "billing/scripts/total": "#!/bin/sh\necho total of $1 in $SKILL_NAME\n",
        "secret-ops/SKILL.md": "---\nname: secret-ops\ndescription: Not for everybody.\n---\nSecret text.\n",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if text.startswith("#!") else 0o644)
    return folder


@pytest.fixture
def manager(skills: Path, tmp_path: Path) -> AgentSkillManager:
    manager = AgentSkillManager(paths=[str(skills)], store_dir=str(tmp_path / "store"))
    manager.load_skills()
    manager.check_sources()
    return manager


@pytest.fixture
def view(manager: AgentSkillManager) -> SkillView:
    return manager.view(["log-triage", "billing"])


ShellWith = Callable[..., Awaitable[ShellRunner]]


@pytest.fixture
async def shell_with(tmp_path: Path) -> AsyncIterator[ShellWith]:
    """Starts shells with options, at level HYGIENE and unproved (what that takes has tests of its own); closes them."""
    started: list[ShellRunner] = []

    async def start(**options: object) -> ShellRunner:
        config = SkillConfig({_key(name): value for name, value in options.items()})
        backend = HygieneBackend()
        report = IsolationReport(backend.level, backend.name)
        shell = ShellRunner(backend, WorkspaceManager(tmp_path / "workspaces"), config, report=report)
        await backend.start()
        started.append(shell)
        return shell

    yield start
    for shell in started:
        await shell.close()
        shell.workspaces.close()
    assert not (tmp_path / "workspaces").exists()


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that other users can pass through, which those of pytest are not: commands may run as one."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


def _key(name: str) -> str:
    return name if "." in name else name.replace("__", ".").replace("_", "-")


class Conversation:
    """Calls tools as a turn does: effects of results are applied before the next call."""

    def __init__(
        self,
        view: SkillView,
        shell: ShellRunner | None,
        key: str = '"k"',
        *,
        settings: SkillSettings | None = None,
        **services: object,
    ) -> None:
        self.shell = shell
        self.settings = settings or SkillSettings()
        self.services = ToolServices(view, settings=self.settings, shell=shell, **services)  # type: ignore[arg-type]
        self.tools = ToolSet(profile_tools(self.settings.tools, self.services))
        self.skill_state = SkillState()
        self.workspace = shell.workspaces.for_key(key) if shell else None
        self.context = ToolContext(
            key="k", call_id="call-1", skills=view, skill_state=self.skill_state, workspace=self.workspace
        )

    async def call(self, tool: str, /, **arguments: object):  # type: ignore[no-untyped-def]
        result = await self.tools.call(tool, arguments, self.context)
        for effect in result.effects:
            self.skill_state.apply(effect)
        return result


@pytest.fixture
async def conversation(view: SkillView, shell_with) -> Conversation:  # type: ignore[no-untyped-def]
    return Conversation(view, await shell_with())
