"""The audit trail: what was used of which skill, and never what is in it (format rule S12)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass

from flink_skills.skill.text import clean_line
from flink_skills.telemetry import emit

__all__ = ["AuditEvent", "AuditHook", "log_event"]

_log = logging.getLogger("flink_skills.audit")
_MAX_LENGTH = 256


@dataclass(frozen=True)
class AuditEvent:
    """One use of a skill.

    ``action`` is ``"activate"``, ``"read"`` or ``"command"``; ``outcome`` is ``"ok"``, ``"unknown"`` (no such skill
    for this model) or ``"error"``. ``key`` is the stream key where it is known, ``path`` the file that was read.
    """

    action: str
    skill: str
    outcome: str
    digest: str = ""
    origin: str = ""
    key: str = ""
    path: str = ""


AuditHook = Callable[[AuditEvent], None]


def log_event(event: AuditEvent) -> None:
    """Write ``event`` as one line of JSON to the logger ``flink_skills.audit``, at level ``INFO``, and tell those who
    observe the turn."""
    # Names and paths may be a model's own words: one line each, and not endless.
    shown = {name: clean_line(text)[:_MAX_LENGTH] for name, text in asdict(event).items() if text}
    if _log.isEnabledFor(logging.INFO):
        _log.info("%s", json.dumps(shown), extra={"skill": shown.get("skill", "")})
    emit("skill", **shown)
