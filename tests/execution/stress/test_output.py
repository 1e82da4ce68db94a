"""Floods of output: the memory of the worker stays where it is, and the result comes in time (rows 35 and 45)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.kit.waiting import MARGIN

from .conftest import started
from .worker_process import worker_process

GIB = 1 << 30
MIB = 1 << 20
# What the pieces of one stream may take besides what is kept of it: a chunk, and a tail that is not cut every time.
PER_STREAM = 512 << 10
KEPT = 65_536


async def run(folder: Path, commands: Sequence[str], limits: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Run ``commands`` at once in a worker of its own; what it says at the end."""
    name = "landlock"
    await (await started(name)).close()
    async with worker_process(name, folder, commands, limits=limits) as worker:
        await worker.says(30)
        told = await worker.says(170)
        assert worker.mark.processes() == []
    assert [result["error"] for result in told["results"]] == [None] * len(commands)
    assert told["grown"] < 2 * MIB + 2 * PER_STREAM * len(commands)
    return told


@pytest.mark.parametrize(
    "total", [pytest.param(200 * MIB, id="200 MiB"), pytest.param(10 * GIB, id="10 GiB", marks=pytest.mark.nightly)]
)
async def test_output_without_bounds_in_bounded_memory(folder: Path, total: int) -> None:
    # Over both streams of two commands, because the worker bounds how fast it throws away what one stream brings.
    each = total // 4
    text = f"yes | head -c {each} & yes no | head -c {each} >&2; wait"
    told = await run(folder, [text] * 2)
    for result in told["results"]:
        assert (result["exit_code"], result["limit"]) == (0, None)
        for output, dropped, word in zip(result["output"], result["dropped"], ("y\n", "no\n"), strict=True):
            note = f"\n[... {dropped} bytes left out ...]\n"
            assert dropped == each - KEPT
            head, _, tail = output.partition(note)
            assert len(head) + len(tail) == KEPT
            assert head == (word * KEPT)[: len(head)]
            assert tail == (word * KEPT)[(each - len(tail)) % len(word) :][: len(tail)]


async def test_yes_without_an_end_ends_in_time_sixteen_times_at_once(folder: Path) -> None:
    told = await run(folder, ["setsid yes & trap '' TERM; yes >&2 & wait; wait; wait"] * 16, {"wall_time": 2.0})
    for result in told["results"]:
        assert result["timed_out"]
        assert min(result["dropped"]) > MIB
        # Half a second from SIGTERM to SIGKILL.
        assert result["duration"] < 2.0 + 0.5 + MARGIN
    assert told["seconds"] < 2.0 + 0.5 + MARGIN


@pytest.mark.parametrize(
    ("source", "byte"),
    [
        pytest.param("head -c 20971520 /dev/zero | tr '\\0' x", "x", id="one line"),
        pytest.param("head -c 20971520 /dev/zero", "\0", id="NUL"),
        pytest.param("head -c 20971520 /dev/zero | tr '\\0' '\\377'", "\xff", id="invalid UTF-8"),
    ],
)
async def test_twenty_megabytes_without_a_line(folder: Path, source: str, byte: str) -> None:
    told = await run(folder, [source, f"({source}) >&2"])
    for number, result in enumerate(told["results"]):
        assert result["exit_code"] == 0
        assert result["dropped"][number] == 20_971_520 - KEPT
        output = result["output"][number]
        head, _, tail = output.partition(f"\n[... {result['dropped'][number]} bytes left out ...]\n")
        assert len(head) == len(tail) == KEPT // 2
        assert set(head + tail) == {byte}
        assert result["output"][1 - number] == ""


async def test_children_that_keep_the_pipe_delay_no_result_and_add_nothing_to_it(folder: Path) -> None:
    told = await run(
        folder,
        [
            "sleep 300 & echo done",
            "(setsid sleep 300 &) ; echo done",
            "exec 5>&1 6>&2; (setsid sleep 300 >/dev/null 2>&1 &) ; echo done",
            # Still pouring when the command itself has ended.
            "(setsid yes &) ; (setsid yes >&2 &) ; sleep 0.2; exit 3",
        ],
        {"wall_time": 60.0},
    )
    *quiet, pouring = told["results"]
    assert [(result["exit_code"], result["output"]) for result in quiet] == [(0, ["done\n", ""])] * 3
    assert pouring["exit_code"] == 3
    assert set(pouring["output"][0].partition("\n[")[0]) <= {"y", "\n"}
    # Far from the 300 s of the sleepers and from the 60 s of the limit.
    assert told["seconds"] < MARGIN
