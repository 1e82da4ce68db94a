"""What log lines of a turn carry beside their text: whose turn it is, and where in it they were written."""

from __future__ import annotations

import logging
import re

from flink_skills.telemetry.activity import Activity, current_activity

__all__ = ["LogFields"]

_UNSAFE = re.compile(r"[^\w.:/#@+-]+")
_LONGEST = 120


class LogFields(logging.Filter):
    """Sets ``record.fields``, a dict of texts without spaces, and lets every record pass.

    ``agent``, ``key`` (:attr:`TurnScope.key_hash`), ``turn``, ``step`` and ``skill``, each where it is known.
    ``skill`` is that of the command that runs, or what the record has as ``extra={"skill": …}``.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        activity = current_activity()
        found = _fields_of(activity) if activity is not None else {}
        skill = getattr(record, "skill", None)
        if isinstance(skill, str) and skill:
            found["skill"] = skill
        record.fields = {name: _UNSAFE.sub("_", value)[:_LONGEST] for name, value in found.items() if value}
        return True


def _fields_of(activity: Activity) -> dict[str, str]:
    scope = activity.scope
    skill = ""
    within: Activity | None = activity
    while within is not None and not skill:
        skill = str(within.attributes.get("skill") or "")
        within = within.parent
    return {
        "agent": scope.agent,
        "key": scope.key_hash,
        "turn": str(scope.turn),
        "step": activity.step,
        "skill": skill,
    }
