"""A short form of ``make soak``: Kafka in, agent, Kafka out, while workers, TaskManagers and the JobManager die."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

import pytest

from tests.faults.chaos import KINDS
from tests.faults.job import Setting
from tests.faults.plant import Plant, plant
from tests.faults.run import Load, go
from tests.kit.passable import passable_folder

pytestmark = pytest.mark.cluster


@pytest.fixture
def made() -> Iterator[Plant]:
    with passable_folder() as folder, plant(folder, slots=2) as made:
        yield made


@pytest.mark.parametrize("waits", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_nothing_is_lost_or_twice_and_each_repeated_call_has_a_reason(made: Plant, waits: bool) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    setting = Setting("exactly-once", "rocksdb", aligned=False, interval=1, parallelism=2, waits=waits)
    # The first kills are one of each kind.
    load = Load(turns=300, keys=40, seconds=25, weights=dict.fromkeys(KINDS, 1), longest=3, most=len(KINDS))
    verdict = go(made, setting, load, seed)
    sys.stdout.write(f"{setting}, seed {seed}\n{verdict}\n")
    assert verdict.broken == [], f"seed {seed}: {verdict}"
    assert {kind for kind in KINDS if not verdict.counts.get(f"kills of a {kind}")} == set(), f"seed {seed}"
    assert verdict.counts["restores from a checkpoint"] >= 1
    assert verdict.counts["repeated calls"] >= 1, "the kills hit nothing"
