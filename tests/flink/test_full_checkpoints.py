"""A checkpoint directory without space: turns go on, and so do checkpoints once there is space."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flink.stoppable import DEADLINE, Gated, Place, Stoppable
from tests.kit.disks import fill, small_disk
from tests.kit.flink_rest import wait_until

pytestmark = pytest.mark.flink


def tried(folder: Path) -> int:
    """The number of the checkpoint that was begun last, of those that have a folder just now."""
    return max((int(path.name.removeprefix("chk-")) for path in folder.glob("*/chk-*")), default=0)


def test_turns_go_on_without_space_for_checkpoints_and_nothing_is_lost_or_twice(tmp_path: Path) -> None:
    disk = tmp_path / "checkpoints"
    disk.mkdir()
    place = Place(tmp_path)
    place.gate.touch()
    with small_disk(disk, 4 << 20):
        options = {
            "execution.checkpointing.dir": disk.as_uri(),
            "execution.checkpointing.tolerable-failed-checkpoints": "100000",
        }
        job = Stoppable(place, Gated(place), options=options)
        try:
            place.send("a1", "b1")
            wait_until(lambda: len(place.left()) == 2, DEADLINE, "the first results, which a checkpoint commits")
            with fill(disk):
                begun = tried(disk)
                place.send("a2", "b2", "a3")
                place.wait_for("second", "a3", "b2")
                wait_until(lambda: tried(disk) > begun + 2, DEADLINE, "checkpoints that fail")
                assert len(place.left()) == 2
            place.send("a4")
            wait_until(lambda: len(place.left()) == 6, DEADLINE, "the results of all events")
        finally:
            job.close()
    assert sorted(place.left()) == [
        "a1 turn 1 seen a1",
        "a2 turn 2 seen a1 a2",
        "a3 turn 3 seen a1 a2 a3",
        "a4 turn 4 seen a1 a2 a3 a4",
        "b1 turn 1 seen b1",
        "b2 turn 2 seen b1 b2",
    ]
    # No step was done twice: the job was not restarted.
    done = [(step, of) for step, of, _ in place.done()]
    assert len(done) == len(set(done)) == 12
