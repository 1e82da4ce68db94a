"""Who listens is told of everything that happens, in its place, and cannot do harm."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sys
from typing import Any

import pytest

from flink_skills.agents import Redactor
from flink_skills.telemetry import (
    Activity,
    LogFields,
    Observer,
    PointEvent,
    Telemetry,
    TurnScope,
    emit,
    key_hash,
    observe,
)
from flink_skills.worker import LevelFormatter


class Listener(Observer):
    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []

    def started(self, activity: Activity) -> None:
        self.seen.append(("started", activity))

    def ended(self, activity: Activity) -> None:
        self.seen.append(("ended", activity))

    def emitted(self, event: PointEvent) -> None:
        self.seen.append(("emitted", event))

    def of(self, what: str, kind: str) -> list[Any]:
        return [of for said, of in self.seen if said == what and of.kind == kind]


class Broken(Observer):
    def started(self, activity: Activity) -> None:
        raise RuntimeError("no")

    def ended(self, activity: Activity) -> None:
        raise RuntimeError("no")

    def emitted(self, event: PointEvent) -> None:
        raise RuntimeError("no")

    def outputs(self, scope: TurnScope, step: str | None) -> list[tuple[str, Any]]:
        raise RuntimeError("no")

    async def close(self) -> None:
        raise RuntimeError("no")


SCOPE = TurnScope("triage", '"k"', 3, "0" * 32)


def test_an_activity_knows_its_parent_its_step_and_its_time() -> None:
    listener = Listener()
    with Telemetry([listener]).turn(SCOPE) as turn, observe("tool", "lookup", "chat#0/t0.0", model="main") as tool:
        with observe("command", "bash") as command:
            pass
        tool.attributes["is_error"] = False
    assert [(of.kind, of.step) for of in (turn, tool, command)] == [
        ("turn", ""),
        ("tool", "chat#0/t0.0"),
        ("command", "chat#0/t0.0"),
    ]
    assert command.parent is tool and tool.parent is turn and turn.parent is None
    assert turn.scope is tool.scope is command.scope is SCOPE
    assert tool.attributes == {"model": "main", "is_error": False}
    assert turn.started <= tool.started <= command.started
    assert turn.duration >= tool.duration >= command.duration >= 0
    ended = [of for said, of in listener.seen if said == "ended"]
    assert ended == [command, tool, turn]


def test_an_exception_is_the_error_unless_one_is_known() -> None:
    listener = Listener()
    telemetry = Telemetry([listener])
    with pytest.raises(ValueError, match="bad"), telemetry.turn(SCOPE), observe("step", "parse"):
        raise ValueError("bad")
    with pytest.raises(ValueError, match="bad"), telemetry.turn(SCOPE) as turn:
        turn.error = "LimitError"
        raise ValueError("bad")
    assert [of.error for of in listener.of("ended", "step")] == ["ValueError"]
    assert [of.error for of in listener.of("ended", "turn")] == ["ValueError", "LimitError"]


def test_notes_belong_to_the_activity_that_runs() -> None:
    listener = Listener()
    with Telemetry([listener]).turn(SCOPE), observe("tool", "load_skill", "t") as tool:
        emit("skill", skill="orders")
    [said] = listener.of("emitted", "skill")
    assert said.activity is tool and said.attributes == {"skill": "orders"} and said.time > 0


async def test_threads_and_tasks_of_a_turn_belong_to_it_and_to_no_other() -> None:
    listener = Listener()
    telemetry = Telemetry([listener])

    async def turn(key: str) -> None:
        with telemetry.turn(TurnScope("a", key, 1, key)):
            await asyncio.gather(*(work(n) for n in range(3)))

    async def work(number: int) -> None:
        with observe("tool", f"tool-{number}"):
            await asyncio.to_thread(lambda: emit("skill", number=number))

    await asyncio.gather(*(turn(key) for key in "abcd"))
    for said in listener.of("emitted", "skill"):
        assert said.activity.name == f"tool-{said.attributes['number']}"
        assert said.activity.parent.kind == "turn" and said.activity.parent.scope is said.activity.scope
    assert len(listener.of("emitted", "skill")) == 12


def test_outside_of_a_turn_nobody_is_told() -> None:
    listener = Listener()
    with Telemetry([listener]).turn(SCOPE):
        pass
    before = len(listener.seen)
    with observe("command", "bash") as activity:
        activity.attributes["exit_code"] = 0
        emit("skill", skill="orders")
    assert len(listener.seen) == before


async def test_an_observer_that_fails_is_named_once_and_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    listener = Listener()
    telemetry = Telemetry([Broken(), listener])
    with telemetry.turn(SCOPE), observe("tool", "lookup"):
        emit("retry")
    assert telemetry.outputs(SCOPE, "t") == []
    await telemetry.close()
    assert [said for said, _ in listener.seen] == ["started", "started", "emitted", "ended", "ended"]
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["observer Broken failed. Turns continue. Further failures of it are not logged."]


KEY = '"order 7"'
HASH = hashlib.sha256(KEY.encode()).hexdigest()[:12]


def lines(message: str = "said", *, redactor: Redactor | None = None, **more: Any) -> list[str]:
    record = logging.LogRecord("flink_skills.turn", logging.WARNING, "", 0, message, None, more.pop("exc_info", None))
    vars(record).update(more)
    assert LogFields().filter(record) is True
    return LevelFormatter(redactor or Redactor()).format(record).splitlines()


def turn(agent: str = "triage") -> Any:
    return Telemetry([Observer()]).turn(TurnScope(agent, KEY, 3, "0" * 32))


def test_outside_of_turns_there_are_no_fields() -> None:
    assert lines() == ["WARN flink_skills.turn: said"]


def test_agent_key_turn_step_and_skill_are_fields() -> None:
    with turn():
        assert lines() == [f"WARN {{agent=triage key={HASH} turn=3}} flink_skills.turn: said"]
        with observe("tool", "execute_shell_command", "chat#0/t0.0"), observe("command", "bash", skill="greet"):
            assert lines() == [
                f"WARN {{agent=triage key={HASH} turn=3 step=chat#0/t0.0 skill=greet}} flink_skills.turn: said"
            ]
    assert key_hash(KEY) == HASH


async def test_a_thread_that_works_for_a_turn_has_its_fields() -> None:
    with turn():
        (line,) = await asyncio.to_thread(lines)
    assert f"key={HASH}" in line


def test_a_record_may_name_a_skill_of_its_own() -> None:
    with turn():
        assert "skill=other}" in lines(skill="other")[0]


def test_each_further_line_has_the_fields_marked_as_going_on() -> None:
    try:
        raise ValueError("no\nreally")
    except ValueError:
        with turn():
            first, *rest = lines(exc_info=sys.exc_info())
    assert first.startswith("WARN {agent=triage ")
    assert len(rest) > 3
    assert all(line.startswith(f"WARN +{{agent=triage key={HASH} turn=3}} ") for line in rest)


@pytest.mark.parametrize("name", ["a b", "a}b", "a{b=c", "a\nb", "x" * 500])
def test_a_name_cannot_break_out_of_its_field(name: str) -> None:
    with turn(name):
        (line,) = lines()
    shown = line.removeprefix("WARN {agent=").partition(" key=")[0]
    assert len(shown) <= 120
    assert not set(shown) & set(" {}=\n")


def test_fields_are_redacted_too() -> None:
    redactor = Redactor()
    redactor.hide(["s3cret"])
    with turn("s3cret"):
        assert lines("x s3cret", redactor=redactor) == [
            f"WARN {{agent=*** key={HASH} turn=3}} flink_skills.turn: x ***"
        ]
