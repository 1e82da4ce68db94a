"""The start and the outcome of a turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flink_skills.agents.state.session import Session, SessionChange
from flink_skills.agents.state.waits import Answer
from flink_skills.errors import counted
from flink_skills.options import SkillConfig, SkillOptions

__all__ = ["ERROR_TAG", "TurnOutcome", "TurnStart", "TurnStatus", "crash_problem"]

ERROR_TAG = "errors"


class TurnStatus:
    """The end of a turn: done, failed, or failed together with the job. A turn that waits has not ended."""

    DONE = 0
    FAILED = 1
    FAIL_JOB = 2
    WAITING = 3


@dataclass(frozen=True)
class TurnStart:
    """The start of a turn.

    ``key`` is the key's canonical text, ``event_bytes`` the event as it arrived. ``crashes`` counts the workers that
    died while this turn ran. ``problem`` is the reason why the event cannot be read. The turn then fails immediately.
    ``answers`` are the answers to waits of the turn. ``base`` is the session at the start of the turn, if other turns
    of the key have ended in the meantime.
    """

    key: str
    number: int
    event_bytes: bytes
    event: Any
    session: Session = field(default_factory=Session)
    timestamp: int | None = None
    journal: Sequence[bytes] = ()
    crashes: int = 0
    problem: str | None = None
    answers: Sequence[Answer] = ()
    base: Session | None = None


@dataclass(frozen=True)
class TurnOutcome:
    """The outcome of a turn.

    ``outputs`` are pairs of side-output tag (empty: main output) and value. ``error`` is the class of the error that
    the turn failed with, ``message`` its text, and ``exception`` the error itself. ``failure`` is class and message of
    the error record of the turn. A turn that is done has one if an output did not fit its table.
    """

    status: int
    outputs: tuple[tuple[str, Any], ...]
    change: SessionChange
    session: Session
    message: str = ""
    error: str = ""
    exception: BaseException | None = field(default=None, compare=False, repr=False)
    failure: str = ""


def crash_problem(crashes: int, config: SkillConfig) -> str | None:
    """Return the reason not to run a turn again that took ``crashes`` workers down. None below the limit.

    To be checked before the event, the state or the journal of the turn is decoded: that may be what crashes.
    """
    if crashes < config.get(SkillOptions.WORKER_MAX_CRASHES):
        return None
    return (
        f"the turn crashed its worker process {counted(crashes, 'time')} and is not retried: read the reason in the "
        "TaskManager's log, before each line 'Restarting'"
    )
