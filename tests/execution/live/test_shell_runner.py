"""Live processes and variables of a call as the tools get them: the service behind them, and the workspace it holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flink_skills.errors import ExecutionError
from flink_skills.execution import (
    CommandRequest,
    CommandResult,
    IsolationLevel,
    IsolationReport,
    Limits,
    WorkspaceManager,
)
from flink_skills.execution.backends import HygieneBackend
from flink_skills.execution.workspace import Workspace
from flink_skills.options import SkillConfig
from flink_skills.tools import ShellRunner
from tests.kit.aging import age_workspace
from tests.kit.no_isolation import NoIsolationBackend
from tests.kit.waiting import until

from .conftest import Output

REPORT = IsolationReport(level=IsolationLevel.HYGIENE, backend="hygiene")


@pytest.fixture
def manager(tmp_path: Path) -> WorkspaceManager:
    return WorkspaceManager(tmp_path / "workspaces", ttl=3600.0)


@pytest.fixture
async def shell(manager: WorkspaceManager, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ShellRunner]:
    monkeypatch.setenv("REPORT_TOKEN", "t0k3n-of-report")
    monkeypatch.setenv("REGION", "eu")
    config = SkillConfig(
        {
            "skills.env.report.API_TOKEN": "${env:REPORT_TOKEN}",
            "skills.shell.env": "REGION",
            "skills.shell.max-concurrent": "1",
        }
    )
    backend = HygieneBackend()
    await backend.start()
    shell = ShellRunner(backend, manager, config, report=REPORT)
    yield shell
    await shell.close()
    await manager.aclose()


@pytest.fixture
def workspace(manager: WorkspaceManager) -> Workspace:
    return manager.for_key("k")


def is_leased(manager: WorkspaceManager, workspace: Workspace) -> bool:
    """Whether a sweep leaves it alone although it is old."""
    age_workspace(workspace.root, 7200)
    manager.sweep()
    return workspace.root.exists()


async def test_a_process_has_the_place_and_the_variables_of_a_command(shell: ShellRunner, workspace: Workspace) -> None:
    output = Output()
    process = await shell.start_process(
        'pwd; echo "$SKILL_NAME $FLINK_SKILLS_CALL_ID $API_TOKEN $REGION $MODE"; ls -d "$RUN_DIR"; cat',
        workspace=workspace,
        skill_name="report",
        call_id="call-7",
        env={"MODE": "fast"},
        stdin=b"given\n",
        on_output=output,
    )
    process.close_stdin()
    result = await process.wait()
    assert result.exit_code == 0
    lines = output.out.decode().splitlines()
    assert lines[0] == str(workspace.work_dir)
    # Whoever shows the output hides the values.
    assert lines[1] == "report call-7 t0k3n-of-report eu fast"
    assert shell.hidden.in_text(lines[1]) == "report call-7 [hidden] eu fast"
    assert lines[2].startswith(str(workspace.runs_dir))
    assert lines[3] == "given"
    assert list(workspace.runs_dir.iterdir()) == [], "a run's folder that nothing was left in is removed"


async def test_a_run_folder_of_the_caller_stays(shell: ShellRunner, workspace: Workspace) -> None:
    workspace.ensure()
    folder = workspace.new_run()
    output = Output()
    process = await shell.start_process(["/bin/pwd"], workspace=workspace, cwd=folder, run_dir=folder, on_output=output)
    await process.wait()
    assert output.out.decode().strip() == str(folder)
    assert folder.is_dir()


async def test_processes_take_no_slot_of_commands(shell: ShellRunner, workspace: Workspace) -> None:
    living = [await shell.start_process("cat", workspace=workspace, on_output=Output()) for _ in range(3)]
    ran = await asyncio.wait_for(shell.run("echo quick", workspace=workspace), 20)
    assert ran.stdout == b"quick\n"
    await asyncio.gather(*(process.terminate(0) for process in living))


async def test_a_process_keeps_its_workspace_in_use_beyond_the_turn(
    shell: ShellRunner, manager: WorkspaceManager, workspace: Workspace
) -> None:
    first = await shell.start_process("cat", workspace=workspace, on_output=Output())
    second = await shell.start_process("cat", workspace=workspace, tty=True, on_output=Output())
    workspace.release()
    assert is_leased(manager, workspace)
    await first.terminate(0)
    assert is_leased(manager, workspace)
    await second.terminate(0)
    assert not is_leased(manager, workspace)


async def test_a_turn_keeps_it_in_use_when_the_process_ends(
    shell: ShellRunner, manager: WorkspaceManager, workspace: Workspace
) -> None:
    process = await shell.start_process("cat", workspace=workspace, on_output=Output())
    workspace.release()
    workspace.ensure()  # the next turn
    await process.terminate(0)
    assert is_leased(manager, workspace)
    workspace.release()
    assert not is_leased(manager, workspace)


async def test_a_process_that_cannot_be_started_holds_nothing(
    manager: WorkspaceManager, workspace: Workspace, shell: ShellRunner
) -> None:
    other = ShellRunner(NoIsolationBackend(), manager, SkillConfig(), report=REPORT)
    with pytest.raises(ExecutionError, match="backend none has no interactive processes"):
        await other.start_process("cat", workspace=workspace, on_output=Output())
    with pytest.raises(ExecutionError, match="LD_PRELOAD"):
        await shell.start_process("cat", workspace=workspace, env={"LD_PRELOAD": "x"}, on_output=Output())
    assert list(workspace.runs_dir.iterdir()) == []
    workspace.release()
    assert not is_leased(manager, workspace)


def test_holds_are_counted_and_end_once(manager: WorkspaceManager, workspace: Workspace) -> None:
    ends = [workspace.hold() for _ in range(2)]
    workspace.release()
    ends[0]()
    ends[0]()
    assert is_leased(manager, workspace)
    ends[1]()
    assert not is_leased(manager, workspace)
    workspace.release()


def test_a_removed_workspace_forgets_who_held_it(manager: WorkspaceManager, workspace: Workspace) -> None:
    end = workspace.hold()
    workspace.remove()
    assert not workspace.root.exists()
    end()
    workspace.ensure()
    workspace.release()
    assert not is_leased(manager, workspace)


async def test_closing_ends_processes_and_lets_go(
    shell: ShellRunner, manager: WorkspaceManager, workspace: Workspace
) -> None:
    process = await shell.start_process("trap '' TERM; cat", workspace=workspace, on_output=Output())
    workspace.release()
    await shell.close()
    assert process.ended
    assert (await process.wait()).exit_code is None
    assert not is_leased(manager, workspace)


async def test_the_limits_of_the_job_hold_and_its_time_for_commands(
    manager: WorkspaceManager, workspace: Workspace
) -> None:
    requests: list[CommandRequest] = []

    class Noting(HygieneBackend):
        async def start_process(self, request: CommandRequest, **more: Any) -> Any:
            requests.append(request)
            return await super().start_process(request, **more)

        async def run(self, request: CommandRequest) -> CommandResult:
            requests.append(request)
            return await super().run(request)

    backend = Noting()
    await backend.start()
    config = SkillConfig({"skills.shell.max-timeout": "20 s"})
    shell = ShellRunner(backend, manager, config, report=REPORT)
    wanted = replace(Limits(), memory=1 << 40, processes=7)
    for timeout in (5, 500, None):
        given: dict[str, Any] = {"workspace": workspace, "timeout": timeout, "limits": wanted}
        await (await shell.start_process("true", on_output=Output(), **given)).wait()
        await shell.run("true", **given)
    # How long a process lives is for its owner to say, and for the job where nobody does.
    assert [request.limits.wall_time for request in requests] == [5, 5, 500, 20, 20, 20]
    assert {(request.limits.memory, request.limits.processes) for request in requests} == {(shell.limits.memory, 7)}
    assert len({request.writable for request in requests}) == 1
    await shell.close()


async def test_the_policy_of_the_job_holds(manager: WorkspaceManager, workspace: Workspace) -> None:
    backend = HygieneBackend()
    await backend.start()
    config = SkillConfig({"skills.shell.allowed-commands": "/bin/cat"})
    shell = ShellRunner(backend, manager, config, report=REPORT)
    with pytest.raises(ExecutionError, match="ls"):
        await shell.start_process("ls", workspace=workspace, on_output=Output())
    output = Output()
    process = await shell.start_process("cat", workspace=workspace, stdin=b"in", on_output=output)
    process.close_stdin()
    await process.wait()
    assert output.out == b"in"
    await shell.close()


async def test_an_error_shows_no_secret(
    shell: ShellRunner, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(stream: int, data: bytes) -> None:
        raise ValueError(data.decode())

    process = await shell.start_process(
        'echo "$API_TOKEN"; sleep 60', workspace=workspace, skill_name="report", on_output=fail
    )
    result = await process.wait()
    assert result.error is not None
    assert "t0k3n" not in result.error
    assert "[hidden]" in result.error


async def run(shell: ShellRunner, workspace: Workspace, text: str, env: dict[str, str], **more: Any) -> str:
    return (await shell.run(text, workspace=workspace, env=env, **more)).stdout.decode()


async def test_a_call_adds_variables(shell: ShellRunner, workspace: Workspace) -> None:
    text = 'echo "$A|$REGION|$PATH"'
    said = await run(shell, workspace, text, {"A": "1 $HOME", "REGION": "us"})
    assert said.startswith("1 $HOME|us|/")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("LD_PRELOAD", "never passed on"),
        ("PYTHONPATH", "never passed on"),
        ("BASH_ENV", "never passed on"),
        ("a-b", "is not a valid name"),
        ("", "is not a valid name"),
        ("PATH", "leave it out"),
        ("HOME", "leave it out"),
        ("WORKSPACE_DIR", "leave it out"),
        ("FLINK_SKILLS_CALL_ID", "leave it out"),
        ("API_TOKEN", "set for this skill by the job"),
    ],
)
async def test_variables_that_cannot_be_given_are_named(
    shell: ShellRunner, workspace: Workspace, name: str, why: str
) -> None:
    with pytest.raises(ExecutionError, match=why) as caught:
        await run(shell, workspace, "true", {name: "x"}, skill_name="report")
    assert str(caught.value).startswith("env: ")
    assert name in str(caught.value)


async def test_a_variable_cannot_hold_nul(shell: ShellRunner, workspace: Workspace) -> None:
    with pytest.raises(ExecutionError, match="NUL"):
        await run(shell, workspace, "true", {"A": "a\0b"})


async def test_the_secret_of_another_skill_is_no_reason_to_refuse_a_name(
    shell: ShellRunner, workspace: Workspace
) -> None:
    assert await run(shell, workspace, "echo $API_TOKEN", {"API_TOKEN": "mine"}, skill_name="billing") == "mine\n"


@pytest.mark.parametrize("value", ["out/today", "./work/../out/today", "$ROOT/out/today"])
async def test_output_dir_may_be_another_folder_of_the_workspace(
    shell: ShellRunner, workspace: Workspace, value: str
) -> None:
    value = value.replace("$ROOT", str(workspace.root))
    text = 'mkdir -p "$OUTPUT_DIR" && echo x > "$OUTPUT_DIR/file" && echo "$OUTPUT_DIR"'
    assert await run(shell, workspace, text, {"OUTPUT_DIR": value}) == f"{workspace.out_dir}/today\n"
    assert (workspace.out_dir / "today" / "file").read_text() == "x\n"


@pytest.mark.parametrize("value", ["/tmp", "../other", "out/../../x", "", ".", "skills/report", "/", "outside"])
async def test_output_dir_stays_where_commands_write(shell: ShellRunner, workspace: Workspace, value: str) -> None:
    with pytest.raises(ExecutionError, match="OUTPUT_DIR"):
        await run(shell, workspace, "true", {"OUTPUT_DIR": value})


async def test_a_process_is_ended_in_its_own_time(shell: ShellRunner, workspace: Workspace) -> None:
    output = Output()
    process = await shell.start_process(
        "trap 'echo bye; exit 4' TERM; echo up; sleep 60 & wait", workspace=workspace, tty=True, on_output=output
    )
    await until(lambda: b"up" in output.out)
    process.pause_output()
    process.resume_output()
    assert (await process.terminate(30)).exit_code == 4
    process.close()
