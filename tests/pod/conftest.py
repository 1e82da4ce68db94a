from __future__ import annotations

import pytest

from . import pod

IN_THE_POD = "in the emulated pod"
"""The user property of a test with the line of a summary, which also comes from a process of pytest-xdist."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reports in list(terminalreporter.stats.values()):
        for report in reports:
            if not isinstance(report, pytest.TestReport) or report.when != "call":
                continue
            lines = [str(value) for name, value in report.user_properties if name == IN_THE_POD]
            if lines:
                terminalreporter.section(f"{IN_THE_POD}: {report.nodeid}")
            for line in lines:
                terminalreporter.line(line)


@pytest.fixture(scope="session")
def runc() -> None:
    """Skips where no pod can be made."""
    if problem := pod.problem():
        pytest.skip(f"no emulated pod: {problem}")
