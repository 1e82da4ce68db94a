"""What an open agent says of the isolation of its commands."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, SkillConfig
from flink_skills.agents import OpenAgent, compile_plan, open_plan
from flink_skills.errors import ConfigError, IsolationError
from flink_skills.execution import IsolationLevel
from flink_skills.manager import SkillScope
from tests.kit.walking import folders_below


class Quiet(Agent):
    async def on_event(self, event: Any, ctx: Any) -> Any:
        return event


@pytest.fixture
def scratch() -> Iterator[str]:
    """A folder that other users can pass through, which those of pytest are not: commands may run as one."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield f"{folder}/scratch"


async def opened(skills: Path, scratch: str, *, quiet: bool = False, **options: Any) -> OpenAgent:
    config = SkillConfig({"skills.store.dir": f"{scratch}-store", **options})
    plan = compile_plan(Quiet, job_scopes=[SkillScope(level="job", paths=(str(skills),))], config=config)
    return await open_plan(plan, scratch_dir=scratch, quiet=quiet)


def workspaces_in(scratch: str) -> list[Path]:
    return [path for path in folders_below(Path(scratch)) if path.name.startswith("ws_")]


HYGIENE = {"skills.shell.backend": "hygiene", "skills.shell.min-isolation": "HYGIENE"}


@pytest.mark.row("K6")
async def test_below_landlock_is_a_warning_and_a_low_number(
    skill_folder: Path, scratch: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "flink_skills.runtime")
    for quiet, level in ((False, "WARNING"), (True, "DEBUG")):
        caplog.clear()
        runtime = await opened(skill_folder, scratch, quiet=quiet, **HYGIENE)
        try:
            assert runtime.figures()["isolationLevel"] == 10
            report = runtime.report()
            assert report["isolation"] == runtime.isolation == "HYGIENE"
            assert report["isolation_report"]["backend"] == "hygiene"
            assert report["isolation_report"]["not_enforced"]
        finally:
            await runtime.close()
        (record,) = [record for record in caplog.records if "commands run at level HYGIENE" in record.message]
        assert record.levelname == level


async def test_landlock_or_better_is_no_warning(
    skill_folder: Path, scratch: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "flink_skills.runtime")
    try:
        runtime = await opened(skill_folder, scratch)
    except IsolationError as error:
        pytest.skip(f"this machine has no such sandbox: {error}")
    try:
        assert runtime.figures()["isolationLevel"] >= IsolationLevel.LANDLOCK
        assert runtime.report()["isolation_report"]["net"] == "denied"
    finally:
        await runtime.close()
    (record,) = [record for record in caplog.records if "commands run at level" in record.message]
    assert record.levelname == "INFO"


async def test_what_a_policy_does_not_do_is_said(
    skill_folder: Path, scratch: str, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = await opened(skill_folder, scratch, **HYGIENE, **{"skills.shell.denied-commands": "/usr/bin/env"})
    await runtime.close()
    assert "skills.shell.denied-commands alone does not stop a program" in caplog.text


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("skills.shell.env", "LD_PRELOAD"),
        ("skills.env.shout.PYTHONPATH", "${env:X}"),
        ("skills.shell.allowed-commands", "git"),
    ],
)
async def test_options_that_cannot_be_used_stop_the_opening(
    skill_folder: Path, scratch: str, option: str, value: str
) -> None:
    with pytest.raises(ConfigError, match=f"option {option}: "):
        await opened(skill_folder, scratch, **HYGIENE, **{option: value})
    assert workspaces_in(scratch) == []
