"""Output is capped while it streams (suite row 35), and never mixed up between commands (row 45)."""

from __future__ import annotations

import asyncio
import contextlib
import os

import psutil
import pytest

from flink_skills.execution import Limits
from tests.kit.waiting import until

from .conftest import Shell

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMIT = Limits(output=10_000)


async def test_flood_is_capped_with_flat_memory(sh: Shell) -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    result = await sh("yes & yes >&2", timeout=1.0)
    grown = process.memory_info().rss - before
    assert result.timed_out
    for text, dropped in ((result.stdout, result.stdout_dropped), (result.stderr, result.stderr_dropped)):
        assert text.startswith(b"y\ny\n")
        assert text.endswith(b"y\n")
        assert f"[... {dropped} bytes left out ...]".encode() in text
        assert len(text) < 65_536 + 100
        assert dropped > 10 << 20
    assert grown < 10 << 20


async def test_flood_leaves_the_event_loop_free(sh: Shell) -> None:
    flood = asyncio.create_task(sh("yes", timeout=1.0))
    beats = 0
    while not flood.done():
        await asyncio.sleep(0.001)
        beats += 1
    assert beats > 50


async def test_head_and_tail_are_kept(sh: Shell) -> None:
    result = await sh("seq 100000", limits=LIMIT)
    whole = b"".join(b"%d\n" % n for n in range(1, 100_001))
    head, tail = whole[:5000], whole[-5000:]
    assert result.stdout_dropped == len(whole) - 10_000
    assert result.stdout == head + b"\n[... %d bytes left out ...]\n" % result.stdout_dropped + tail
    assert result.truncated


async def test_output_of_exactly_the_limit_is_whole(sh: Shell) -> None:
    result = await sh("head -c 10000 /dev/zero", limits=LIMIT)
    assert (result.stdout, result.truncated) == (bytes(10_000), False)
    more = await sh("head -c 10001 /dev/zero", limits=LIMIT)
    assert more.stdout_dropped == 1


async def test_one_line_of_twenty_megabytes(sh: Shell) -> None:
    result = await sh("head -c 20971520 /dev/zero | tr '\\0' x", limits=LIMIT)
    assert result.exit_code == 0
    assert result.stdout_dropped == 20_971_520 - 10_000
    assert set(result.stdout.partition(b"\n")[0]) == {ord("x")}


async def test_bytes_are_bytes(sh: Shell) -> None:
    result = await sh(r"printf 'a\0b\377\376c'")
    assert result.stdout == b"a\0b\xff\xfec"


async def test_nothing_kept_with_a_limit_of_zero(sh: Shell) -> None:
    result = await sh("echo hello", limits=Limits(output=0))
    assert result.stdout_dropped == 6
    assert b"hello" not in result.stdout


async def test_sixty_four_at_once_do_not_mix(sh: Shell) -> None:
    async def one(number: int) -> None:
        word = f"w{number:03d}"
        text = f"for i in $(seq 300); do echo {word}-out; echo {word}-err >&2; done; cat; exit {number}"
        result = await sh(text, stdin=f"{word}-in".encode())
        assert result.stdout == f"{word}-out\n".encode() * 300 + f"{word}-in".encode()
        assert result.stderr == f"{word}-err\n".encode() * 300
        assert result.exit_code == number

    await asyncio.gather(*(one(number) for number in range(64)))


async def test_pipe_kept_open_by_a_stranger_does_not_hold_the_result(sh: Shell) -> None:
    # Somebody outside its tree may hold a command's stdout; nobody can close it there.
    running = asyncio.create_task(sh("echo up; exec sleep 3"))
    await until(lambda: any(names_of(pid) == "sleep" for pid in sh.processes()))
    kept = os.open(f"/proc/{sh.processes()[0]}/fd/1", os.O_WRONLY)
    try:
        assert (await asyncio.wait_for(running, 20)).stdout == b"up\n"
    finally:
        os.close(kept)


def names_of(pid: int) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).name()
    return ""
