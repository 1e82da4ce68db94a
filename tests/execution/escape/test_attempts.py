"""Rows 1 to 26 and 37 to 44: one attempt after the other, from inside a command, judged by the column of the level.

Row 48 is the same with no isolation: there each attempt has to succeed that this machine lets succeed at all. Without
that a suite that sees nothing would look like a sandbox that stops everything.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.execution.escape.columns import expected_level, is_stopped, why_unsure
from tests.execution.escape.conftest import backend_params
from tests.execution.escape.probes import files, kernel, network, processes
from tests.execution.escape.probes.kit import ATTEMPTS, Attempt
from tests.execution.escape.worker import WorkerProcess
from tests.execution.escape.world import World

MODULES = (files, kernel, network, processes)  # imported for their attempts
ROWS = sorted({one.row for one in ATTEMPTS.values()})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row{row:02d}")
@pytest.mark.parametrize("worker", backend_params(root=True), indirect=True)
def test_row(row: int, worker: WorkerProcess, make_world: Callable[[list[Attempt]], World]) -> None:
    level = expected_level(worker.backend)
    attempts = [one for one in ATTEMPTS.values() if one.row == row and _matters(one, worker)]
    if not attempts:
        pytest.skip("every attempt of this row that can succeed here does so without root's rights")
    world = make_world(attempts)
    outcome = world.attack()
    wrong, unsure = [], {}
    for one in attempts:
        evidence = outcome[one.name]
        if is_stopped(one, level):
            if evidence is not None:
                wrong.append(f"ESCAPED {one.name}: {evidence}")
        elif evidence is None:
            reason = why_unsure(one, level, worker.identity)
            if not reason:
                wrong.append(f"expected to be open, and was stopped: {one.name}")
            unsure[one.name] = reason
    if all(is_stopped(one, level) for one in attempts):
        wrong += [f"TRACE {trace}" for trace in world.traces()]
    assert not wrong, f"row {row} with {worker.backend} ({worker.identity.name}) at {level.name}:\n" + "\n".join(wrong)
    if len(unsure) == len(attempts):
        pytest.skip("cannot be shown here: " + "; ".join(sorted(set(unsure.values()))))


def _matters(one: Attempt, worker: WorkerProcess) -> bool:
    if worker.identity.name == "root":
        return bool({"root"} & set(one.needs)) or "bpf" in one.needs
    return True
