"""Much output, and receivers that cannot take it."""

from __future__ import annotations

import asyncio
import time

import psutil
import pytest

from tests.kit.waiting import until

from .conftest import Output, Processes

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1 << 20
MAY_GROW = 32 * MIB


class Count:
    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, stream: int, data: bytes) -> None:
        self.seen += len(data)


class Pulse:
    """Counter of the turns that the event loop gives to others."""

    def __init__(self) -> None:
        self.beats = 0
        self._task = asyncio.ensure_future(self._beat())

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(0.001)
            self.beats += 1

    def stop(self) -> None:
        self._task.cancel()


async def blocked(processes: Processes) -> None:
    """Wait until the only process can write no more: it sleeps, and has used no time since a while ago."""
    (pid,) = processes.alive()
    process = psutil.Process(pid)
    used, since = process.cpu_times(), time.monotonic()

    def rests() -> bool:
        nonlocal used, since
        if process.cpu_times() != used or process.status() != psutil.STATUS_SLEEPING:
            used, since = process.cpu_times(), time.monotonic()
        return time.monotonic() - since > 0.2

    await until(rests)


async def test_a_flood_is_seen_whole_in_bounded_memory(processes: Processes) -> None:
    count, pulse, size = Count(), Pulse(), 4 * MAY_GROW
    before = psutil.Process().memory_info().rss
    most = before
    process = await processes.start(f"exec head -c {size} /dev/zero", on_output=count)
    waiting = asyncio.ensure_future(process.wait())
    while not waiting.done():
        most = max(most, psutil.Process().memory_info().rss)
        await asyncio.wait([waiting], timeout=0.05)
    pulse.stop()
    assert waiting.result().exit_code == 0
    assert count.seen == size
    assert most - before < MAY_GROW
    assert pulse.beats > 10, "others run at the same time"


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "terminal"])
async def test_a_receiver_can_say_stop(processes: Processes, tty: bool) -> None:
    count = Count()
    process = await processes.start("while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done", tty=tty, on_output=count)
    await until(lambda: count.seen > MIB)
    process.pause_output()
    process.pause_output()
    seen = count.seen
    await blocked(processes)
    assert count.seen == seen
    process.resume_output()
    process.resume_output()
    await until(lambda: count.seen > seen + MIB)
    process.pause_output()
    seen = count.seen
    await blocked(processes)
    result = await process.terminate(5)
    assert result.signal in (1, 15)
    assert count.seen > seen, "what was in the pipe is delivered at the end, in spite of the pause"
    assert count.seen - seen <= 4 * MIB
    process.resume_output()
    process.pause_output()


async def test_a_receiver_can_say_stop_for_each_piece(processes: Processes) -> None:
    output = Output()
    pieces = 0

    def receive(stream: int, data: bytes) -> None:
        nonlocal pieces
        pieces += 1
        output(stream, data)
        process.pause_output()
        asyncio.get_running_loop().call_soon(process.resume_output)

    process = await processes.start("seq 300000", on_output=receive)
    assert (await process.wait()).exit_code == 0
    assert output.out == b"".join(b"%d\n" % number for number in range(1, 300_001))
    assert pieces > 1


async def test_a_pause_holds_back_no_end(processes: Processes) -> None:
    process = await processes.start("echo before; sleep 0.1; seq 5000; exit 3")
    process.pause_output()
    assert (await asyncio.wait_for(process.wait(), 20)).exit_code == 3
    assert processes.output.out == b"before\n" + b"".join(b"%d\n" % number for number in range(1, 5001))


async def test_output_of_two_streams_is_whole_when_the_process_dies_of_a_signal(processes: Processes) -> None:
    for _ in range(5):
        output = Output()
        process = await processes.start("seq 9000 >&2; seq 9000; kill -9 $$", on_output=output)
        assert (await process.wait()).signal == 9
        expected = b"".join(b"%d\n" % number for number in range(1, 9001))
        assert (output.out, output.err) == (expected, expected)
