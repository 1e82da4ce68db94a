"""Row 49: what the worker decides about a key does not depend on metadata, which commands of other keys can change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.execution.escape.conftest import backend_params
from tests.execution.escape.worker import WorkerProcess
from tests.execution.escape.world import World

worlds = pytest.mark.parametrize("worker", backend_params(control=False), indirect=True)

# The other key disclosed its paths to the command, which cannot compute them.
SPOIL = """
import os, sys
way, *paths = sys.argv[1:]
for path in paths:
    try:
        os.chmod(path, 0) if way == "modes" else os.utime(path, (1, 1))
    except OSError:
        pass
"""


def _spoil(world: World, way: str, *paths: str | Path) -> None:
    result = world.worker.run(world.python(SPOIL, way, *map(str, paths)))[0]
    assert (result.error, result.exit_code) == (None, 0), result


@worlds
@pytest.mark.parametrize("way", ["times", "modes"])
def test_row49_the_sweep_removes_no_workspace_whose_metadata_was_changed(
    worker: WorkerProcess, world: World, way: str
) -> None:
    root = Path(world.other.root)
    (Path(world.other.work) / "kept").write_text("x")
    worker.call("release", key=f"b {world.mark}")
    _spoil(world, way, root / "metadata.json", root, root.parent)
    worker.call("sweep")
    assert worker.call("digest", key=f"b {world.mark}") == "1"
    assert (Path(world.other.work) / "kept").read_text() == "x"


@worlds
def test_row49_a_workspace_that_was_closed_is_open_for_the_next_turn(worker: WorkerProcess, world: World) -> None:
    root = Path(world.other.root)
    script = Path(world.other.skill, "scripts", "run.sh")
    folders = [root / name for name in ("work", "skills", "out", "runs", "tmp", "home")]
    _spoil(world, "modes", root / "metadata.json", *folders, root, root.parent, root.parent.parent)
    worker.call("stage_again", key=f"b {world.mark}")
    worker.call("write_event", key=f"b {world.mark}", text="{}")
    result = worker.run(world.request("/bin/sh", str(script), room=world.other))[0]
    assert (result.exit_code, result.stdout) == (0, b"report\n"), result


@worlds
def test_row49_a_job_removes_its_workspaces_although_they_were_closed(worker: WorkerProcess, world: World) -> None:
    names = {path.name for path in Path(world.room.root).parent.iterdir()}
    assert {".names", os.path.basename(world.room.root), os.path.basename(world.other.root)} <= names
    root = Path(world.other.root)
    _spoil(world, "modes", root / "metadata.json", root / "work", root, root.parent)
    worker.call("remove", key=f"b {world.mark}")
    assert not root.exists()
