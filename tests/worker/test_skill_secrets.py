"""The variables of a skill's commands: in the commands, and in no log, message or frame of the worker.

Examines the internals of worker.frames on purpose.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent
from flink_skills.errors import TurnError
from flink_skills.execution import IsolationLevel
from flink_skills.manager import SkillScope
from flink_skills.worker import frames
from tests.kit.skills import write_skill

from .bridge import Bridge

OPTIONS = {
    "skills.shell.backend": "hygiene",
    "skills.shell.min-isolation": "HYGIENE",
    "skills.env.greet.API_TOKEN": "${env:PL4NTED}",
}


class Leaks(Agent):
    """Runs a command that shows its secret, and as careless code does, logs and raises what it knows itself."""

    async def on_event(self, event: Any, ctx: Any) -> Any:
        await ctx.call_tool("load_skill", {"name": "greet"})
        command = {"command": 'echo "$API_TOKEN"; printf %s "$API_TOKEN" | wc -c'}
        result = await ctx.call_tool("execute_shell_command", command)
        logging.getLogger("some.library").warning("POST with %s", os.environ["PL4NTED"])
        if event == "raise":
            raise TurnError(f"refused: {os.environ['PL4NTED']}")
        return result


@pytest.fixture
def bridge(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bridge]:
    monkeypatch.setenv("PL4NTED", "pl4nted-value")
    # Commands may run as another user, who cannot pass the folders of pytest.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        made = Bridge(Path(folder))
        yield made
        made.process.kill()
        made.process.communicate()
        made.log.close()


@pytest.mark.row("B20")
def test_a_value_is_in_the_command_and_nowhere_else(bridge: Bridge, tmp_path: Path) -> None:
    write_skill(tmp_path / "skills" / "greet")
    scope = SkillScope(level="job", paths=(str(tmp_path / "skills"),))
    kind, report = bridge.open(Leaks, scopes=[scope], **{**OPTIONS, "skills.turn.on-error": "fail"})
    assert kind == frames.OPENED, report
    bridge.turn(1, "x")
    done = bridge.end()
    ((tag, output),) = done["outputs"]
    assert (tag, output["stdout"], output["level"]) == ("", "[hidden]\n13\n", "HYGIENE")
    bridge.turn(2, "raise")
    failed = bridge.end()
    assert failed["message"].endswith("refused: [hidden]")
    said = bridge.stderr()
    assert said.count("POST with [hidden]") == 2
    assert "pl4nted" not in said + report + repr(done) + repr(failed)


@pytest.mark.row("K6")
def test_a_metric_and_the_log_say_how_commands_are_isolated(bridge: Bridge, tmp_path: Path) -> None:
    write_skill(tmp_path / "skills" / "greet")
    scope = SkillScope(level="job", paths=(str(tmp_path / "skills"),))
    kind, report = bridge.open(Leaks, scopes=[scope], **OPTIONS)
    assert kind == frames.OPENED, report
    assert bridge.figures[0][1]["isolationLevel"] == IsolationLevel.HYGIENE
    (line,) = [line for line in bridge.stderr().splitlines() if "commands run at level" in line]
    assert line.startswith("WARN flink_skills.runtime: agent ")
    assert "commands run at level HYGIENE (backend hygiene" in line
    assert "not enforced: " in line


def test_a_job_without_commands_has_no_level(bridge: Bridge, tmp_path: Path) -> None:
    write_skill(tmp_path / "skills" / "greet")
    scope = SkillScope(level="job", paths=(str(tmp_path / "skills"),))
    bridge.open(Leaks, scopes=[scope], **{"skills.shell.enabled": False})
    assert "isolationLevel" not in bridge.figures[0][1]


def test_a_job_does_not_open_below_its_level(bridge: Bridge, tmp_path: Path) -> None:
    write_skill(tmp_path / "skills" / "greet")
    scope = SkillScope(level="job", paths=(str(tmp_path / "skills"),))
    kind, message = bridge.open(Leaks, scopes=[scope], **{**OPTIONS, "skills.shell.min-isolation": "LANDLOCK"})
    assert kind == frames.OPEN_FAILED
    assert "cannot be isolated at LANDLOCK" in message and "hygiene: reached HYGIENE only" in message
