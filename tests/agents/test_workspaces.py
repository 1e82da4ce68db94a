"""What turns do with the workspace of their key, and when it goes."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, SkillConfig, SourceError
from flink_skills.agents import OpenAgent, compile_plan, open_plan
from flink_skills.errors import ConfigError, IsolationError
from flink_skills.execution import IsolationLevel
from flink_skills.manager import SkillScope
from flink_skills.testing import call, calls
from tests.agents.test_turn import Scripted, error_of, main_outputs
from tests.flink.skill_files import pack, write_skill
from tests.kit.agents import Bench
from tests.kit.disks import fill, small_disk
from tests.kit.models import Script
from tests.kit.waiting import until
from tests.kit.walking import folders_below

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

    async def make(
        agent: type[Agent] = Scripted, operator: str = "", skills: Path = skill_folder, **options: Any
    ) -> Bench:
        options = {f"skills.{name.replace('_', '.')}": value for name, value in options.items()}
        options |= {"skills.shell.backend": "hygiene", "skills.shell.min-isolation": "HYGIENE"}
        config = SkillConfig({"skills.store.dir": str(tmp_path / "store"), **options})
        plan = compile_plan(agent, job_scopes=[SkillScope(level="job", paths=(str(skills),))], config=config)
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


class Quiet(Agent):
    async def on_event(self, event: Any, ctx: Any) -> Any:
        return event


@pytest.fixture
def scratch() -> Iterator[str]:
    """A folder that other users can pass through, which those of pytest are not: commands may run as one."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield f"{folder}/scratch"


async def open_quiet(skills: Path, scratch: str, *, quiet: bool = False, **options: Any) -> OpenAgent:
    config = SkillConfig({"skills.store.dir": f"{scratch}-store", **options})
    plan = compile_plan(Quiet, job_scopes=[SkillScope(level="job", paths=(str(skills),))], config=config)
    return await open_plan(plan, scratch_dir=scratch, quiet=quiet)


def workspaces_in(scratch: str) -> list[Path]:
    return [path for path in folders_below(Path(scratch)) if path.name.startswith("ws_")]


HYGIENE = {"skills.shell.backend": "hygiene", "skills.shell.min-isolation": "HYGIENE"}


@pytest.mark.row("K6")
async def test_below_landlock_is_a_warning_and_a_low_number(
    skill_folder: Path, scratch: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "flink_skills.runtime")
    for quiet, level in ((False, "WARNING"), (True, "DEBUG")):
        caplog.clear()
        runtime = await open_quiet(skill_folder, scratch, quiet=quiet, **HYGIENE)
        try:
            assert runtime.figures()["isolationLevel"] == 10
            report = runtime.report()
            assert report["isolation"] == runtime.isolation == "HYGIENE"
            assert report["isolation_report"]["backend"] == "hygiene"
            assert report["isolation_report"]["not_enforced"]
        finally:
            await runtime.close()
        (record,) = [record for record in caplog.records if "commands run at level HYGIENE" in record.message]
        assert record.levelname == level


async def test_landlock_or_better_is_no_warning(
    skill_folder: Path, scratch: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "flink_skills.runtime")
    try:
        runtime = await open_quiet(skill_folder, scratch)
    except IsolationError as error:
        pytest.skip(f"this machine has no such sandbox: {error}")
    try:
        assert runtime.figures()["isolationLevel"] >= IsolationLevel.LANDLOCK
        assert runtime.report()["isolation_report"]["net"] == "denied"
    finally:
        await runtime.close()
    (record,) = [record for record in caplog.records if "commands run at level" in record.message]
    assert record.levelname == "INFO"


async def test_what_a_policy_does_not_do_is_said(
    skill_folder: Path, scratch: str, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = await open_quiet(skill_folder, scratch, **HYGIENE, **{"skills.shell.denied-commands": "/usr/bin/env"})
    await runtime.close()
    assert "skills.shell.denied-commands alone does not stop a program" in caplog.text


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("skills.shell.env", "LD_PRELOAD"),
        ("skills.env.shout.PYTHONPATH", "${env:X}"),
        ("skills.shell.allowed-commands", "git"),
    ],
)
async def test_options_that_cannot_be_used_stop_the_opening(
    skill_folder: Path, scratch: str, option: str, value: str
) -> None:
    with pytest.raises(ConfigError, match=f"option {option}: "):
        await open_quiet(skill_folder, scratch, **HYGIENE, **{option: value})
    assert workspaces_in(scratch) == []


