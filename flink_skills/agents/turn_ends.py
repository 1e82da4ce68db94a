"""What a turn begins with, and what it leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flink_skills.agents.session import Session, SessionChange

__all__ = ["ERROR_TAG", "TurnOutcome", "TurnStart", "TurnStatus"]

ERROR_TAG = "errors"


class TurnStatus:
    """How a turn ended."""

    DONE = 0
    FAILED = 1
    FAIL_JOB = 2


@dataclass(frozen=True)
class TurnStart:
    """What a turn begins with. ``key`` is the key's canonical text, ``event_bytes`` the event as it arrived,
    ``crashes`` how often this turn was running when its worker died. ``problem`` says why the event cannot be read:
    the turn then fails at once."""

    key: str
    number: int
    event_bytes: bytes
    event: Any
    session: Session = field(default_factory=Session)
    timestamp: int | None = None
    journal: Sequence[bytes] = ()
    crashes: int = 0
    problem: str | None = None


@dataclass(frozen=True)
class TurnOutcome:
    """What a turn leaves. ``outputs`` are pairs of side-output tag (empty: main output) and value;
    ``error`` is the kind of what a turn failed with, ``message`` what it says."""

    status: int
    outputs: tuple[tuple[str, Any], ...]
    change: SessionChange
    session: Session
    message: str = ""
    error: str = ""
