"""What happens to a suite in the pod is what the tests outside say."""

from __future__ import annotations

import pytest

from tests.kit.outcomes import Outcome

from .inner import run_tests

pytestmark = [pytest.mark.pod, pytest.mark.usefixtures("runc")]

SAMPLES = "tests/pod/samples"


def test_each_result_has_its_name_and_reason() -> None:
    outcome = run_tests(f"{SAMPLES}/mixed.py")
    file = f"{SAMPLES}/mixed.py"
    assert outcome.problem == ""
    assert outcome.passed == (f"{file}::test_numbers[1]", f"{file}::TestGroup::test_good")
    assert outcome.skipped == {f"{file}::TestGroup::test_left": "the kernel has no such thing"}
    failed = outcome.failed or {}
    assert set(failed) == {f"{file}::test_numbers[2]", f"{file}::test_end"}
    assert "two is not one" in failed[f"{file}::test_numbers[2]"]
    assert "the end of the fixture broke" in failed[f"{file}::test_end"]
    verdict = outcome.verdict()
    assert verdict.startswith("2 of 4 tests failed in the pod:")
    assert f"{file}::test_numbers[2]\n" in verdict and "two is not one" in verdict
    assert outcome.summary() == [
        "2 passed, 2 failed, 1 skipped",
        "skipped 1: the kernel has no such thing",
    ]


def test_good_tests_are_good() -> None:
    outcome = run_tests(f"{SAMPLES}/mixed.py", "-k", "test_good")
    assert (outcome.verdict(), len(outcome.passed)) == ("", 1)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["no/such/folder"], "file or directory not found: no/such/folder"),
        ([f"{SAMPLES}/mixed.py", "-k", "no_such_test"], "pytest in the pod ended with 5"),
        (
            [f"{SAMPLES}/skipped.py"],
            "no test passed in the pod\ntests/pod/samples/skipped.py::test_left: nothing works",
        ),
        ([f"{SAMPLES}/unreadable.py"], "No module named 'no_such_package_anywhere'"),
        ([f"{SAMPLES}/dies.py"], "pytest in the pod ended with 137 and no report"),
    ],
)
def test_what_is_no_success(arguments: list[str], what: str) -> None:
    assert what in run_tests(*arguments).verdict()


def test_a_suite_that_hangs_is_ended_and_names_the_test() -> None:
    # A busy machine may need longer than the first time-outs to get to the test at all.
    for timeout in (5, 20, 60):
        verdict = run_tests(f"{SAMPLES}/hangs.py", timeout=timeout).verdict()
        assert f"did not end within {timeout} s" in verdict
        if "hangs.py::test_hangs" in verdict:
            return
    raise AssertionError(f"the test is not named: {verdict}")


def test_verdict_of_nothing() -> None:
    assert Outcome().verdict() == "no test passed in the pod"
