"""Runs pytest in the pod and takes its results out."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from . import pod

_TAIL = 6_000  # characters of output that say why there are no results


@dataclass(frozen=True)
class Outcome:
    """Results of a run in the pod, by node id; the text is why a test failed or was skipped.

    ``problem`` says why the run as a whole cannot be trusted; empty when it can.
    """

    passed: tuple[str, ...] = ()
    failed: Mapping[str, str] | None = None
    skipped: Mapping[str, str] | None = None
    problem: str = ""

    def verdict(self) -> str:
        """What is wrong, naming each failed test; empty when something passed and nothing failed."""
        failed = self.failed or {}
        lines = [f"{name}\n    {text.strip()}" for name, text in failed.items()]
        if failed:
            lines.insert(0, f"{len(failed)} of {len(failed) + len(self.passed)} tests failed in the pod:")
        if self.problem:
            lines.append(self.problem)
        if not lines and not self.passed:
            lines = ["no test passed in the pod", *(f"{name}: {why}" for name, why in (self.skipped or {}).items())]
        return "\n".join(lines)

    def summary(self) -> list[str]:
        """Lines for the end of a run of tests: how many passed, and why others were skipped."""
        reasons = Counter((self.skipped or {}).values())
        lines = [f"{len(self.passed)} passed, {len(self.failed or {})} failed, {reasons.total()} skipped"]
        return lines + [f"skipped {count}: {why}" for why, count in reasons.most_common()]


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


def read_report(report: bytes) -> Outcome:
    """The results in a report of pytest (JUnit's XML, family ``xunit1``)."""
    passed: list[str] = []
    failed: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for case in ET.fromstring(report).iter("testcase"):
        name = _node_id(case)
        wrong = [part for part in case if part.tag in ("failure", "error")]
        left = case.find("skipped")
        if wrong:  # a test can fail in its call and in its teardown
            texts = [part.text or part.get("message") or "" for part in wrong]
            failed[name] = "\n".join([*([failed[name]] if name in failed else []), *texts])
        elif left is not None:
            skipped[name] = left.get("message") or ""
        else:
            passed.append(name)
    return Outcome(tuple(name for name in passed if name not in failed), failed, skipped)


def _node_id(case: Element) -> str:
    file, name = case.get("file"), case.get("name") or ""
    classname = case.get("classname") or ""
    if not file:  # a file that could not be imported
        return "::".join(part for part in (classname, name) if part)
    module = file.removesuffix(".py").replace("/", ".")
    classes = classname.removeprefix(module).strip(".").split(".")
    return "::".join([file, *(part for part in classes if part), name])
