from __future__ import annotations

import pytest

from tests.kit.outcomes import write_lines

from . import machine

IN_THE_MACHINE = "on another kernel"
"""The user property of a test with a line for the end of the run."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    write_lines(terminalreporter, IN_THE_MACHINE)


@pytest.fixture(scope="session")
def kernel() -> None:
    """Skips where no other kernel can be started."""
    if problem := machine.problem():
        pytest.skip(f"no other kernel: {problem}")
