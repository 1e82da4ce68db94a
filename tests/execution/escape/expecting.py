"""One word for tests that are run with and without isolation."""

from __future__ import annotations

from flink_skills.execution import IsolationLevel
from tests.execution.escape.columns import expected_level
from tests.execution.escape.worker import WorkerProcess

__all__ = ["expect"]


def expect(worker: WorkerProcess, escaped: object, stopped_from: IsolationLevel = IsolationLevel.HYGIENE) -> None:
    """Assert that something escaped below the level ``stopped_from``, and that it did not from there on."""
    level = expected_level(worker.backend)
    if level >= stopped_from:
        assert not escaped, f"ESCAPED with {worker.backend} ({worker.identity.name}) at {level.name}: {escaped}"
    else:
        assert escaped, f"nothing escaped with {worker.backend} at {level.name}, where nothing stops it"
