"""A disk without space: what fails says so and how to fix it, all else goes on, and so does it once there is space."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills import SkillConfig, SourceError
from flink_skills.agents import OpenAgent, compile_plan, open_plan
from flink_skills.manager import SkillScope
from flink_skills.testing import call, calls
from tests.flink.skill_files import pack, write_skill
from tests.kit.agents import Bench
from tests.kit.disks import fill, small_disk
from tests.kit.models import Script
from tests.kit.waiting import until

from .test_turn import Scripted, error_of, main_outputs
from .test_workspaces import command, workspaces

Open = Callable[..., Awaitable[Bench]]
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


@pytest.fixture
async def opened(tmp_path: Path, disk: Path) -> AsyncIterator[Open]:
    runtimes: list[OpenAgent] = []

    async def make(skills: Path, **options: Any) -> Bench:
        given = {
            "skills.shell.backend": "hygiene",
            "skills.shell.min-isolation": "HYGIENE",
            "skills.store.dir": str(tmp_path / "store"),
            **{f"skills.{name.replace('_', '.')}": value for name, value in options.items()},
        }
        plan = compile_plan(
            Scripted, job_scopes=[SkillScope(level="job", paths=(str(skills),))], config=SkillConfig(given)
        )
        runtimes.append(await open_plan(plan, scratch_dir=str(tmp_path / "scratch")))
        return Bench(runtimes[-1])

    yield make
    for runtime in runtimes:
        await runtime.close()


async def test_a_full_workspace_fails_the_turns_that_need_it_and_says_so(
    opened: Open, script: Script, skill_folder: Path, disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(request: Any) -> Any:
        return LOUD if "write" in request.messages[0].content and len(request.messages) == 1 else "done"

    model = script(answer)
    bench = await opened(skill_folder, workspace_dir=str(disk))
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
    opened: Open, script: Script, tmp_path: Path, disk: Path
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
    bench = await opened(folder, workspace_dir=str(disk))
    assert main_outputs(await bench.turn("x")) == ["done"]
    failed, succeeded = (str(model.requests[number].messages[-1].content) for number in (3, 4))
    assert "skill 'large' cannot be copied" in failed
    assert "No space left on device" in failed
    assert "set skills.workspace.dir to another folder" in failed
    assert "500000" in succeeded


async def test_a_store_without_space_fails_the_opening_and_leaves_no_half_skill(
    opened: Open, script: Script, tmp_path: Path, disk: Path
) -> None:
    folders = [write_skill(tmp_path / "made", name, files={"data.txt": os.urandom(300_000).hex()}) for name in "ab"]
    archive = pack(tmp_path / "skills.zip", folders)
    store = disk / "store"
    with fill(disk, spare=700_000):
        with pytest.raises(SourceError) as error:
            await opened(archive, store_dir=str(store))
        text = str(error.value)
        assert error.value.retryable
        assert str(archive) in text
        assert f"the store {store} cannot be written (No space left on device)" in text
        assert "free some space, or set skills.store.dir to another folder" in text
        assert [path.name for path in store.iterdir() if not path.name.startswith(".")] == []
    model = script(lambda request: calls(call("load_skill", name="b")) if len(request.messages) == 1 else "done")
    bench = await opened(archive, store_dir=str(store))
    assert main_outputs(await bench.turn("x")) == ["done"]
    assert "Say hello." in str(model.requests[-1].messages[-1].content)
