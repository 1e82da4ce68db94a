"""Faults of the tools that skills bring are reported when an agent opens."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from flink_skills import Agent
from flink_skills.errors import SkillFormatError
from tests.kit.agents import OpenAgent
from tests.kit.skills import write_skill


class Offline(Agent):
    model = "offline"


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    """A skill whose tools cannot be imported."""
    write_skill(tmp_path / "skills/geo", **{"tools.py": "def distance(start, end:\n"})
    return tmp_path / "skills"


@pytest.mark.parametrize(
    ("options", "severity"),
    [
        ({"skills.tools": "full"}, "ERROR"),
        ({"skills.bundled-tools": "true"}, "ERROR"),
        # Models have none of these tools.
        ({}, ""),
        ({"skills.tools": "full", "skills.bundled-tools": "false"}, ""),
    ],
)
async def test_an_agent_reports_the_faults_of_tools_that_its_models_are_offered(
    options: dict[str, str], severity: str, open_agent: OpenAgent, skills: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "flink_skills.runtime"):
        bench = await open_agent(Offline, skills, **options)
    said = [(record.levelname, record.getMessage()) for record in caplog.records if " T0" in record.getMessage()]
    found = [(one.code, one.path, one.line) for one in bench.runtime.manager.diagnostics if one.code[0] == "T"]
    if not severity:
        assert (said, found) == ([], [])
        return
    assert found == [("T02", f"{skills}/geo/tools.py", 1)]
    line = f"{skills}/geo/tools.py:1: error T02: '(' was never closed (fix the syntax)"
    assert (severity, line) in said


async def test_strict_jobs_do_not_open_with_them(open_agent: OpenAgent, skills: Path) -> None:
    with pytest.raises(SkillFormatError, match="error T02"):
        await open_agent(Offline, skills, **{"skills.strict": True, "skills.tools": "full"})
