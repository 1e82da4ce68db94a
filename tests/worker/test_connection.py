"""The pipes of a worker: what is flushed is where the JVM reads it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from flink_skills.worker import Connection, PendingFrame

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