SIZE = 4 << 20
# What is handed to commands: file systems do not count to the last byte.
LARGE = "write" * 100_000
LOUD = command("head -c 200000 /dev/zero > $WORK_DIR/big && echo written")


@pytest.fixture
def disk() -> Iterator[Path]:
    """A small file system that another user can pass through: commands of a worker that is root run as one."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        disk = Path(folder) / "disk"
        disk.mkdir()
        with small_disk(disk, SIZE):
            yield disk


async def test_a_full_workspace_fails_the_turns_that_need_it_and_says_so(
    disk: Path, opened: Open, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(request: Any) -> Any:
        return LOUD if "write" in request.messages[0].content and len(request.messages) == 1 else "done"

    model = script(answer)
    bench = await opened(workspace_dir=str(disk))
    assert main_outputs(await bench.turn(LARGE, key='"a"')) == ["done"]
    with fill(disk):
        problem = error_of(await bench.turn(LARGE, key='"a"', number=2))
        # Of a key that has no workspace yet as well.
        other = error_of(await bench.turn(LARGE, key='"b"'))
        assert main_outputs(await bench.turn("talk", key='"c"')) == ["done"]
    for text in (problem, other):
        assert "No space left on device" in text
        assert str(disk) in text
        assert "free some space there, or set skills.workspace.dir to another folder" in text
    told = [record for record in caplog.records if record.name == "flink_skills.workspace"]
    assert [str(disk) in record.getMessage() for record in told] == [True]
    for key in ('"a"', '"b"'):
        assert main_outputs(await bench.turn(LARGE, key=key, number=3)) == ["done"]
        assert "written" in str(model.requests[-1].messages[-1].content)

    def unfinished() -> list[str]:
        # A thread may be writing such a file now.
        entries = [entry.name for path in workspaces(disk) for entry in path.iterdir()]
        return [name for name in entries if name.startswith(".")]

    await until(lambda: not unfinished(), lambda: f"{unfinished()} to be removed")


async def test_a_skill_that_did_not_fit_is_staged_whole_by_the_next_call_of_the_turn(
    disk: Path, opened: Open, script: Script, tmp_path: Path
) -> None:
    folder = write_skill(tmp_path / "skills", "large", files={"data.txt": "d" * 500_000}).parent
    full = fill(disk, spare=200_000)
    size = calls(call("execute_shell_command", command="wc -c < data.txt"))

    def answer(request: Any) -> Any:
        number = len(request.messages)
        if number == 1:
            # The workspace is made while there is space.
            return command("true")
        if number == 3:
            full.__enter__()
            return calls(call("load_skill", name="large"))
        if number == 7:
            full.__exit__(None, None, None)
        return {5: size, 7: size}.get(number, "done")

    model = script(answer)
    bench = await opened(skills=folder, workspace_dir=str(disk))
    assert main_outputs(await bench.turn("x")) == ["done"]
    failed, succeeded = (str(model.requests[number].messages[-1].content) for number in (3, 4))
    assert "skill 'large' cannot be copied" in failed
    assert "No space left on device" in failed
    assert "set skills.workspace.dir to another folder" in failed
    assert "500000" in succeeded


async def test_a_store_without_space_fails_the_opening_and_leaves_no_half_skill(
    disk: Path, opened: Open, script: Script, tmp_path: Path
) -> None:
    folders = [write_skill(tmp_path / "made", name, files={"data.txt": os.urandom(300_000).hex()}) for name in "ab"]
    archive = pack(tmp_path / "skills.zip", folders)
    store = disk / "store"
    with fill(disk, spare=700_000):
        with pytest.raises(SourceError) as error:
            await opened(skills=archive, store_dir=str(store))
        text = str(error.value)
        assert error.value.retryable
        assert str(archive) in text
        assert f"the store {store} cannot be written (No space left on device)" in text
        assert "free some space, or set skills.store.dir to another folder" in text
        assert [path.name for path in store.iterdir() if not path.name.startswith(".")] == []
    model = script(lambda request: calls(call("load_skill", name="b")) if len(request.messages) == 1 else "done")
    bench = await opened(skills=archive, store_dir=str(store))
    assert main_outputs(await bench.turn("x")) == ["done"]
    assert "Say hello." in str(model.requests[-1].messages[-1].content)
