"""``docs/guarantees.md``: each guarantee names tests that exist."""

from __future__ import annotations

import re

import pytest

from checks.evidence import compare, guarantees, missing_tests
from tests.docs.pages import ROOT

ROWS = guarantees(ROOT)


@pytest.mark.parametrize("guarantee", ROWS, ids=[str(number) for number in range(len(ROWS))])
def test_its_tests_exist(guarantee: str) -> None:
    cell = ROWS[guarantee]
    assert "`" in cell or re.search(r"\]\(attacks\.md#", cell), f"{guarantee}: no test"
    assert missing_tests(ROOT, cell) == set(), guarantee


def test_there_are_guarantees() -> None:
    assert len(ROWS) > 30


def test_tests_that_do_not_exist_are_missing() -> None:
    cell = "`docs/test_guarantees.py::test_there_are_guarantees`, `no/test_file.py::test_a`, `NoTest#runs`"
    assert missing_tests(ROOT, cell) == {"no/test_file.py::test_a", "NoTest#runs"}


def test_rows_without_their_evidence_are_reported() -> None:
    before = {"A1": {"tests/a"}, "A2": {"tests/b"}, "A3": set[str](), "A4": {"tests/c"}}
    after = {"A1": {"tests/other"}, "A2": set[str](), "A3": set[str]()}
    assert compare(before, after) == [
        "row 'A2' has no test. Before, it had: tests/b",
        "row 'A4' is missing. It had 1 tests.",
    ]
