"""The worker process: frames, turn scheduling, session cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.worker.abandoned import AbandonedCode as AbandonedCode
    from flink_skills.worker.abandoned import StepThreads as StepThreads
    from flink_skills.worker.connection import Connection as Connection
    from flink_skills.worker.connection import Held as Held
    from flink_skills.worker.printing import WholeLines as WholeLines
    from flink_skills.worker.process import LevelFormatter as LevelFormatter
    from flink_skills.worker.server import Worker as Worker
    from flink_skills.worker.session_cache import SessionCache as SessionCache

_HOMES = {
    "AbandonedCode": "abandoned",
    "Connection": "connection",
    "Held": "connection",
    "LevelFormatter": "process",
    "SessionCache": "session_cache",
    "StepThreads": "abandoned",
    "WholeLines": "printing",
    "Worker": "server",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
