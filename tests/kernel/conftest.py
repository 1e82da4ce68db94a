from __future__ import annotations

import pytest

from . import machine

IN_THE_MACHINE = "on another kernel"
"""The user property of a test with a line for the end of the run."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in [one for reports in list(terminalreporter.stats.values()) for one in reports]:
        if not isinstance(report, pytest.TestReport) or report.when != "call":
            continue
        lines = [str(value) for name, value in report.user_properties if name == IN_THE_MACHINE]
        if lines:
            terminalreporter.section(f"{IN_THE_MACHINE}: {report.nodeid}")
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def kernel() -> None:
    """Skips where no other kernel can be started."""
    if problem := machine.problem():
        pytest.skip(f"no other kernel: {problem}")
