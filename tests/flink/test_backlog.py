"""Checkpoints of a job that gets events faster than its agent can take them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flink.stoppable import DEADLINE, Gated, Place, Stoppable
from tests.kit.flink_rest import wait_until

pytestmark = pytest.mark.flink

CUSTOMERS = "abcdefgh"


def test_an_unaligned_checkpoint_waits_for_no_turn(tmp_path: Path) -> None:
    place = Place(tmp_path)
    events = [f"{customer}{number}" for number in range(1, 4) for customer in CUSTOMERS]
    # One turn at a time, and the first one does not end: all other events are in front of the barriers.
    options = {
        "skills.worker.max-in-flight": "1",
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.dir": (tmp_path / "checkpoints").as_uri(),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    job = Stoppable(place, Gated(place), options=options)
    try:
        place.send(*events)
        place.wait_for("first", "a1")
        last = max(completed(tmp_path), default=0)
        wait_until(lambda: max(completed(tmp_path), default=0) > last + 2, DEADLINE, "checkpoints while the turn waits")
        assert [(step, id_) for step, id_, _ in place.done()] == [("first", "a1")]
    finally:
        job.close()
    latest = tmp_path / "checkpoints" / str(job.client.get_job_id()) / f"chk-{max(completed(tmp_path))}"
    place.gate.touch()
    job = Stoppable(place, Gated(place), options=options, savepoint=latest.as_uri())
    try:
        wait_until(lambda: len(place.left()) >= len(events), DEADLINE, "all results")
        assert sorted(line.split()[0] for line in place.left()) == sorted(events)
        assert all(line.split()[2] == line.split()[0][1:] for line in place.left()), "in order"
        assert sorted(id_ for step, id_, _ in place.done() if step == "first") == sorted(events), "nothing done again"
    finally:
        job.close()


def completed(folder: Path) -> list[int]:
    """The numbers of the checkpoints that are whole."""
    return [int(file.parent.name.removeprefix("chk-")) for file in folder.glob("checkpoints/*/chk-*/_metadata")]
