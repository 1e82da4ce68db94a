"""The tools that skills bring: in the requests of a model, switched off, and their faults when an agent opens."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, ResourceDescriptor, chat_model_setup
from flink_skills.errors import SkillFormatError
from flink_skills.testing import call, calls
from tests.kit.agents import OpenAgent
from tests.kit.models import Script, offered, results
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
        ({}, "ERROR"),
        # Models have none of these tools.
        ({"skills.tools": "knowledge_only"}, ""),
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


BODY = "Call distance for the distance of two towns."
DISTANCE = 'def distance(start: str, end: str) -> int:\n    """Distance in km."""\n    return 330\n'


@pytest.fixture
def towns(tmp_path: Path) -> Path:
    """A skill with a tool, and one without."""
    write_skill(tmp_path / "towns/geo", body=BODY, **{"tools.py": DISTANCE})
    write_skill(tmp_path / "towns/plain")
    return tmp_path / "towns"


def agent_with(**setup: Any) -> type[Agent]:
    class Far(Agent):
        name = "far"

        @chat_model_setup
        def model(self) -> ResourceDescriptor:
            return ResourceDescriptor(clazz="scripted:model", **setup)

    return Far


@pytest.mark.row("C8")
async def test_the_request_after_a_load_has_the_tools_of_the_skill(
    open_agent: OpenAgent, towns: Path, script: Script
) -> None:
    model = script(
        [
            calls(call("load_skill", name="geo")),
            calls(call("distance", start="Ulm", end="Bonn")),
            calls(call("unload_skill", name="geo")),
            "done",
        ]
    )
    bench = await open_agent(agent_with(), towns)
    assert not (await bench.turn("go")).error
    before, loaded, called, unloaded = map(offered, model.requests)
    assert "distance" not in before
    assert loaded == called == [*before, "distance"]
    assert unloaded == before
    spec = model.requests[1].tools[-1]
    assert spec.description == "Distance in km."
    assert spec.parameters["required"] == ["start", "end"]
    assert "With 1 tool: distance" in results(model.requests[1])[0]
    assert results(model.requests[2])[1] == "330"


@pytest.mark.row("C8")
@pytest.mark.parametrize(
    ("options", "setup", "reason"),
    [
        ({"skills.bundled-tools": "false"}, {}, "skills.bundled-tools is false"),
        ({"skills.shell.enabled": False}, {}, "skills.shell.enabled is false"),
        (
            {"skills.tools": ["load_skill"]},
            {},
            "skills.bundled-tools is auto, and option skills.tools has no tool that runs commands",
        ),
        (
            {},
            {"skill_tools": ["load_skill"]},
            "skills.bundled-tools is auto, and skill_tools has no tool that runs commands",
        ),
    ],
)
async def test_tools_that_are_switched_off_are_named_with_the_option(
    options: dict[str, Any],
    setup: dict[str, Any],
    reason: str,
    open_agent: OpenAgent,
    towns: Path,
    script: Script,
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = script(
        [
            calls(call("distance", start="Ulm", end="Bonn")),
            calls(call("load_skill", name="geo")),
            calls(call("distance", start="Ulm", end="Rome"), call("far_away")),
            "done",
        ]
    )
    with caplog.at_level(logging.WARNING, "flink_skills.runtime"):
        bench = await open_agent(agent_with(**setup), towns, **options)
    assert (
        f"{towns}/geo/tools.py: warning U12: models are not offered the tools of tools.py: {reason}"
        " (set skills.bundled-tools to true, and skills.shell.enabled to true)"
    ) in caplog.messages
    assert sum(" U12" in message for message in caplog.messages) == 1
    assert not (await bench.turn("go")).error
    answer = f"Tool 'distance' of skill 'geo' is not available: {reason}. Follow the skill without this tool."
    first, loaded, again, other = results(model.requests[-1])
    assert first == again == answer
    assert f"The tools that it brings (distance) are not available: {reason}." in loaded
    assert other.startswith("There is no tool 'far_away'.")
    assert "distance" not in offered(model.requests[-1])


@pytest.mark.row("C8")
async def test_tools_of_skills_are_approved_as_others_are(open_agent: OpenAgent, towns: Path, script: Script) -> None:
    asked = []

    class Careful(agent_with()):  # type: ignore[misc]
        approve_tools = ("dist*",)

        async def approve(self, request: Any) -> bool:
            asked.append((request.tool, request.arguments["end"]))
            return bool(request.arguments["end"] == "Bonn")

    model = script(
        [
            calls(call("load_skill", name="geo")),
            calls(call("distance", start="Ulm", end="Bonn"), call("distance", start="Ulm", end="Rome")),
            "done",
        ]
    )
    bench = await open_agent(Careful, towns)
    assert not (await bench.turn("go")).error
    assert asked == [("distance", "Bonn"), ("distance", "Rome")]
    _, yes, no = results(model.requests[-1])
    assert yes == "330"
    assert "330" not in no


@pytest.mark.row("E9")
@pytest.mark.parametrize(
    ("setup", "tools"),
    [
        ({"skill_names": []}, []),
        ({"skill_names": [], "skill_tools": "full"}, []),
        ({"skill_names": [], "skill_tools": ["core", "execute_shell_command"]}, ["execute_shell_command"]),
        (
            {"skill_names": ["plain"]},
            ["load_skill", "unload_skill", "load_skill_resource", "execute_shell_command"],
        ),
    ],
)
async def test_a_model_that_sees_no_skill_has_only_tools_for_commands_that_it_names(
    setup: dict[str, Any], tools: list[str], open_agent: OpenAgent, towns: Path, script: Script
) -> None:
    model = script(["done"])
    bench = await open_agent(agent_with(**setup), towns)
    await bench.turn("go")
    assert offered(model.requests[0]) == tools


@pytest.mark.row("E9")
async def test_a_turn_that_sees_no_skill_has_no_tool_for_commands(
    open_agent: OpenAgent, towns: Path, script: Script
) -> None:
    class Picky(agent_with()):  # type: ignore[misc]
        def visible_skills(self, event: Any, ctx: Any) -> list[str]:
            return ["geo"] if event == "towns" else []

    model = script(lambda request: "done")
    bench = await open_agent(Picky, towns)
    await bench.turn("towns")
    await bench.turn("nothing")
    assert "execute_shell_command" in offered(model.requests[0])
    assert offered(model.requests[1]) == []
