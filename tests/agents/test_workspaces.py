"""What turns do with the workspace of their key, and when it goes."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, SkillConfig
from flink_skills.agents import OpenAgent, compile_plan, open_plan
from flink_skills.manager import SkillScope
from flink_skills.testing import call, calls
from tests.kit.agents import Bench
from tests.kit.models import Script
from tests.kit.waiting import until
from tests.kit.walking import folders_below

from .test_turn import Scripted, main_outputs

Open = Callable[..., Awaitable[Bench]]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user can pass through: commands of a worker that is root run as one."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.fixture
async def opened(folder: Path, skill_folder: Path, tmp_path: Path) -> AsyncIterator[Open]:
    runtimes: list[OpenAgent] = []

    async def make(agent: type[Agent] = Scripted, operator: str = "", **options: Any) -> Bench:
        options = {f"skills.{name.replace('_', '.')}": value for name, value in options.items()}
        options |= {"skills.shell.backend": "hygiene", "skills.shell.min-isolation": "HYGIENE"}
        config = SkillConfig({"skills.store.dir": str(tmp_path / "store"), **options})
        plan = compile_plan(agent, job_scopes=[SkillScope(level="job", paths=(str(skill_folder),))], config=config)
        runtimes.append(await open_plan(replace(plan, operator=operator), scratch_dir=str(folder / "flink-skills-job")))
        return Bench(runtimes[-1])

    yield make
    for runtime in runtimes:
        await runtime.close()


async def test_an_agent_that_a_job_has_twice_has_workspaces_and_call_ids_of_its_own(
    opened: Open, folder: Path, script: Script
) -> None:
    class Looks(Scripted):
        async def on_event(self, event: Any, ctx: Any) -> Any:
            before = await ctx.call_tool("execute_shell_command", command="ls; touch here")
            return [ctx.call_id, before["stdout"]]

    benches = [await opened(Looks, operator=name) for name in ("", "other")]
    (first, nothing), (second, nothing_either) = [main_outputs(await bench.turn("e"))[0] for bench in benches]
    assert first != second
    assert "here" not in nothing + nothing_either
    assert len(workspaces(folder)) == 2


def command(text: str) -> Any:
    return calls(call("execute_shell_command", command=text))


def workspaces(folder: Path) -> list[Path]:
    return sorted(path for path in folders_below(folder) if path.name.startswith("ws_"))


@pytest.mark.row("H7")
async def test_turns_of_a_key_find_what_the_turn_before_left_and_other_keys_do_not(
    opened: Open, script: Script, folder: Path
) -> None:
    asks = command("cat $WORK_DIR/n; echo x >> $WORK_DIR/n")
    model = script(lambda request: "done" if len(request.messages) > 1 else asks)
    bench = await opened()
    for number, key in enumerate(['"a"', '"a"', '"b"', '"a"'], start=1):
        assert main_outputs(await bench.turn(number, key=key, number=number)) == ["done"]
    said = [str(request.messages[-1].content).count("\nx") for request in model.requests[1::2]]
    assert said == [0, 1, 0, 2]
    assert len(workspaces(folder)) == 2
    await bench.runtime.close()
    assert workspaces(folder) == []


async def test_a_workspace_goes_some_time_after_its_last_turn(opened: Open, script: Script, folder: Path) -> None:
    model = script([command("echo x > $WORK_DIR/n; ls $WORK_DIR"), "done", command("ls $WORK_DIR"), "done"])
    bench = await opened(workspace_ttl="300 ms")
    for number in (1, 2):
        assert main_outputs(await bench.turn("one", number=number)) == ["done"]
        await until(lambda: not workspaces(folder))
    said = [str(request.messages[-1].content) for request in model.requests[1::2]]
    assert ["\nn" in text for text in said] == [True, False]
    assert all("inputs" in text for text in said)


async def test_a_workspace_stays_while_its_turn_runs(opened: Open, script: Script, folder: Path) -> None:
    async def answer(request: Any) -> Any:
        if len(request.messages) == 1:
            return command("true")
        if "another" in request.messages[0].content:
            return "done"
        own = workspaces(folder)
        assert len(own) == 1
        for number in range(1, 4):
            assert main_outputs(await Bench(bench.runtime).turn("another", key='"x"', number=number)) == ["done"]
            assert len(workspaces(folder)) == 2
            await until(lambda: len(workspaces(folder)) == 1, "a sweep that removes the workspace of the other key")
            assert workspaces(folder) == own
        return "done"

    script(answer)
    bench = await opened(workspace_ttl="50 ms")
    assert main_outputs(await bench.turn("one")) == ["done"]
    await until(lambda: not workspaces(folder))


@pytest.mark.row("H1")
async def test_a_turn_without_commands_makes_no_workspace(opened: Open, script: Script, folder: Path) -> None:
    script([calls(call("load_skill", name="shout")), "done"])
    bench = await opened()
    assert main_outputs(await bench.turn("one")) == ["done"]
    assert workspaces(folder) == []


@pytest.mark.row("H1")
async def test_the_folder_of_the_option(opened: Open, script: Script, folder: Path) -> None:
    script([command("pwd"), "done"])
    bench = await opened(workspace_dir=str(folder / "chosen"))
    await bench.turn("one")
    (path,) = workspaces(folder)
    assert path.is_relative_to(folder / "chosen" / "flink-skills-job")
    await bench.runtime.close()
    assert list((folder / "chosen").iterdir()) == []
