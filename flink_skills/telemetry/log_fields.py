"""What log lines of a turn carry beside their text: whose turn it is, and where in it they were written."""

from __future__ import annotations

import hashlib
import logging
import re

from flink_skills.telemetry.activity import Activity, TurnScope, current_activity

__all__ = ["LogFields", "key_hash"]

_UNSAFE = re.compile(r"[^\w.:/#@+-]+")
_LONGEST = 120
_HASH = "flink_skills.key_hash"


class LogFields(logging.Filter):
    """Sets ``record.fields``, a dict of texts without spaces, and lets every record pass.

    ``agent``, ``key`` (see :func:`key_hash`), ``turn``, ``step`` and ``skill``, each where it is known. ``skill`` is
    that of the command that runs, or what the record has as ``extra={"skill": …}``.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        activity = current_activity()
        found = _fields_of(activity) if activity is not None else {}
        skill = getattr(record, "skill", None)
        if isinstance(skill, str) and skill:
            found["skill"] = skill
        record.fields = {name: _UNSAFE.sub("_", value)[:_LONGEST] for name, value in found.items() if value}
        return True


def key_hash(key: str) -> str:
    """12 hexadecimal digits that stand for a key, whose canonical text is given, in logs: the beginning of its
    SHA-256.

    >>> key_hash('"order-7"')
    '8ace791d47a0'
    """
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _fields_of(activity: Activity) -> dict[str, str]:
    scope = activity.scope
    skill = ""
    within: Activity | None = activity
    while within is not None and not skill:
        skill = str(within.attributes.get("skill") or "")
        within = within.parent
    return {
        "agent": scope.agent,
        "key": _hash_of(scope),
        "turn": str(scope.turn),
        "step": activity.step,
        "skill": skill,
    }


def _hash_of(scope: TurnScope) -> str:
    found: str | None = scope.kept.get(_HASH)
    if found is None:
        found = scope.kept[_HASH] = key_hash(scope.key)
    return found
