"""Results of commands and tests in a pod or on another kernel.

Reports of pytest are JUnit's XML of the family ``xunit1``.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

import pytest

__all__ = ["Outcome", "Run", "node_id", "read_report", "write_lines"]


@dataclass(frozen=True)
class Run:
    """Result of a command in a pod or machine. ``results`` are the files that it wrote to ``/results``, by name."""

    exit_code: int
    output: str
    results: Mapping[str, bytes] = field(default_factory=dict)


def write_lines(terminalreporter: pytest.TerminalReporter, name: str) -> None:
    """Write the lines that tests recorded as the user property ``name``, with pytest-xdist too."""
    for report in [one for reports in list(terminalreporter.stats.values()) for one in reports]:
        if not isinstance(report, pytest.TestReport) or report.when != "call":
            continue
        lines = [str(value) for property_name, value in report.user_properties if property_name == name]
        if lines:
            terminalreporter.section(f"{name}: {report.nodeid}")
        for line in lines:
            terminalreporter.line(line)


@dataclass(frozen=True)
class Outcome:
    """Results of a run ``where``, by node id; the text is why a test failed or was skipped.

    ``problem`` says why the run as a whole cannot be trusted; empty when it can.
    """

    passed: tuple[str, ...] = ()
    failed: Mapping[str, str] | None = None
    skipped: Mapping[str, str] | None = None
    problem: str = ""
    where: str = "in the pod"

    def verdict(self) -> str:
        """Return the failures by the names of their tests. Return "" if a test passed and none failed."""
        failed = self.failed or {}
        lines = [f"{name}\n    {text.strip()}" for name, text in failed.items()]
        if failed:
            lines.insert(0, f"{len(failed)} of {len(failed) + len(self.passed)} tests failed {self.where}:")
        if self.problem:
            lines.append(self.problem)
        if not lines and not self.passed:
            lines = [f"no test passed {self.where}", *(f"{name}: {why}" for name, why in (self.skipped or {}).items())]
        return "\n".join(lines)

    def summary(self) -> list[str]:
        """Return lines for the end of a run: the counts, and the reasons of skips."""
        reasons = Counter((self.skipped or {}).values())
        lines = [f"{len(self.passed)} passed, {len(self.failed or {})} failed, {reasons.total()} skipped"]
        return lines + [f"skipped {count}: {why}" for why, count in reasons.most_common()]


def read_report(report: bytes, where: str = "in the pod") -> Outcome:
    """Return the results in a report of pytest."""
    passed: list[str] = []
    failed: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for case in ET.fromstring(report).iter("testcase"):
        name = node_id(case)
        wrong = [part for part in case if part.tag in ("failure", "error")]
        left = case.find("skipped")
        if wrong:  # a test can fail in its call and in its teardown
            texts = [part.text or part.get("message") or "" for part in wrong]
            failed[name] = "\n".join([*([failed[name]] if name in failed else []), *texts])
        elif left is not None:
            skipped[name] = left.get("message") or ""
        else:
            passed.append(name)
    return Outcome(tuple(name for name in passed if name not in failed), failed, skipped, where=where)


def node_id(case: Element) -> str:
    """Return the name of a test as pytest accepts it on the command line."""
    file, name = case.get("file"), case.get("name") or ""
    classname = case.get("classname") or ""
    if not file:  # a file that could not be imported
        return "::".join(part for part in (classname, name) if part)
    module = file.removesuffix(".py").replace("/", ".")
    classes = classname.removeprefix(module).strip(".").split(".")
    return "::".join([file, *(part for part in classes if part), name])
