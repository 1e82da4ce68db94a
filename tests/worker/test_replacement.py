"""A worker that cannot run turns any more ends with a reason, and its turns resume in the next one."""

from __future__ import annotations

import asyncio
import threading

import pytest

from flink_skills.worker import AbandonedCode, StepThreads
from tests.kit.waiting import until
from tests.worker.bad_agents import Unruly
from tests.worker.bridge import DEADLINE, Bridge
from tests.worker.test_worker import bridge

__all__ = ["bridge"]

FEW, SOON = 4, 0.05


def test_a_worker_in_which_threads_hang_is_replaced(bridge: Bridge) -> None:
    bridge.open(Unruly, **{"skills.turn.timeout": "1 s", "skills.turn.max-steps": "100"})
    bridge.turn(1, "hang", key='"bad"')
    ended = bridge.end()
    assert ended["status"] == 1
    assert bridge.process.wait(DEADLINE) == 83
    log = bridge.stderr()
    assert 'a thread still runs threading.Event.wait of agent unruly, key "bad", turn' in log
    assert "of its 128 threads hang in calls that no turn waits for" in log


def test_code_that_ignores_its_cancellation_ends_its_turn(bridge: Bridge) -> None:
    bridge.open(Unruly, **{"skills.turn.timeout": "1 s"})
    bridge.turn(1, "swallow", key='"bad"')
    ended = bridge.end()
    assert ended["status"] == 1
    assert "skills.turn.timeout" in ended["outputs"][0][1]["error"]
    bridge.turn(2, "well", key='"bad"', number=1)
    assert bridge.end()["outputs"] == [("", "well")]


def test_a_step_that_ends_an_iterator_is_a_failed_turn(bridge: Bridge) -> None:
    bridge.open(Unruly)
    bridge.turn(1, "stop_iteration")
    ended = bridge.end()
    assert ended["status"] == 1
    assert "StopIteration" in ended["outputs"][0][1]["error"]


def test_outputs_that_are_too_large_fail_their_turn(bridge: Bridge) -> None:
    bridge.open(Unruly, **{"skills.turn.max-size": "2 kb"})
    bridge.turn(1, "large")
    ended = bridge.end()
    assert "the outputs of the turn have 20,971,5" in ended["outputs"][0][1]["error"]
    # An error record with its event would be too large as well.
    bridge.turn(2, ["sys_exit", "x" * 3000], number=1)
    (_, record) = bridge.end()["outputs"][0]
    assert "sys.exit" in record["error"] and record["event"] is None


@pytest.mark.parametrize("body", [b"", b"\x00"], ids=["unknown", "short"])
def test_bytes_that_are_no_frame_end_the_worker(bridge: Bridge, body: bytes) -> None:
    bridge.open(Unruly)
    bridge.send(0x7F if not body else 0x02, body)
    assert bridge.process.wait(DEADLINE) == 84
    assert "the stream from the TaskManager is broken" in bridge.stderr()


async def test_hung_threads_are_counted_until_they_return() -> None:
    threads, reasons = StepThreads(FEW, SOON), list[str]()
    threads.replace = reasons.append
    gate = threading.Event()
    loop = asyncio.get_running_loop()
    first = loop.run_in_executor(threads, gate.wait)
    first.cancel()
    await until(lambda: (threads.look(), threads.hung == 1)[1])
    assert reasons == []
    second = loop.run_in_executor(threads, gate.wait)
    threads.look()
    assert threads.hung == 1
    threads.turn_seconds = SOON
    threads.look()
    assert threads.hung == 1, "it belongs to no turn"
    second.cancel()
    await until(lambda: (threads.look(), threads.hung == 2)[1])
    assert reasons == ["2 of its 4 threads hang in calls that no turn waits for"]
    gate.set()
    await until(lambda: threads.hung == 0)
    threads.shutdown()


async def test_a_call_that_returns_in_time_is_not_abandoned() -> None:
    threads = StepThreads(FEW, SOON)
    assert await asyncio.get_running_loop().run_in_executor(threads, lambda: 7) == 7
    assert threads.hung == 0
    threads.shutdown()


async def test_code_of_ended_turns_that_continues_is_a_reason() -> None:
    reasons = list[str]()
    abandoned = AbandonedCode(reasons.append, SOON)
    gate = asyncio.Event()
    task = asyncio.create_task(gate.wait(), name="agent a, key 1, turn 0")
    abandoned.add(task)
    assert len(abandoned) == 1
    await until(lambda: reasons)
    assert "the code of agent a, key 1, turn 0 continues 0.05 s after the end of its turn" in reasons[0]
    gate.set()
    await until(lambda: len(abandoned) == 0)
