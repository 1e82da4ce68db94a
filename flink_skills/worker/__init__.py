"""The worker process: frames, turn scheduling, session cache."""

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
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
