"""The worker process over real pipes, spoken to as the bridge does. Examines the internals of worker.frames."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pickle
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from flink_skills import Agent, __version__
from flink_skills.agents import WaitChange, WaitOperation, decode
from flink_skills.errors import TurnError
from flink_skills.manager import SkillScope
from flink_skills.worker import frames
from tests.kit.dispositions import SHOW, ignored_or_blocked
from tests.kit.skills import write_skill
from tests.worker.bridge import DEADLINE, Body, Bridge, many, sized


class Remembers(Agent):
    async def on_event(self, event: Any, ctx: Any) -> Any:
        ctx.state["seen"] = [*ctx.state.get("seen", []), event]
        print("printed to stdout")
        os.write(1, b"written to descriptor 1\n")
        call_id = await ctx.step("s", lambda: ctx.call_id)
        await asyncio.sleep(0)  # the turn goes on: its step leaves alone
        return [call_id, ctx.state["seen"]]


class LogsItsSource(Remembers):
    """Logs, as a library below might, what only the sources should see."""

    def __init__(self) -> None:
        self.name = "logs"

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        log = logging.getLogger("some.library")
        log.warning("GET https://%s@127.0.0.1:1/a.zip?%s", "user:pl4nted-pw", "token=pl4nted-query")
        log.warning("Authorization: %s", "pl4nted-header")


class LeaksItsSource(Agent):
    """Fails with what it was given."""

    async def on_event(self, event: Any, ctx: Any) -> Any:
        await ctx.step("s", lambda: 1)
        await asyncio.sleep(0)
        raise TurnError(f"cannot read {event}")


class EndsWithAStep(Agent):
    """Ends with a step, unless the event requires more."""

    async def on_event(self, event: Any, ctx: Any) -> Any:
        first = await ctx.step("first", lambda: "first")
        await asyncio.sleep(0)
        last = await ctx.step("last", lambda: "last")
        if event == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if event == "wait":
            await asyncio.Event().wait()
        return [first, last]


class Dies(Agent):
    async def on_event(self, event: Any, ctx: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


class StartsAProgram(Agent):
    async def on_event(self, event: Any, ctx: Any) -> Any:
        return subprocess.run(event, capture_output=True, text=True, check=True).stdout  # noqa: ASYNC221


class Computes(Agent):
    async def on_event(self, event: Any, ctx: Any) -> Any:
        busy = time.monotonic() + 0.01  # as an expensive request is made
        while time.monotonic() < busy:
            pass
        return await ctx.step("s", lambda: 1)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Bridge]:
    made = Bridge(folder)
    yield made
    made.stop()


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Bridge]:
    """A worker of the test alone."""
    with running(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    with running(tmp_path_factory.mktemp("worker")) as made:
        yield made


@pytest.fixture
def shared(worker: Bridge) -> Bridge:
    """A worker that other tests use too, with an operator of the test alone."""
    assert worker.process.poll() is None, worker.stderr()
    worker.operator += 1
    worker.figures, worker.events = [], []
    return worker


class Waits(Agent):
    """Waits for an answer."""

    async def on_event(self, event: Any, ctx: Any) -> Any:
        return await ctx.wait("approval")


def test_an_answer_right_behind_its_turn_is_not_lost(shared: Bridge) -> None:
    shared.open(Waits)
    shared.turn(1, "a")
    kind, body = shared.receive()
    assert kind == frames.WAIT
    wait_id = Body(body, 13).take()
    assert shared.receive()[0] == frames.PARK
    answer = sized(wait_id) + struct.pack(">Bq", 0, 1000) + sized(pickle.dumps({"answer": 7}))
    with shared.at_once():
        # Behind other turns, so that the turn has not begun when its answer arrives.
        for other in range(2, 40):
            shared.turn(other, "a", key=f'"{other}"')
        shared.turn(1, "a")
        shared.send(frames.ANSWER, struct.pack(">IQ", shared.operator, 1) + answer)
    of_turn = []
    while frames.END not in of_turn and frames.PARK not in of_turn:
        kind, body = shared.receive()
        if struct.unpack_from(">IQ", body)[1] == 1:
            of_turn.append(kind)
    assert of_turn == [frames.WAIT, frames.WAIT, frames.END]


@pytest.mark.parametrize(
    ("fields", "flags"),
    [({}, 0), ({"event_time": True}, 1), ({"is_sleep": True}, 2), ({"ids_only": True}, 4), ({"unanswered": True}, 8)],
)
def test_a_frame_of_a_wait_has_the_flags_of_its_change(fields: dict[str, Any], flags: int) -> None:
    frame = frames.encode_wait(7, 1, WaitChange(WaitOperation.OPEN, "id", "name", **fields))
    before = struct.pack(">IQB", 7, 1, WaitOperation.OPEN) + sized(b"id") + sized(b"name")
    assert frame[5 : 5 + len(before)] == before
    assert struct.unpack_from(">qB", frame, 5 + len(before)) == (2**63 - 1, flags)


class WaitsForASecond(Agent):
    """Limits the time of a wait with asyncio, which does not count while the turn waits."""

    async def on_event(self, event: Any, ctx: Any) -> Any:
        return await asyncio.wait_for(ctx.wait("approval"), 1)


def test_the_log_has_the_line_of_an_await_that_ends_with_the_stop_of_its_turn(bridge: Bridge) -> None:
    bridge.open(WaitsForASecond)
    bridge.turn(1, "a")
    assert [bridge.receive()[0], bridge.receive()[0]] == [frames.WAIT, frames.PARK]
    assert re.search(r"test_worker\.py:\d+ awaits asyncio\.wait_for, .* stopped at 'approval'", bridge.stderr())


def test_turn_state_and_replay(shared: Bridge) -> None:
    kind, report = shared.open(Remembers)
    assert kind == frames.OPENED
    assert json.loads(report)["agent"].endswith("Remembers")
    shared.turn(1, "a")
    first = shared.end()
    assert (first["operator"], first["turn"], first["status"]) == (shared.operator, 1, 0)
    ((flags, entry),) = first["steps"]
    assert flags == 0
    ((tag, (call_id, seen)),) = first["outputs"]
    assert (tag, seen) == ("", ["a"])
    assert decode(entry)["r"] == call_id

    shared.turn(2, "a", journal=[entry])
    again = shared.end()
    assert again["steps"] == []
    assert again["outputs"] == first["outputs"]
    assert again["chunks"] == first["chunks"]


def test_events_leave_with_their_steps_and_hold_no_secret(bridge: Bridge) -> None:
    bridge.with_events = True
    url = "https://user:pl4nted-pw@127.0.0.1:1/a.zip?token=pl4nted-query"
    scope = SkillScope(level="job", urls=(url,))
    unreachable = {"skills.source.allow-private": True, "skills.source.timeout": "2 s"}
    kind, _ = bridge.open(LeaksItsSource, scopes=[], **{"skills.events.content": "full"})
    assert kind == frames.OPENED
    assert [event.kind for event in bridge.events] == ["open"]
    # Its secrets are known from then on, whatever becomes of it.
    assert bridge.open(LeaksItsSource, plan=2, scopes=[scope], **unreachable)[0] == frames.OPEN_FAILED

    bridge.turn(1, url, crashes=1)
    ended = bridge.end()
    (step,) = bridge.step_outputs
    assert [(tag, event.kind, event.step) for tag, event in step] == [("events", "step", "step:s#0")]
    (error_tag, _), (tag, turn) = ended["outputs"]
    assert (error_tag, tag, turn.kind, turn.attempt) == ("errors", "events", "turn", 2)
    assert json.loads(turn.detail)["message"] == "cannot read https://***@127.0.0.1:1/a.zip?***"
    # A step of the journal is not told of again.
    ((_, entry),) = ended["steps"]
    bridge.turn(2, url, journal=[entry])
    assert [event.kind for tag, event in bridge.end()["outputs"] if tag == "events"] == ["turn"]
    assert bridge.step_outputs == []


def test_the_last_step_leaves_with_the_end_of_its_turn(bridge: Bridge) -> None:
    bridge.with_events = True
    bridge.open(EndsWithAStep)
    bridge.turn(1, "go")
    ended = bridge.end()
    ((_, first),) = ended["steps"]
    assert decode(first)["id"] == "step:first#0"
    shown = [value if tag == "" else (value.kind, value.step) for tag, value in ended["outputs"]]
    # The outputs of the step come first, as from a separate frame.
    assert shown == [("step", "step:last#0"), ["first", "last"], ("turn", None)]

    bridge.turn(2, "go", journal=[first])
    again = bridge.end()
    assert (again["steps"], again["outputs"][1]) == ([], ("", ["first", "last"]))


def test_a_step_leaves_at_once_where_its_turn_goes_on(shared: Bridge) -> None:
    shared.open(EndsWithAStep)
    shared.turn(1, "wait")
    kinds = [shared.receive()[0] for _ in range(2)]
    assert kinds == [frames.STEP, frames.STEP]
    shared.send(frames.CANCEL, struct.pack(">I", shared.operator))


def test_a_last_step_is_lost_with_a_worker_that_dies_before_its_turn_ends(bridge: Bridge) -> None:
    bridge.open(EndsWithAStep)
    bridge.turn(1, "die")
    kind, body = bridge.receive()
    assert (kind, b"step:first#0" in body) == (frames.STEP, True)
    with pytest.raises(EOFError):
        bridge.receive()


def test_without_events_nothing_of_them_leaves(shared: Bridge) -> None:
    shared.open(Remembers)
    shared.turn(1, "a")
    assert [tag for tag, _ in shared.end()["outputs"]] == [""]
    assert shared.step_outputs == [[]]
    assert shared.events == []


def test_session_is_cached_by_version_and_asked_for_otherwise(shared: Bridge) -> None:
    shared.open(Remembers)
    shared.turn(1, "a")
    first = shared.end()
    shared.turn(2, "b", number=2, version=1)
    assert shared.end()["outputs"][0][1][1] == ["a", "b"]
    shared.turn(3, "c", number=2, version=7)
    asked = shared.end()
    assert asked["kind"] == frames.NEED_SESSION
    shared.send(frames.SESSION, struct.pack(">IQQ", shared.operator, 3, 7) + many(first["chunks"]))
    assert shared.end()["outputs"][0][1][1] == ["a", "c"]


def test_cancelled_operator_loses_turns_and_cache(shared: Bridge) -> None:
    shared.open(Remembers)
    shared.turn(1, "a")
    shared.end()
    shared.send(frames.CANCEL, struct.pack(">I", shared.operator))
    shared.turn(2, "b", number=2, version=1)
    assert shared.end()["kind"] == frames.NEED_SESSION


def test_of_many_turns_that_come_at_once_the_first_gets_ahead_before_the_last_begins(shared: Bridge) -> None:
    shared.open(Computes)
    turns = 300
    began = time.monotonic()
    with shared.at_once():
        for turn in range(turns):
            shared.turn(turn, "a", key=f'"{turn}"')
    shared.end()
    first = time.monotonic() - began
    for _ in range(turns - 1):
        shared.end()
    assert first < (time.monotonic() - began) / 2


def test_turns_that_have_not_begun_are_cancelled_with_their_operator(shared: Bridge) -> None:
    shared.open(Computes)
    with shared.at_once():
        for turn in range(300):
            shared.turn(turn, "a", key=f'"{turn}"')
    shared.send(frames.CANCEL, struct.pack(">I", shared.operator))
    shared.turn(1000, "a", key='"other"')
    ended = 0
    while True:
        kind, body = shared.receive()
        if kind == frames.END:
            ended += 1
            if struct.unpack_from(">IQ", body)[1] == 1000:
                break
    assert ended < 200


def test_what_an_agent_prints_goes_to_the_log(bridge: Bridge) -> None:
    bridge.open(Remembers)
    bridge.turn(1, "a")
    assert bridge.end()["status"] == 0
    assert "printed to stdout" in bridge.stderr()
    assert "written to descriptor 1" in bridge.stderr()


def test_unreadable_event_is_an_error_record(shared: Bridge) -> None:
    shared.open(Remembers)
    shared.turn(1, b"cno_such_module\nX\n.")
    ended = shared.end()
    assert ended["status"] == 1
    ((tag, record),) = ended["outputs"]
    assert tag == "errors"
    assert "no_such_module" in record["error"] and "-pyfs" in record["error"]


def test_state_of_an_unknown_version_fails_the_job(shared: Bridge) -> None:
    shared.open(Remembers)
    shared.turn(1, "a", session=[b"\x63{}"], version=1)
    ended = shared.end()
    assert ended["status"] == 2
    assert "version 99" in ended["message"]


def test_opening_fails_with_one_message(shared: Bridge, tmp_path: Path) -> None:
    kind, message = shared.open(Remembers, scopes=[SkillScope(level="job", paths=(str(tmp_path / "missing"),))])
    assert kind == frames.OPEN_FAILED
    assert "missing" in message and "Traceback" not in message


def test_figures_come_before_the_answer_to_opening_and_after_each_refresh(bridge: Bridge, tmp_path: Path) -> None:
    write_skill(tmp_path / "skills" / "greet")
    (tmp_path / "skills" / "broken").mkdir()
    (tmp_path / "skills" / "broken" / "SKILL.md").write_text("no front matter\n")
    scope = SkillScope(level="job", paths=(str(tmp_path / "skills"),))
    options = {"skills.refresh.interval": "50 ms", "skills.store.dir": str(tmp_path / "store")}
    kind, _ = bridge.open(Remembers, plan=3, scopes=[scope], **options)
    assert kind == frames.OPENED
    plan, figures = bridge.figures[0]
    assert plan == 3
    assert {name: figures[name] for name in ("skills", "diagnosticErrors", "failedSources", "generation")} == {
        "skills": 1,
        "diagnosticErrors": 1,
        "failedSources": 0,
        "generation": 1,
    }
    write_skill(tmp_path / "skills" / "second")
    deadline = time.monotonic() + DEADLINE
    turn = 0
    while bridge.figures[-1][1]["generation"] < 2:
        assert time.monotonic() < deadline
        turn += 1
        bridge.turn(turn, "tick", plan=3, number=turn, session=[], version=turn - 1)
        bridge.end()
    assert bridge.figures[-1][1]["skills"] == 2
    assert bridge.figures[-1][1]["refreshes"] >= 1
    assert bridge.figures[-1][1]["refreshFailures"] == 0


@pytest.mark.parametrize("index", [0, 1])
def test_what_is_found_is_said_by_the_first_worker_of_a_machine(bridge: Bridge, tmp_path: Path, index: int) -> None:
    bridge.index = index
    write_skill(tmp_path / "skills" / "greet")
    (tmp_path / "skills" / "broken").mkdir()
    (tmp_path / "skills" / "broken" / "SKILL.md").write_text("no front matter\n")
    bridge.open(Remembers, scopes=[SkillScope(level="job", paths=(str(tmp_path / "skills"),))])
    said = bridge.stderr()
    assert said.count("is open: 1 skill from 1 source") == (1 - index)
    assert said.count("error F02") == (1 - index)


def test_no_secret_of_a_source_is_in_a_message_or_the_log(bridge: Bridge) -> None:
    scope = SkillScope(level="job", urls=("https://user:pl4nted-pw@127.0.0.1:1/a.zip?token=pl4nted-query",))
    options = {
        "skills.source.allow-private": True,
        "skills.source.timeout": "2 s",
        "skills.source.options": json.dumps({"https": {"headers": {"Authorization": "pl4nted-header"}}}),
    }
    kind, message = bridge.open(LogsItsSource, scopes=[scope], **options)
    assert kind == frames.OPEN_FAILED
    assert "127.0.0.1" in message
    # What a library logs of an URL and its key.
    assert "GET https://***@127.0.0.1:1/a.zip?***" in bridge.stderr()
    assert "Authorization: ***" in bridge.stderr()
    assert "pl4nted" not in message + bridge.stderr()


def test_another_build_is_refused_or_named(bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    own = __version__.partition("+")[0]
    kind, message = bridge.open(Dies, build=f"{own}+vendor.1")
    assert kind == frames.OPENED
    assert (
        f"the job was submitted by flink_skills {own}+vendor.1, and this TaskManager has {__version__}"
        in bridge.stderr()
    )
    kind, message = bridge.open(Dies, plan=2, build="9.9.9")
    assert kind == frames.OPEN_FAILED
    assert "the job was submitted by flink_skills 9.9.9 with plan format 3" in message
    monkeypatch.setattr(frames, "FORMAT", 2)
    kind, message = bridge.open(Dies, plan=3)
    assert kind == frames.OPEN_FAILED
    assert "the bridge jar of this job writes frames of format 2, and flink_skills" in message


def test_death_is_seen_as_the_end_of_the_stream(bridge: Bridge) -> None:
    bridge.open(Dies)
    bridge.turn(1, "a")
    with pytest.raises(EOFError):
        bridge.end()


def test_programs_of_user_code_have_the_default_signals(tmp_path: Path) -> None:
    """Flink's scripts start the JVM in the background of a shell, and the JVM blocks SIGQUIT in its children."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGQUIT])
    try:
        bridge = Bridge(tmp_path)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
    bridge.open(StartsAProgram)
    bridge.turn(1, list(SHOW))
    [(_, shown)] = bridge.end()["outputs"]
    bridge.stop()
    assert ignored_or_blocked(shown) == set()


@pytest.mark.parametrize("how", ["close frame", "end of input", "terminate"])
def test_ends_with_its_bridge(bridge: Bridge, how: str) -> None:
    bridge.open(Remembers)
    if how == "close frame":
        bridge.send(frames.CLOSE)
    elif how == "end of input":
        assert bridge.process.stdin is not None
        bridge.process.stdin.close()
    else:
        bridge.process.terminate()
    assert bridge.process.wait(DEADLINE) == 0
    assert not list(bridge.scratch.iterdir())


def test_dies_with_its_parent(tmp_path: Path) -> None:
    """The end of the parent alone ends the worker, also while nothing is read from the pipe."""
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys\n"
            "w = subprocess.Popen([sys.executable, '-m', 'flink_skills.worker'], stdin=subprocess.PIPE)\n"
            "print(w.pid, flush=True)\nsys.stdin.read()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )
    assert parent.stdout is not None and parent.stdin is not None
    worker = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    gone, _ = psutil.wait_procs([worker], timeout=DEADLINE)
    parent.stdin.close()
    parent.stdout.close()
    assert gone
