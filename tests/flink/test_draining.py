"""A bounded input whose last turns take longer than a checkpoint may."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flink.stoppable import DEADLINE, Gated, Place, Stoppable
from tests.kit.flink_rest import wait_until

pytestmark = pytest.mark.flink


def test_checkpoints_complete_while_the_last_turns_run(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.send("a1", "b1", "a2")
    options = {"execution.checkpointing.dir": (tmp_path / "checkpoints").as_uri()}
    job = Stoppable(place, Gated(place), options=options, bounded=True)
    try:
        # The turn of a2 waits for that of a1: all events are in the operator.
        place.wait_at_gate(1, "a1", "b1")
        last = newest(tmp_path)
        wait_until(lambda: newest(tmp_path) > last + 5, DEADLINE, "checkpoints after the end of the input")
        place.gate.touch()
        job.wait()
    finally:
        job.close()
    assert sorted(place.left()) == ["a1 turn 1 seen a1", "a2 turn 2 seen a1 a2", "b1 turn 1 seen b1"]
    assert len(place.done()) == 6, "nothing was done again"


def newest(folder: Path) -> int:
    """The number of the newest whole checkpoint."""
    whole = folder.glob("checkpoints/*/chk-*/_metadata")
    return max((int(file.parent.name.removeprefix("chk-")) for file in whole), default=0)
