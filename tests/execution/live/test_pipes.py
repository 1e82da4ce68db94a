"""A live process with pipes: what is written, what comes back, and what goes wrong."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import psutil
import pytest

from flink_skills.errors import ExecutionError
from flink_skills.execution import Limits
from flink_skills.execution.backends import LocalBackend
from tests.execution.live.conftest import Output, Processes
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1 << 20


async def test_it_answers_until_its_input_is_closed(processes: Processes) -> None:
    process = await processes.start('while read line; do echo "<$line>"; done; echo end >&2; exit 4')
    for number in range(3):
        await process.write(f"{number}\n".encode())
        await processes.output.has(f"<{number}>\n".encode())
    assert not process.ended
    process.close_stdin()
    process.close_stdin()
    result = await process.wait()
    assert process.ended
    assert (result.exit_code, result.signal, result.error, result.limit) == (4, None, None, None)
    assert (processes.output.out, processes.output.err) == (b"<0>\n<1>\n<2>\n", b"end\n")
    assert (result.stdout, result.stderr) == (b"", b"")
    assert result.duration > 0
    assert await process.wait() == result


async def test_stdin_of_the_request_comes_first(processes: Processes) -> None:
    process = await processes.start("cat", stdin=b"first " * 100_000)
    await process.write(b"then")
    process.close_stdin()
    await process.wait()
    assert processes.output.out == b"first " * 100_000 + b"then"


async def test_a_large_text_is_written_whole_before_the_end(processes: Processes) -> None:
    process = await processes.start("wc -c")
    written = asyncio.ensure_future(process.write(b"x" * (20 * MIB)))
    await asyncio.sleep(0)
    process.close_stdin()
    await written
    assert (await process.wait()).exit_code == 0
    assert int(processes.output.out) == 20 * MIB


async def test_writers_side_by_side_do_not_mix(processes: Processes) -> None:
    process = await processes.start("cat")
    texts = [bytes([65 + number]) * (MIB // 4) for number in range(6)]
    await asyncio.gather(*map(process.write, texts))
    process.close_stdin()
    await process.wait()
    assert sorted(processes.output.out[at : at + MIB // 4] for at in range(0, 6 * MIB // 4, MIB // 4)) == texts


async def test_a_writer_waits_for_a_process_that_does_not_read(processes: Processes) -> None:
    process = await processes.start("while ! [ -e go ]; do sleep 0.02; done; wc -c")
    written = asyncio.ensure_future(process.write(b"x" * MIB))
    done, _ = await asyncio.wait([written], timeout=0.3)
    assert not done, "a pipe holds less"
    (processes.workspace.work_dir / "go").touch()
    await written
    process.close_stdin()
    await process.wait()
    assert int(processes.output.out) == MIB


@pytest.mark.parametrize("ends", ["terminate", "close"])
async def test_a_writer_that_waits_is_told_of_the_end(processes: Processes, ends: str) -> None:
    process = await processes.start("echo up; sleep 100")
    await processes.output.has(b"up")
    written = asyncio.ensure_future(process.write(b"x" * MIB))
    later = asyncio.ensure_future(process.write(b"y"))
    await asyncio.wait([written], timeout=0.05)
    if ends == "close":
        process.close()
    else:
        await process.terminate()
    for writer in (written, later):
        with pytest.raises(ExecutionError, match="has ended"):
            await writer
    await process.wait()


async def test_a_cancelled_writer_leaves_room_for_the_next(processes: Processes) -> None:
    process = await processes.start("while ! [ -e go ]; do sleep 0.02; done; tail -c 5")
    written = asyncio.ensure_future(process.write(b"x" * MIB))
    await asyncio.wait([written], timeout=0.05)
    written.cancel()
    await asyncio.wait([written])
    (processes.workspace.work_dir / "go").touch()
    await process.write(b"after")
    process.close_stdin()
    await process.wait()
    assert processes.output.out == b"after"


async def test_a_process_may_close_its_input(processes: Processes) -> None:
    process = await processes.start("exec <&-; echo closed; sleep 100", stdin=b"x" * MIB)
    await processes.output.has(b"closed")
    with pytest.raises(ExecutionError, match="reads its input no more"):
        await process.write(b"y" * MIB)
    assert not process.ended
    process.close_stdin()
    await process.terminate()


async def test_nothing_is_written_after_the_end(processes: Processes) -> None:
    process = await processes.start("cat")
    process.close_stdin()
    with pytest.raises(ExecutionError, match="was closed"):
        await process.write(b"x")
    await process.wait()
    with pytest.raises(ExecutionError):
        await process.write(b"x")
    process.close_stdin()
    process.close()
    assert (await process.terminate()).exit_code == 0


async def test_what_cannot_be_set_up_ends_at_once(processes: Processes) -> None:
    process = await processes.start("true", cwd="/no/such/folder")
    result = await process.wait()
    assert (result.exit_code, result.signal) == (None, None)
    assert "/no/such/folder" in str(result.error)
    process = await processes.backend.start_process(processes.request("/no/such/program"), on_output=processes.output)
    assert (await process.wait()).exit_code == 127
    assert b"/no/such/program" in processes.output.err


async def test_a_receiver_that_fails_ends_the_process_and_the_result_says_so(
    processes: Processes, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(stream: int, data: bytes) -> None:
        raise RuntimeError("no room")

    process = await processes.start("echo up; sleep 100", on_output=fail)
    result = await process.wait()
    assert (result.exit_code, result.signal) == (None, None)
    assert "RuntimeError: no room" in str(result.error)
    assert "what receives its output failed" in caplog.text


async def test_many_may_wait_and_cancelling_one_does_nothing(processes: Processes) -> None:
    process = await processes.start("read line; exit 3")
    waiting = [asyncio.ensure_future(process.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.wait(waiting[:1])
    assert not process.ended
    await process.write(b"\n")
    assert [result.exit_code for result in await asyncio.gather(*waiting[1:])] == [3, 3]


ATTEMPTS = """
import os, socket, sys
print(sorted(int(name) for name in os.listdir("/proc/self/fd"))[:3], len(os.listdir("/proc/self/fd")))
for attempt in (
    lambda: open(sys.argv[1]).read(),
    lambda: socket.socket(),
    lambda: os.listdir(sys.argv[2]),
    lambda: os.setuid(0),
):
    try:
        print("done", attempt())
    except OSError as error:
        print("stopped")
