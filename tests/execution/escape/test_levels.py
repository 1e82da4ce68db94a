"""What the canaries of the product say is what the suite expects of the backend, and no row is forgotten."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flink_skills.execution import (
    BackendSettings,
    CommandUser,
    ExecutionBackend,
    IsolationLevel,
    Limits,
    create_backend,
)
from flink_skills.testing.execution import ExecutionBackendContract
from tests.execution.escape.columns import expected_level
from tests.execution.escape.conftest import backend_params, start_or_skip
from tests.execution.escape.machine import COMMAND_USER, landlock_abi, missing
from tests.execution.escape.test_attempts import ROWS
from tests.execution.escape.worker import WorkerProcess
from tests.execution.escape.world import World
from tests.kit.waiting import MARGIN, SLOWNESS

ALL_ROWS = set(range(1, 49))


@pytest.mark.parametrize("worker", backend_params(control=False), indirect=True)
def test_the_canaries_prove_the_level(worker: WorkerProcess, record_property: Callable[[str, object], None]) -> None:
    # For tests.kernel.summary: a report then has the kernel and the level.
    record_property("kernel", os.uname().release)
    record_property("landlock_abi", landlock_abi())
    record_property("uid", os.geteuid())
    record_property("user_namespaces", missing("userns", worker.identity.command_uid) or "yes")
    found = worker.call("prove")
    level = min(IsolationLevel.parse(found["level"]), IsolationLevel.parse(worker.facts["level"]))
    record_property("level", level.name)
    assert level == expected_level(worker.backend), found


def test_every_row_has_a_test() -> None:
    named = {
        int(number)
        for path in Path(__file__).parent.glob("test_*.py")
        for number in re.findall(r"def test_row(\d+)_", path.read_text(encoding="utf-8"))
    }
    # Row 48 is every test with the pair that does not isolate.
    control = {48 for parameter in backend_params() if parameter.id == "none-same"}
    assert ALL_ROWS - named - set(ROWS) - control == set()


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


KEPT = 65_536
NOTICE = 200  # bytes of the line that says what is left out
MAY_GROW = 24 << 20

isolated = pytest.mark.parametrize("worker", backend_params(control=False), indirect=True)


@isolated
@pytest.mark.parametrize(
    ("text", "stream"),
    [("yes", "stdout"), ("yes >&2", "stderr"), ("exec 2>&1; yes & yes", "stdout")],
    ids=["stdout", "stderr", "two-writers"],
)
def test_row35_endless_output(worker: WorkerProcess, world: World, text: str, stream: str) -> None:
    before = worker.call("state")["resident"]
    result = world.shell(text, limits=Limits(wall_time=1, output=KEPT))
    grown = worker.call("state")["resident"] - before
    assert result.timed_out
    assert result.truncated
    assert getattr(result, f"{stream}_dropped") > 4 << 20
    assert len(result.stdout) + len(result.stderr) < KEPT + NOTICE
    assert grown < MAY_GROW


@isolated
def test_row35_one_line_that_is_longer_than_the_memory_may_grow(worker: WorkerProcess, world: World) -> None:
    length = 2 * MAY_GROW
    before = worker.call("state")["resident"]
    result = world.shell(f"head -c {length} /dev/zero | tr '\\0' x; echo end", limits=Limits(wall_time=120 * SLOWNESS))
    grown = worker.call("state")["resident"] - before
    assert result.exit_code == 0
    assert result.stdout_dropped == length + len("end\n") - KEPT
    assert result.stdout.startswith(b"xxxx")
    assert result.stdout.endswith(b"xend\n")
    assert grown < MAY_GROW


@isolated
def test_row35_bytes_of_all_kinds(worker: WorkerProcess, world: World) -> None:
    result = world.shell(r"printf 'a\0b\377\376\300\200c'; printf '\355\240\200' >&2")
    assert result.stdout == b"a\0b\xff\xfe\xc0\x80c"
    assert result.stderr == b"\xed\xa0\x80"


@isolated
def test_row35_a_pipe_that_is_held_by_a_daemon_while_it_is_full(worker: WorkerProcess, world: World) -> None:
    started = time.monotonic()
    result = world.shell("setsid yes & echo done >&2", limits=Limits(wall_time=60 * SLOWNESS))
    assert (result.exit_code, result.stderr) == (0, b"done\n")
    assert time.monotonic() - started < MARGIN
    assert world.processes() == []


USER = CommandUser(COMMAND_USER, COMMAND_USER) if os.geteuid() == 0 else None


class _Local(ExecutionBackendContract):
    name: str
    user = USER

    @pytest.fixture
    def backend(self) -> ExecutionBackend:
        start_or_skip(self.name, USER)
        return create_backend(self.name, BackendSettings(user=USER))


class TestHygiene(_Local):
    name = "hygiene"


class TestLandlock(_Local):
    name = "landlock"


class TestBwrap(_Local):
    name = "bwrap"
