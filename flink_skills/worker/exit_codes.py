"""Exit codes of a worker that ends on purpose. The bridge logs them; ``docs/troubleshooting.md`` lists them."""

from __future__ import annotations

__all__ = ["BLOCKED", "BROKEN_STREAM", "BROKEN_WORKER", "OUT_OF_MEMORY", "REPLACED"]

#: A turn blocked the event loop.
BLOCKED = 81
#: The process was over ``skills.worker.max-memory``.
OUT_OF_MEMORY = 82
#: Hung threads, or code that ignores its cancellation, made the process useless.
REPLACED = 83
#: The TaskManager sent a frame that this release cannot read.
BROKEN_STREAM = 84
#: A turn raised what every turn must handle: a defect of flink_skills.
BROKEN_WORKER = 85
