from __future__ import annotations

import pytest

from tests.kit.outcomes import write_lines

from . import pod

IN_THE_POD = "in the emulated pod"
"""The user property of a test with the line of a summary, which also comes from a process of pytest-xdist."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    write_lines(terminalreporter, IN_THE_POD)


@pytest.fixture(scope="session")
def runc() -> None:
    """Skips where no pod can be made."""
    if problem := pod.problem():
        pytest.skip(f"no emulated pod: {problem}")
