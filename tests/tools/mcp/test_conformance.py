"""The official conformance suite of the protocol, with an agent as its client."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.mcp.installing import conformance
from tests.tools.mcp.test_real_servers import installed

pytestmark = [pytest.mark.row("J7"), pytest.mark.nightly]  # to install it takes far longer than to use it
AGENT = Path(__file__).with_name("conformance_agent.py")
# Scenarios of auth/ with a person need a browser.
SCENARIOS = {
    "initialize": 1,
    "tools_call": 1,
    "sse-retry": 3,
    "elicitation-sep1034-client-defaults": 5,
    "auth/client-credentials-basic": 9,
    "auth/client-credentials-jwt": 9,
}


@pytest.fixture(scope="module")
def suite() -> tuple[str, str]:
    found: tuple[str, str] = installed(conformance)
    return found


@pytest.mark.parametrize(("scenario", "checks"), SCENARIOS.items())
def test_a_scenario_passes_with_all_its_checks(
    suite: tuple[str, str], scenario: str, checks: int, tmp_path: Path
) -> None:
    command = [*suite, "client", "--command", f"{sys.executable} {AGENT}", "--scenario", scenario]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    assert f"Passed: {checks}/{checks}, 0 failed, 0 warnings" in done.stdout + done.stderr, done.stdout + done.stderr
    assert done.returncode == 0
