"""The worker process: frames, turn scheduling, session cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.worker.abandoned import AbandonedCode as AbandonedCode
    from flink_skills.worker.abandoned import StepThreads as StepThreads
    from flink_skills.worker.frame_pipes import Connection as Connection
    from flink_skills.worker.frame_pipes import PendingFrame as PendingFrame
    from flink_skills.worker.served_turn import SessionCache as SessionCache
    from flink_skills.worker.server import Worker as Worker
    from flink_skills.worker.worker_process import LevelFormatter as LevelFormatter
    from flink_skills.worker.worker_process import WholeLines as WholeLines

_HOMES = {
    "AbandonedCode": "abandoned",
    "Connection": "frame_pipes",
    "PendingFrame": "frame_pipes",
    "LevelFormatter": "worker_process",
    "SessionCache": "served_turn",
    "StepThreads": "abandoned",
    "WholeLines": "worker_process",
    "Worker": "server",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
