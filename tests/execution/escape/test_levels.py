"""What the canaries of the product say is what the suite expects of the backend, and no row is forgotten."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from flink_skills.execution import IsolationLevel
from tests.execution.escape.columns import expected_level
from tests.execution.escape.conftest import backend_params
from tests.execution.escape.machine import landlock_abi, missing
from tests.execution.escape.test_attempts import ROWS
from tests.execution.escape.worker import WorkerProcess

ALL_ROWS = set(range(1, 49))


@pytest.mark.parametrize("worker", backend_params(control=False), indirect=True)
def test_the_canaries_prove_the_level(worker: WorkerProcess, record_property: Callable[[str, object], None]) -> None:
    # For tests.kernel.summary: a report then has the kernel and the level.
    record_property("kernel", os.uname().release)
    record_property("landlock_abi", landlock_abi())
    record_property("uid", os.geteuid())
    record_property("user_namespaces", missing("userns", worker.identity.command_uid) or "yes")
    found = worker.call("prove")
    level = min(IsolationLevel.parse(found["level"]), IsolationLevel.parse(worker.facts["level"]))
    record_property("level", level.name)
    assert level == expected_level(worker.backend), found


def test_every_row_has_a_test() -> None:
    named = {
        int(number)
        for path in Path(__file__).parent.glob("test_*.py")
        for number in re.findall(r"def test_row(\d+)_", path.read_text(encoding="utf-8"))
    }
    # Row 48 is every test with the pair that does not isolate.
    control = {48 for parameter in backend_params() if parameter.id == "none-same"}
    assert ALL_ROWS - named - set(ROWS) - control == set()
