"""Fields of log lines that identify the turn, step and skill that logged them."""

from __future__ import annotations

import logging
import re

from flink_skills.telemetry.activity import Activity, current_activity

__all__ = ["LogFields"]

_UNSAFE = re.compile(r"[^\w.:/#@+-]+")
_MAX_LENGTH = 120


class LogFields(logging.Filter):
    """Logging filter that sets ``record.fields``, a dict of strings without spaces, and accepts every record.

    The fields are ``agent``, ``key`` (:attr:`TurnScope.key_hash`), ``turn``, ``step`` and ``skill``. A field without a
    value is omitted. ``skill`` is the skill of the running command, or the record's ``extra={"skill": …}``.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        activity = current_activity()
        fields = _activity_fields(activity) if activity is not None else {}
        skill = getattr(record, "skill", None)
        if isinstance(skill, str) and skill:
            fields["skill"] = skill
        record.fields = {name: _UNSAFE.sub("_", value)[:_MAX_LENGTH] for name, value in fields.items() if value}
        return True


def _activity_fields(activity: Activity) -> dict[str, str]:
    scope = activity.scope
    skill = ""
    ancestor: Activity | None = activity
    while ancestor is not None and not skill:
        skill = str(ancestor.attributes.get("skill") or "")
        ancestor = ancestor.parent
    return {
        "agent": scope.agent,
        "key": scope.key_hash,
        "turn": str(scope.turn),
        "step": activity.step,
        "skill": skill,
    }
