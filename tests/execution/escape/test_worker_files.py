"""Row 46: what the worker itself does with files in a workspace, while commands swap them for something else."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from flink_skills.execution import Limits
from tests.execution.escape.conftest import backend_params
from tests.execution.escape.worker import WorkerError, WorkerProcess
from tests.execution.escape.world import World
from tests.kit.waiting import MARGIN, SLOWNESS

isolated = pytest.mark.parametrize("worker", backend_params(control=False), indirect=True)


def _write_event(world: World, text: str) -> bool:
    """Have the worker write the event of the first session; whether it did. It may refuse, and may not block."""
    started = time.monotonic()
    try:
        world.worker.call("write_event", key=f"a {world.mark}", text=text)
    except WorkerError as error:
        assert "ExecutionError" in str(error), error
        return False
    finally:
        assert time.monotonic() - started < MARGIN
    return True


def _unchanged(world: World, names: set[str], canary: str) -> None:
    assert {path.name for path in world.outside.iterdir()} == names
    assert (world.outside / "canary").read_text() == canary


@isolated
@pytest.mark.parametrize(
    "trap",
    [
        "rm -rf inputs; ln -s {outside} inputs",
        "rm -f inputs/event.json; ln -s {outside}/canary inputs/event.json",
        "rm -f inputs/event.json; ln -s {outside}/made inputs/event.json",
        "rm -f inputs/event.json; mkfifo inputs/event.json",
        "rm -rf inputs; mkfifo inputs",
        "rm -rf inputs; echo x > inputs",
        "rm -f inputs/event.json; mkdir -p inputs/event.json/full",
        "chmod 000 inputs",
        "rm -rf inputs",
    ],
)
def test_row46_the_event_is_written_past_traps(worker: WorkerProcess, world: World, trap: str) -> None:
    names, canary = {path.name for path in world.outside.iterdir()}, (world.outside / "canary").read_text()
    _write_event(world, '{"n": 0}')
    result = world.shell(trap.format(outside=world.outside))
    assert result.exit_code == 0, result
    if _write_event(world, '{"n": 1}'):
        seen = world.shell("cat inputs/event.json", limits=Limits(wall_time=MARGIN))
        assert seen.stdout == b'{"n": 1}', seen
    _unchanged(world, names, canary)


@isolated
def test_row46_the_event_is_written_while_its_folder_is_swapped(worker: WorkerProcess, world: World) -> None:
    names, canary = {path.name for path in world.outside.iterdir()}, (world.outside / "canary").read_text()
    swap = """
import os, sys, time
end = time.monotonic() + 3
outside, folder = sys.argv[1], "inputs"
print("up", flush=True)
while time.monotonic() < end:
    try:
        os.rename(folder, "kept")
        os.symlink(outside, folder)
        os.unlink(folder)
        os.rename("kept", folder)
    except OSError:
        for name in (folder,):
            if os.path.islink(name):
                os.unlink(name)
        os.makedirs(folder, exist_ok=True)
"""
    running = worker.begin([world.python(swap, str(world.outside), limits=Limits(wall_time=30 * SLOWNESS))])
    end = time.monotonic() + 3
    written = 0
    while time.monotonic() < end:
        written += _write_event(world, f'{{"n": {written}}}')
    result = worker.results(running)[0]
    assert (result.exit_code, result.stdout) == (0, b"up\n"), result
    assert written
    _unchanged(world, names, canary)


@isolated
def test_row46_a_skill_is_staged_past_traps(worker: WorkerProcess, world: World) -> None:
    names, canary = {path.name for path in world.outside.iterdir()}, (world.outside / "canary").read_text()
    for trap in (
        f"rm -rf {world.room.root}/skills; ln -s {world.outside} {world.room.root}/skills",
        f"mv {world.room.skill} {world.room.work}/moved; ln -s {world.outside} {world.room.skill}",
        f"chmod -R 700 {world.room.root}/skills; rm -rf {world.room.skill}; ln -s {world.outside} {world.room.skill}",
    ):
        world.shell(trap)
        started = time.monotonic()
        try:
            worker.call("stage_again", key=f"a {world.mark}")
        except WorkerError as error:
            assert "ExecutionError" in str(error), error
        assert time.monotonic() - started < MARGIN
        _unchanged(world, names, canary)


@isolated
def test_row46_a_hostile_workspace_is_removed(worker: WorkerProcess, world: World) -> None:
    names, canary = {path.name for path in world.outside.iterdir()}, (world.outside / "canary").read_text()
    text = """
import os, sys
os.symlink(sys.argv[1], "to-outside")
os.symlink(sys.argv[1] + "/canary", "to-canary")
os.mkfifo("fifo")
for n in range(1000):
    open(f"file{n}", "w").close()
os.mkdir("shut"); open("shut/x", "w").close(); os.chmod("shut", 0)
open("big", "wb").truncate(1 << 40)
for n in range(300):
    os.mkdir("deep"); os.chdir("deep")
"""
    limits = Limits(workspace_files=0, file_size=0, workspace_bytes=0)
    result = worker.run(world.python(text, str(world.outside), limits=limits))[0]
    assert result.exit_code == 0, result
    started = time.monotonic()
    worker.call("remove", key=f"a {world.mark}")
    assert time.monotonic() - started < MARGIN
    assert not os.path.lexists(world.room.root)
    _unchanged(world, names, canary)


@isolated
def test_row46_a_folder_of_a_command_that_is_no_folder_any_more(worker: WorkerProcess, world: World) -> None:
    folder = Path(world.room.work, "here")
    result = world.shell(f"mkdir here && rmdir here && ln -s {world.outside} here")
    assert result.exit_code == 0
    inside = worker.run(world.request("/bin/sh", "-c", "cat canary; ls", cwd=str(folder)))[0]
    # Where files are closed, standing in a folder does not open it.
    if worker.backend != "hygiene":
        assert b"canary" not in inside.stdout, inside
