from __future__ import annotations

import pytest

from . import pod
from .inner import Outcome

OUTCOMES = pytest.StashKey[dict[str, Outcome]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[OUTCOMES] = {}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for what, outcome in config.stash[OUTCOMES].items():
        terminalreporter.section(f"in the emulated pod: {what}")
        for line in outcome.summary():
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def runc() -> None:
    """Skips where no pod can be made."""
    if problem := pod.problem():
        pytest.skip(f"no emulated pod: {problem}")
