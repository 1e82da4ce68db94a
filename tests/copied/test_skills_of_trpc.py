"""Programs in the words of the skills guide of trpc-agent: tools that skills activate, and runs of commands.

Each test stands for one example or for a group of them, and looks at the next request of the model.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import flink_skills
from flink_skills import Agent, AgentsExecutionEnvironment, FunctionTool, register_tool, tool_pool
from flink_skills.testing import call, calls
from tests.kit.models import Script

WEATHER = """---
name: weather-tools
description: Weather information query tools.
---
Tools:
- get_current_weather
- get_weather_forecast
- search_city_by_name

Overview

This skill provides weather-related query tools.
"""
MATH = """---
name: python-math
description: Small Python utilities for math and text files.
---
Overview

Run short Python scripts inside the skill workspace.

Examples

1) Print the first N Fibonacci numbers

Command: python3 scripts/fib.py 10 > out/fib.txt

Output Files
- out/fib.txt
"""
FIB = """import sys
a, b = 0, 1
for _ in range(int(sys.argv[1])):
    print(a, end=" ")
    a, b = b, a + b
"""


@register_tool("get_current_weather")
def get_current_weather(city: str, unit: str = "celsius") -> dict[str, Any]:
    """Get the current weather of a city."""
    return {"city": city, "temperature": 22 if unit == "celsius" else 72, "unit": unit}


@register_tool("get_weather_forecast")
def get_weather_forecast(city: str, days: int = 3) -> dict[str, Any]:
    """Get the weather forecast of a city."""
    return {"city": city, "forecast_days": [{"temperature": 22}] * days}


@register_tool("search_city_by_name")
def search_city_by_name(name: str) -> dict[str, Any]:
    """Search a city by its name."""
    return {"name": name, "country": "Norway"}


def ask_name_information(name: str, country: str = "China") -> dict[str, Any]:
    """Ask for information about a person."""
    return {"name": name, "age": 20, "country": country}


class SkillRunAgent(Agent):
    name = "skill_run_agent"
    model = "copied:any"

    @tool_pool
    def available_tools(self) -> Any:
        return [
            "get_current_weather",
            "get_weather_forecast",
            "search_city_by_name",
            FunctionTool(ask_name_information),
        ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("weather-tools", WEATHER), ("python-math", MATH)):
        (tmp_path / "skills" / name / "scripts").mkdir(parents=True)
        (tmp_path / "skills" / name / "SKILL.md").write_text(text)
    (tmp_path / "skills/python-math/scripts/fib.py").write_text(FIB)
    return tmp_path / "skills"


def run(script: Script, folder: Path, *made: Any) -> list[Any]:
    """Return the requests of a model that makes some calls, each in one request."""
    steps = [*(calls(each, prefix=f"c{number}") for number, each in enumerate(made)), "done"]
    model = script(lambda request: steps[sum(type(m).__name__ == "ToolMessage" for m in request.messages)])
    env = AgentsExecutionEnvironment.get_execution_environment()
    env.add_skills_from_paths([str(folder)])
    for key, value in {
        "skills.tools": "full",
        "skills.shell.backend": "hygiene",
        "skills.shell.min-isolation": "HYGIENE",
        "skills.artifacts.dir": f"file://{folder.parent}/artifacts",
        "skills.workspace.dir": str(folder.parent / "ws_abc123"),
    }.items():
        env.get_config().set(key, value)
    out = env.from_list(["an event"]).apply(SkillRunAgent)
    assert (out.to_list(), out.to_list("errors")) == (["done"], [])
    return list(model.requests)


def offered(request: Any) -> list[str]:
    """Return the tools of a request that the skill activates."""
    known = ("get_current_weather", "get_weather_forecast", "search_city_by_name", "ask_name_information")
    names = {spec.name for spec in request.tools}
    return [name for name in known if name in names]


# A pool of names and of a tool, and the conversation of the guide: only the tools that the skill names are offered.
def test_a_skill_activates_the_tools_that_it_names(folder: Path, script: Script) -> None:
    requests = run(
        script,
        folder,
        call("skill_list"),
        call("skill_list_tools", skill_name="weather-tools"),
        call("skill_load", skill_name="weather-tools"),
        call("skill_select_tools", skill_name="weather-tools", tools=["get_current_weather", "get_weather_forecast"]),
        call("get_current_weather", city="Oslo"),
        call("get_weather_forecast", city="Oslo", days=2),
        call("ask_name_information", name="Alice", country="Norway"),
        call("skill_select_tools", skill_name="weather-tools", tools=["ask_name_information"], mode="add"),
        call("ask_name_information", name="Alice", country="Norway"),
    )
    results = [request.messages[-1] for request in requests[1:]]
    names = ["get_current_weather", "get_weather_forecast", "search_city_by_name"]
    assert [offered(request) for request in requests] == [
        *([[]] * 3),
        names,
        *([names[:2]] * 4),
        *([[*names[:2], "ask_name_information"]] * 2),
    ]
    listed, tools, loaded, selected, weather, forecast, missing, added, person = results
    assert json.loads(listed.content) == ["python-math", "weather-tools"]
    assert json.loads(tools.content) == names
    assert "weather-tools" in loaded.content
    assert json.loads(selected.content)["selected_tools"] == names[:2]
    assert json.loads(weather.content) == {"city": "Oslo", "temperature": 22, "unit": "celsius"}
    assert len(json.loads(forecast.content)["forecast_days"]) == 2
    assert missing.is_error
    assert "ask_name_information" in missing.content
    assert json.loads(added.content)["selected_tools"] == [*names[:2], "ask_name_information"]
    assert json.loads(person.content)["age"] == 20


# Runs of a skill: a file with its content, another folder for outputs, and artifacts without their content.
def test_runs_of_a_skill(folder: Path, script: Script) -> None:
    requests = run(
        script,
        folder,
        call("skill_load", skill_name="python-math"),
        call(
            "skill_run",
            skill="python-math",
            command="python3 scripts/fib.py 10 > out/fib.txt",
            output_files=["out/fib.txt"],
        ),
        call(
            "skill_run",
            skill="python-math",
            command="python3 scripts/fib.py 5 > $OUTPUT_DIR/fib.txt; ls -F . ../..",
            env={"OUTPUT_DIR": "out/today"},
            output_files=["out/today/*.txt"],
            save_as_artifacts=True,
            omit_inline_content=True,
        ),
    )
    first, second = (json.loads(request.messages[-1].content) for request in requests[2:])
    assert (first["exit_code"], first["output_files"][0]["name"]) == (0, "out/fib.txt")
    assert first["output_files"][0]["content"].split() == ["0", "1", "1", "2", "3", "5", "8", "13", "21", "34"]
    assert second["exit_code"] == 0
    assert [file["name"] for file in second["output_files"]] == ["out/today/fib.txt"]
    assert not second["output_files"][0].get("content")
    assert second["artifact_files"][0]["name"].endswith("out/today/fib.txt")
    # The layout of a workspace.
    assert {"metadata.json", "out/", "runs/", "skills/", "work/", "SKILL.md", "inputs@", "out@", "work@"} <= set(
        second["stdout"].split()
    )


NAMES = """SkillToolSet DynamicSkillToolSet BaseSkillRepository create_default_skill_repository
create_local_workspace_runtime create_container_workspace_runtime SKILL_TOOLS_STATE_KEY_PREFIX LlmAgent ClaudeAgent
LLMModel OpenAIModel Runner InMemorySessionService InvocationContext MCPToolset AgentTool BaseTool Content Part
patch_mcp_cancel_scope_exit_issue ReadTool BashTool"""


# Hints for imported names that have another form here.
@pytest.mark.parametrize("name", NAMES.split())
def test_names_without_a_counterpart_are_explained(name: str) -> None:
    with pytest.raises(ImportError, match=f"has no {name}: "):
        getattr(flink_skills, name)