"""


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "terminal"])
async def test_it_is_confined_as_commands_are(processes: Processes, backend_name: str, tty: bool) -> None:
    outside = processes.workspace.root.parent.parent / "outside"
    outside.mkdir()
    (outside / "canary").write_text("canary")
    (outside / "canary").chmod(0o644)
    leaked = os.open(outside / "canary", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    argv = ("/usr/bin/env", "python3", "-c", ATTEMPTS, str(outside / "canary"), str(outside))
    ran = await processes.backend.run(processes.request(*argv))
    process = await processes.backend.start_process(processes.request(*argv), tty=tty, on_output=processes.output)
    assert (await process.wait()).exit_code == 0
    os.close(leaked)
    said = processes.output.out.replace(b"\r\n", b"\n")
    assert said == ran.stdout
    files = "done" if backend_name == "hygiene" else "stopped"
    words = [line.split()[0] for line in said.decode().splitlines()[1:]]
    assert words == [files, "stopped", files, "stopped"]
    # Standard input and output, and the folder that is being listed.
    assert said.startswith(b"[0, 1, 2] 4\n")


async def test_commands_and_processes_work_side_by_side(processes: Processes) -> None:
    outputs = [Output() for _ in range(10)]
    started = await asyncio.gather(*(processes.start("cat", on_output=output) for output in outputs))
    ran = await processes.backend.run(processes.request("/bin/echo", "command", limits=Limits()))
    assert ran.stdout == b"command\n"
    for number, process in enumerate(started):
        await process.write(f"to {number}".encode())
        process.close_stdin()
    await asyncio.gather(*(process.wait() for process in started))
    assert [output.out for output in outputs] == [f"to {number}".encode() for number in range(10)]


async def test_a_closed_backend_starts_none(backend: LocalBackend, processes: Processes) -> None:
    await backend.close()
    with pytest.raises(ExecutionError, match="closed"):
        await processes.start("true")
    await backend.start()
    process = await processes.start("exit 5")
    assert (await process.wait()).exit_code == 5


async def test_a_killed_launcher_is_started_again_and_living_processes_stay(
    backend: LocalBackend, processes: Processes
) -> None:
    process = await processes.start("cat")
    first = backend.launcher_pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await until(lambda: backend.launcher_pid is None)
    other = await processes.start("exit 6")
    assert (await other.wait()).exit_code == 6
    await process.write(b"still here")
    await processes.output.has(b"still here")
    process.close_stdin()
    assert (await process.wait()).exit_code == 0


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
