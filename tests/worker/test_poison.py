"""Whatever a turn raises while it is decoded, run or recorded, it ends in a record, and its worker stays."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from flink_skills.agents import encode
from tests.kit.poison import FAILURES, UNREADABLE_KEYS, ExitsWhenRead, Poisoned, PoisonedState
from tests.worker.bridge import DEADLINE, Bridge, frames, many
from tests.worker.test_worker import bridge, running

__all__ = ["bridge"]


# Tables of a job file, with columns of all that a record has.
_TEXT, _COUNT = ["STRING", True, 0, 0, []], ["BIGINT", True, 0, 0, []]
_COLUMNS = [
    ["key", _TEXT, [["key"]]],
    ["turn", _COUNT, [["turn"]]],
    ["error", _TEXT, [["error"]]],
    ["event", _TEXT, [["event"]]],
    ["output", _TEXT, [["output"]]],
    ["calls", _TEXT, [["tool_calls"]]],
]
ROWS = {
    "output": {"table": "answers", "columns": _COLUMNS},
    "errors": {"table": "failures", "columns": _COLUMNS},
    "events": {"table": "events", "columns": [["kind", _TEXT, [["kind"]]]]},
}


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    with running(tmp_path_factory.mktemp("worker")) as made:
        made.with_events = True
        assert made.open(Poisoned)[0] == frames.OPENED
        assert made.open(PoisonedState, plan=2)[0] == frames.OPENED
        assert made.open(Poisoned, plan=3, rows=ROWS)[0] == frames.OPENED
        yield made


def answers(bridge: Bridge) -> bool:
    """Whether the worker still answers."""
    bridge.turn(2, "well", key='"healthy"')
    return ("", "well") in bridge.end()["outputs"]


def failure(bridge: Bridge, event: Any, **given: Any) -> dict[str, Any]:
    """The error record of a turn that must fail without its worker."""
    bridge.turn(1, event, **given)
    ended = bridge.end()
    assert ended["status"] == 1, ended
    (record,) = [output for tag, output in ended["outputs"] if tag == "errors"]
    assert len(record["error"]) < 20_000
    record["error"].encode()
    assert answers(bridge)
    return dict(record)


@pytest.mark.parametrize("name", FAILURES)
def test_a_failing_turn_ends_in_a_record_and_costs_no_worker(worker: Bridge, name: str) -> None:
    record = failure(worker, FAILURES[name], key='"poisoned"', number=7)
    assert (record["agent"], record["key"], record["turn"]) == ("poisoned", "poisoned", 7)


@pytest.mark.parametrize("name", FAILURES)
def test_a_failing_turn_of_a_job_file_ends_in_a_row(worker: Bridge, name: str) -> None:
    worker.turn(1, FAILURES[name], key='"poisoned"', number=7, plan=3)
    ended = worker.end()
    rows = [row for tag, row in ended["outputs"] if tag in ("", "errors")]
    assert len(rows) == 1, ended
    key, turn, error, *_ = rows[0]
    assert (key, turn) == ("poisoned", 7)
    # A column of text takes some objects that have no pickled form.
    assert error or ended["status"] == 0
    assert answers(worker)


def test_a_record_omits_an_event_that_cannot_be_written_and_keeps_the_error(worker: Bridge) -> None:
    record = failure(worker, FAILURES["a nested event"])
    assert record["event"] is None
    assert record["error"].startswith("KeyError: 'a'; the record has no event, because")


@pytest.mark.parametrize("key", UNREADABLE_KEYS)
def test_a_key_text_that_cannot_be_read_is_an_error_record(worker: Bridge, key: str) -> None:
    record = failure(worker, "event", key=key)
    assert record["key"] == key
    assert "the key cannot be read" in record["error"]


@pytest.mark.parametrize("error", ["KeyError", "SystemExit", "CancelledError", "BadText", "huge"])
def test_a_state_type_that_raises_is_an_error_record(worker: Bridge, error: str) -> None:
    stored = [encode({"s": {"error": error}})]
    record = failure(worker, "event", plan=2, session=stored, version=1)
    assert "the state of this key" in record["error"]


def test_the_crash_limit_is_checked_before_the_event_is_read(worker: Bridge) -> None:
    record = failure(worker, ExitsWhenRead(), crashes=3)
    assert "crashed its worker process 3 times" in record["error"]
    assert record["event"] is None


def test_the_crash_limit_is_checked_before_the_state_is_read(worker: Bridge) -> None:
    stored = [encode({"s": {"error": "exit"}})]
    record = failure(worker, "event", plan=2, session=stored, version=1, crashes=3, journal=[b"\x01broken"])
    assert "crashed its worker process 3 times" in record["error"]
    # What consists of plain values is safe to show.
    assert record["event"] == "event"


def test_a_turn_whose_record_took_the_worker_down_gets_a_record_without_its_event(worker: Bridge) -> None:
    assert failure(worker, "event", crashes=4)["event"] is None


def test_a_session_is_kept_by_a_turn_over_the_crash_limit(worker: Bridge) -> None:
    worker.turn(1, "event", plan=2, key='"session"', session=[encode({"s": {"error": ""}})], version=1, crashes=3)
    worker.end()
    worker.turn(2, "event", plan=2, key='"session"', version=1)
    # Without the session in its cache the worker requests it.
    assert worker.end()["kind"] == frames.NEED_SESSION
    worker.send(frames.SESSION, _session(worker, 2, [encode({"s": {"error": "KeyError"}})]))
    assert worker.end()["status"] == 1


def _session(worker: Bridge, turn: int, chunks: list[bytes]) -> bytes:
    return struct.pack(">IQQ", worker.operator, turn, 1) + many(chunks)


@pytest.mark.parametrize("part", ["session", "journal"])
def test_state_that_cannot_be_read_fails_the_job_with_its_name(worker: Bridge, part: str) -> None:
    broken = {"session": [b"\x01{"], "version": 1} if part == "session" else {"journal": [b"\x01{}"]}
    worker.turn(1, "event", key='"damaged"', **broken)
    ended = worker.end()
    assert ended["status"] == 2
    assert f'the {part} of key "damaged" cannot be read' in ended["message"]


def test_an_event_that_ends_the_process_is_a_crash_once(bridge: Bridge) -> None:
    bridge.open(Poisoned)
    bridge.turn(1, ExitsWhenRead())
    assert bridge.process.wait(DEADLINE) == 7
