"""The pipes of a worker: what is flushed is where the JVM reads it."""

from __future__ import annotations

import asyncio
import io
import os
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from flink_skills.worker import Connection, PendingFrame, WholeLines

# More than any pipe holds.
LARGE = b"x" * (4 << 20)


@dataclass
class Ends:
    """A connection, the descriptor from where the other side reads, and why it ended."""

    connection: Connection
    reader: int
    reasons: list[str]

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += os.read(self.reader, size - len(data))
        return data


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    from_jvm, to_worker = os.pipe()
    from_worker, to_jvm = os.pipe()
    reasons: list[str] = []
    connection = Connection(from_jvm, to_jvm, lambda frame: None, lambda reason, broken: reasons.append(reason))
    made = Ends(connection, from_worker, reasons)
    yield made
    asyncio.get_running_loop().remove_reader(from_jvm)
    asyncio.get_running_loop().remove_writer(to_jvm)
    for descriptor in (from_jvm, to_worker, from_worker, to_jvm):
        try:
            os.close(descriptor)
        except OSError:
            assert descriptor == from_worker, "only the test closes one"


async def test_what_is_flushed_is_in_the_pipe(ends: Ends) -> None:
    ends.connection.send(b"one")
    ends.connection.send(b"two")
    await asyncio.wait_for(ends.connection.flush(), 30)
    assert ends.read(6) == b"onetwo"


class Late(PendingFrame):
    """Says what is known when it is written."""

    text = b"early"

    def encoded(self) -> bytes:
        return self.text


async def test_a_held_frame_is_encoded_when_it_is_written_unless_it_was_withdrawn(ends: Ends) -> None:
    written, discarded = Late(), Late()
    ends.connection.send(written)
    ends.connection.send(discarded)
    ends.connection.send(b"end")
    written.text = b"late"
    assert discarded.withdraw()
    await asyncio.wait_for(ends.connection.flush(), 30)
    assert ends.read(7) == b"lateend"
    assert not discarded.withdraw() and not written.withdraw()


async def test_a_flush_waits_for_all_that_was_sent_before(ends: Ends) -> None:
    ends.connection.send(LARGE)
    ends.connection.send(b"end")
    flushes = [asyncio.ensure_future(ends.connection.flush()) for _ in range(2)]
    done, _ = await asyncio.wait(flushes, timeout=0.2)
    assert not done, "the pipe cannot hold it"
    assert await asyncio.to_thread(ends.read, len(LARGE) + 3) == LARGE + b"end"
    await asyncio.wait_for(asyncio.gather(*flushes), 30)


async def test_without_anything_to_send_a_flush_returns_at_once(ends: Ends) -> None:
    await asyncio.wait_for(ends.connection.flush(), 30)
    ends.connection.send(b"one")
    await asyncio.wait_for(ends.connection.flush(), 30)
    await asyncio.wait_for(ends.connection.flush(), 30)


async def test_a_caller_that_gives_up_leaves_the_others(ends: Ends) -> None:
    ends.connection.send(LARGE)
    first, second = (asyncio.ensure_future(ends.connection.flush()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.to_thread(ends.read, len(LARGE))
    await asyncio.wait_for(second, 30)
    assert first.cancelled()


async def test_a_broken_pipe_ends_the_flush_and_the_connection(ends: Ends) -> None:
    ends.connection.send(LARGE)
    flush = asyncio.ensure_future(ends.connection.flush())
    await asyncio.sleep(0)
    os.close(ends.reader)
    await asyncio.wait_for(flush, 30)
    assert len(ends.reasons) == 1
    assert ends.reasons[0].startswith("writing failed: ")


def test_lines_of_threads_do_not_mix() -> None:
    target = io.StringIO()
    stream = WholeLines(target)
    started = threading.Barrier(4)

    def work(name: str) -> None:
        started.wait(30)
        for number in range(200):
            print(name, number, "words", file=stream)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = target.getvalue().splitlines()
    assert sorted(lines) == sorted(f"{name} {number} words" for name in "abcd" for number in range(200))
    # And in the order of each thread.
    assert [line for line in lines if line.startswith("a")] == [f"a {number} words" for number in range(200)]


def test_a_line_without_an_end_is_written_at_the_end_or_when_it_is_long() -> None:
    target = io.StringIO()
    stream = WholeLines(target)
    print("a", end="", file=stream)
    print("b\nc", end="", file=stream, flush=True)
    assert target.getvalue() == "ab\n"
    stream.finish()
    assert target.getvalue() == "ab\nc\n"
    print("x" * 100_000, end="", file=stream)
    assert target.getvalue() == "ab\nc\n" + "x" * 100_000 + "\n"
