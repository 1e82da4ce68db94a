"""Row 35: output of any size and kind, in memory that does not grow with it."""

from __future__ import annotations

import time

import pytest

from flink_skills.execution import Limits
from tests.execution.escape.conftest import backend_params
from tests.execution.escape.worker import WorkerProcess
from tests.execution.escape.world import World
from tests.kit.waiting import MARGIN, SLOWNESS

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
