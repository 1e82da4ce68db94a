"""What agents do to their worker process: it is named, it ends in bounds, and no frame is broken."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from flink_skills.worker import frames
from tests.worker.bad_agents import Unruly
from tests.worker.test_worker import DEADLINE, Bridge, bridge

__all__ = ["bridge"]


def until(bridge: Bridge, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, bridge.stderr()
        time.sleep(0.05)


def answers(bridge: Bridge, turn: int = 99) -> bool:
    bridge.turn(turn, "well", key='"other"')
    ended = bridge.end()
    return ended["turn"] == turn and ended["outputs"] == [("", "well")]


def test_a_blocked_event_loop_is_named_with_its_stack_and_ended(bridge: Bridge) -> None:
    bridge.open(Unruly, **{"skills.worker.block-warning": "1 s", "skills.worker.max-block": "3 s"})
    bridge.turn(1, "wait", key='"patient"')
    bridge.turn(2, "sleep", key='"order-7"', number=4)
    assert bridge.process.wait(DEADLINE) == 81
    log = bridge.stderr()
    assert 'agent unruly, key "order-7", turn 4 has blocked the worker\'s event loop for 1 s' in log
    assert "2 turns of this worker wait" in log
    assert "bad_agents.py" in log and "time.sleep(3600)" in log
    assert "blocked for 3 s (skills.worker.max-block" in log


def test_a_loop_that_is_blocked_with_pythons_lock_held_is_ended_with_its_stack(bridge: Bridge) -> None:
    bridge.open(Unruly, **{"skills.worker.max-block": "1 s"})
    bridge.turn(1, "regular_expression")
    assert bridge.process.wait(DEADLINE) == 1
    log = bridge.stderr()
    assert "Timeout" in log and "in do_regular_expression" in log


def test_the_time_of_a_turn_bounds_how_long_it_may_block(bridge: Bridge) -> None:
    bridge.open(Unruly, **{"skills.turn.timeout": "2 s"})
    bridge.turn(1, "sleep")
    assert bridge.process.wait(DEADLINE) == 81


def test_a_worker_that_was_stopped_for_a_while_is_not_blocked(bridge: Bridge) -> None:
    bridge.open(Unruly, **{"skills.worker.block-warning": "1 s", "skills.worker.max-block": "2 s"})
    bridge.turn(1, "wait")
    assert answers(bridge)
    bridge.process.send_signal(signal.SIGSTOP)
    until(bridge, lambda: psutil.Process(bridge.process.pid).status() == psutil.STATUS_STOPPED)
    time.sleep(4)  # the length of the pause is what is tested
    bridge.process.send_signal(signal.SIGCONT)
    assert answers(bridge, 100)
    assert "blocked" not in bridge.stderr()


def test_a_worker_over_its_memory_is_ended(bridge: Bridge) -> None:
    bridge.open(Unruly, **{"skills.worker.max-memory": "400 mb"})
    assert answers(bridge)
    bridge.turn(1, "leak")
    assert bridge.process.wait(DEADLINE) == 82
    assert "more than skills.worker.max-memory = 400 MiB; its 1 turns resume" in bridge.stderr()


def test_a_forked_process_that_comes_back_is_ended_and_breaks_nothing(bridge: Bridge) -> None:
    bridge.open(Unruly)
    bridge.turn(1, "fork")
    assert bridge.end()["outputs"] == [("", "parent")]
    until(bridge, lambda: "os.fork()" in bridge.stderr())
    # Threads of the worker still wake its loop.
    for turn in range(2, 12):
        assert answers(bridge, turn)
    bridge.process.kill()
    with pytest.raises(EOFError):
        bridge.receive()


def test_what_is_rude_breaks_no_frame_and_what_cannot_work_is_an_error_record(bridge: Bridge) -> None:
    bridge.open(Unruly)
    for number, what in enumerate(("print", "thread", "large")):
        bridge.turn(number, what, key=f'"{what}"')
        assert bridge.end()["status"] == 0
    for what, said in {"sys_exit": "raise an exception instead", "unpicklable": "emit plain data"}.items():
        bridge.turn(10, what, key=f'"{what}"')
        ((tag, record),) = bridge.end()["outputs"]
        assert (tag, record["event"]) == ("errors", what)
        assert said in record["error"]
        assert answers(bridge)
    bridge.send(frames.CLOSE)
    # Also with a thread that never ends.
    assert bridge.process.wait(DEADLINE) == 0


def test_an_agent_that_closes_the_pipes_ends_its_worker_at_once(bridge: Bridge) -> None:
    bridge.open(Unruly)
    bridge.turn(1, "close_descriptors")
    bridge.process.wait(DEADLINE)


def test_a_worker_without_descriptors_says_so_and_serves_on(bridge: Bridge, tmp_path: Path) -> None:
    bridge.open(Unruly)
    assert answers(bridge)
    used = len(list(Path(f"/proc/{bridge.process.pid}/fd").iterdir()))
    psutil.Process(bridge.process.pid).rlimit(psutil.RLIMIT_NOFILE, (used, used))
    assert answers(bridge, 100)
