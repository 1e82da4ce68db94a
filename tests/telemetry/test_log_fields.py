"""Lines that are logged in a turn say whose turn it is."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sys
from typing import Any

import pytest

from flink_skills.agents import Redactor
from flink_skills.telemetry import LogFields, Observer, Telemetry, TurnScope, key_hash, observe
from flink_skills.worker import LevelFormatter

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
