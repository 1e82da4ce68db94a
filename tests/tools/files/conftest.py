from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from flink_skills import ToolResult
from flink_skills.execution import BackendSettings, CommandUser, IsolationReport, Workspace, WorkspaceManager
from flink_skills.execution.backends import HygieneBackend
from flink_skills.manager import SkillView
from flink_skills.options import SkillConfig
from flink_skills.tools import ShellRunner, SkillState, ToolContext, ToolSet
from flink_skills.tools.files import FileToolSet

NOBODY = CommandUser(65534, 65534)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs commands as another user")


class Files:
    """The file tools of one key, called as a model does."""

    def __init__(self, shell: ShellRunner, view: SkillView | None = None, *, cwd: str | None = None) -> None:
        self.shell = shell
        self.set = FileToolSet(cwd)
        self.tools = ToolSet(self.set.tools)
        self.workspace: Workspace = shell.workspaces.for_key('"k"')
        self.workspace.ensure()
        self.context = ToolContext(
            key="k",
            call_id="call-1",
            skills=view,
            skill_state=SkillState(),
            workspace=self.workspace,
            shell=shell,
        )

    @property
    def work(self) -> Path:
        return self.workspace.work_dir

    async def result(self, tool: str, /, **arguments: object) -> ToolResult:
        return await self.tools.call(tool, arguments, self.context)

    async def __call__(self, tool: str, /, **arguments: object) -> dict[str, object]:
        result = await self.result(tool, **arguments)
        assert result.is_error is not result.value["success"]
        return dict(result.value)

    async def error(self, tool: str, /, **arguments: object) -> str:
        value = await self(tool, **arguments)
        assert set(value) == {"success", "error"}
        assert value["success"] is False
        return str(value["error"])


@pytest.fixture
async def files(shell_with: Callable[..., object], view: SkillView) -> Files:
    return Files(await shell_with(), view)  # type: ignore[misc]


@pytest.fixture(params=["worker", pytest.param("another user", marks=as_root)])
async def shared_files(request: pytest.FixtureRequest, shared_folder: Path) -> AsyncIterator[Files]:
    """Files where commands run as the worker's own user, and as another one."""
    user = NOBODY if request.param == "another user" else None
    backend = HygieneBackend(BackendSettings(user=user))
    top = shared_folder / "jobs" / "job"
    workspaces = WorkspaceManager(top / "agent", user=user, top=top)
    shell = ShellRunner(backend, workspaces, SkillConfig(), report=IsolationReport(backend.level, backend.name))
    await backend.start()
    yield Files(shell)
    await shell.close()
    workspaces.close()


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A file that no workspace holds; what is in it must stay, and be shown to nobody."""
    path = tmp_path / "outside.txt"
    path.write_text("not for models\n")
    yield path
    assert path.read_text() == "not for models\n"
