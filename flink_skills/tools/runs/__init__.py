"""Runs of commands with inputs and outputs, and the processes that stay between calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.tools.runs.process_output import ShownText as ShownText
    from flink_skills.tools.runs.process_sessions import Caller as Caller
    from flink_skills.tools.runs.process_sessions import ProcessSessions as ProcessSessions
    from flink_skills.tools.runs.skill_process import find_interaction as find_interaction

_HOMES = {
    "Caller": "process_sessions",
    "ProcessSessions": "process_sessions",
    "ShownText": "process_output",
    "find_interaction": "skill_process",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
