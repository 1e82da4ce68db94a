"""Runs of commands with inputs and outputs, and the processes that stay between calls."""

from flink_skills.tools.runs.process_output import ShownText
from flink_skills.tools.runs.process_sessions import Caller, ProcessSessions
from flink_skills.tools.runs.skill_process import find_interaction

__all__ = ["Caller", "ProcessSessions", "ShownText", "find_interaction"]
