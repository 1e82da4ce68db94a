"""Runs pytest in the pod and takes its results out."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from tests.kit.outcomes import Outcome, read_report

from . import pod

_TAIL = 6_000  # characters of output that say why there are no results


def run_tests(*arguments: str, environment: Mapping[str, str] | None = None, timeout: float = 1800.0) -> Outcome:
    """Run pytest with ``arguments`` (paths and options) in a pod of its own, with more variables in ``environment``."""
    command = ["python", "-m", "pytest", "-p", "no:cacheprovider", "-v", "-o", "junit_family=xunit1"]
    try:
        ran = pod.run(*command, "--junitxml=/results/junit.xml", *arguments, environment=environment, timeout=timeout)
    except subprocess.TimeoutExpired as late:
        text = (late.stdout or b"").decode(errors="replace")
        return Outcome(problem=f"the tests in the pod did not end within {timeout:g} s:\n{text[-_TAIL:]}")
    report = ran.results.get("junit.xml")
    if report is None:
        return Outcome(problem=f"pytest in the pod ended with {ran.exit_code} and no report:\n{ran.output[-_TAIL:]}")
    outcome = read_report(report)
    # Exit code 1 means failed tests, which have names; anything else that is not 0 concerns the run as a whole.
    if ran.exit_code not in (0, 1) or (ran.exit_code == 1) != bool(outcome.failed):
        problem = f"pytest in the pod ended with {ran.exit_code}:\n{ran.output[-_TAIL:]}"
        return Outcome(outcome.passed, outcome.failed, outcome.skipped, problem)
    return outcome
