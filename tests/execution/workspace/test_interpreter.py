"""``python``, ``python3`` and ``pip`` of commands are the worker's interpreter, at each level."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from flink_skills.errors import ExecutionError, IsolationError
from flink_skills.execution import CommandUser, WorkspaceManager, command_user
from flink_skills.execution.workspace import command_python
from flink_skills.options import SkillConfig
from flink_skills.tools import ShellRunner

SYSTEM_PYTHON = "/usr/bin/python3"


def program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    folder = tmp_path / "venv"
    base = program(tmp_path / "base" / "python3")
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
    for name in ("python", "python3"):
        (folder / "bin" / name).symlink_to(base)
    return folder


def test_a_virtual_environment_precedes_the_path(venv: Path, tmp_path: Path) -> None:
    other = program(tmp_path / "other" / "python3").parent
    found = command_python(f"{other}:/bin", str(venv / "bin" / "python"))
    assert found.path == f"{venv / 'bin'}:{other}:/bin"
    # Its pip is missing, and another one belongs to another interpreter.
    assert found.programs["pip"] == f'#!/bin/sh\nexec {venv / "bin" / "python"} -m pip "$@"\n'
    assert set(found.programs) == {"pip", "pip3"}
    # At the end of the path, where it is for machines without another one, it is moved and not repeated.
    assert command_python(f"{other}:{venv / 'bin'}", str(venv / "bin" / "python3")).path == f"{venv / 'bin'}:{other}"


def test_an_active_environment_is_not_changed(venv: Path) -> None:
    path = f"{venv / 'bin'}:/bin"
    found = command_python(path, str(venv / "bin" / "python"))
    assert (found.path, dict(found.programs), found.remark) == (path, {}, "")


def test_a_link_to_a_virtual_environment_is_another_interpreter(venv: Path, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    for name in ("python", "python3"):
        (links / name).symlink_to(venv / "bin" / "python")
    assert command_python(str(links), str(venv / "bin" / "python")).path == f"{venv / 'bin'}:{links}"


def test_a_name_that_an_installation_lacks_is_a_script(tmp_path: Path) -> None:
    python = program(tmp_path / "bin" / "python3.11")
    found = command_python("/bin", str(python))
    assert found.path == f"{python.parent}:/bin"
    assert found.programs["python"] == found.programs["python3"] == f'#!/bin/sh\nexec {python} "$@"\n'


def test_an_interpreter_that_the_user_of_commands_cannot_reach(tmp_path: Path) -> None:
    python = program(tmp_path / "closed" / "python3")
    python.parent.chmod(0o700)
    user = CommandUser(65534, 65534)
    found = command_python("/usr/bin", str(python), user)
    assert f"user 65534, which cannot run the worker's interpreter {python}" in found.remark
    if os.access(SYSTEM_PYTHON, os.X_OK):
        # Both names are one interpreter all the same.
        assert found.programs.get("python", "") in ("", f'#!/bin/sh\nexec {SYSTEM_PYTHON} "$@"\n')
        assert "python3" not in found.programs


@dataclass
class Worker:
    """A worker in a virtual environment that is not active."""

    shell: ShellRunner
    workspaces: WorkspaceManager
    venv: Path

    async def says(self, command: str, skill: str | None = None) -> str:
        workspace = self.workspaces.for_key("k")
        result = await self.shell.run(command, workspace=workspace, skill_name=skill)
        assert result.exit_code == 0, result.stderr.decode()
        return result.stdout.decode().strip()


@pytest.fixture(params=["bwrap", "landlock", "hygiene"])
async def worker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Worker]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        venv = Path(folder) / "venv"
        made = await asyncio.to_thread(
            subprocess.run,
            [SYSTEM_PYTHON, "-m", "venv", "--without-pip", str(venv)],
            check=False,
            capture_output=True,
            timeout=120,
        )
        if made.returncode:
            pytest.skip(f"no virtual environment of {SYSTEM_PYTHON}: {made.stderr.decode()}")
        (packages,) = venv.glob("lib/python*/site-packages")
        (packages / "only_here.py").write_text("WHERE = 'the environment of the job'\n")
        monkeypatch.setattr(sys, "executable", str(venv / "bin" / "python"))
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        options = {"skills.shell.min-isolation": "HYGIENE", "skills.shell.readable": str(venv)}
        config = SkillConfig({"skills.shell.backend": request.param, **options})
        workspaces = WorkspaceManager(Path(folder) / "job", user=command_user(config))
        try:
            shell = await ShellRunner.start(config, workspaces)
        except IsolationError as error:
            pytest.skip(f"this machine has no such sandbox: {error}")
        try:
            yield Worker(shell, workspaces, venv)
        finally:
            await shell.close()
            workspaces.close()


async def test_both_names_are_the_workers_interpreter(worker: Worker) -> None:
    for name in ("python", "python3"):
        said = await worker.says(f"{name} -c 'import sys, only_here; print(sys.prefix, only_here.WHERE)'")
        assert said == f"{worker.venv} the environment of the job"
    script = "printf '#!/usr/bin/env python\\nimport only_here, sys; print(sys.prefix)' > $WORK_DIR/a"
    assert await worker.says(f"{script}; chmod +x $WORK_DIR/a; $WORK_DIR/a") == str(worker.venv)
    assert await worker.says("head -2 $WORKSPACE_DIR/bin/pip | tail -1") == (
        f'exec {worker.venv / "bin" / "python"} -m pip "$@"'
    )


async def test_programs_of_a_workspace_return_with_it(worker: Worker) -> None:
    assert "-m pip" in await worker.says("cat $(command -v pip)")
    worker.workspaces.for_key("k").remove()
    assert "-m pip" in await worker.says("cat $(command -v pip)")


@pytest.mark.parametrize(("option", "permitted"), [("allowed-commands", True), ("denied-commands", False)])
async def test_a_command_list_is_about_the_interpreter(
    option: str, permitted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script in ``bin/`` of the workspace is neither another program nor a way around a list."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        python = Path(folder) / "apart" / "python3.99"
        python.parent.mkdir(mode=0o755)
        python.symlink_to(SYSTEM_PYTHON)
        monkeypatch.setattr(sys, "executable", str(python))
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        options = {"skills.shell.backend": "hygiene", "skills.shell.min-isolation": "HYGIENE"}
        config = SkillConfig({**options, f"skills.shell.{option}": str(python)})
        workspaces = WorkspaceManager(Path(folder) / "job", user=command_user(config))
        shell = await ShellRunner.start(config, workspaces)
        try:
            workspace = workspaces.for_key("k")
            if permitted:
                result = await shell.run("python -c 'import sys; print(sys.executable)'", workspace=workspace)
                assert result.stdout.decode().strip() == str(python)
            else:
                with pytest.raises(ExecutionError, match="does not permit 'python'"):
                    await shell.run("python -c pass", workspace=workspace)
        finally:
            await shell.close()
            workspaces.close()
