"""Hooks of one tool: ``@tool(around=…)`` and ``around`` in YAML."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from flink_skills import (
    Agent,
    AgentContext,
    FunctionTool,
    Refusal,
    ToolInvocation,
    ToolResult,
    load_agent_yaml,
    tool,
    tool_set,
)
from flink_skills.errors import ConfigError, SkillsError
from flink_skills.testing import call, calls
from tests.kit.agents import OpenAgent
from tests.kit.models import Script

ORDER: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ORDER.clear()


async def masked(call: ToolInvocation, ctx: AgentContext) -> ToolResult:
    ORDER.append(f"around {call.name} {call.arguments}")
    ctx.state["asked"] = ctx.state.get("asked", 0) + 1
    result = await call.run()
    return replace(result, content=result.content.replace("@example.com", "@…"))


def refused(call: ToolInvocation, ctx: AgentContext) -> Refusal:
    return Refusal("not in this job")


def find(name: str) -> str:
    """Find a customer."""
    ORDER.append(f"find {name}")
    return f"{name}@example.com"


class Desk(Agent):
    model = "scripted:m"

    @tool(around=masked)
    async def find(self, name: str) -> str:
        """Find a customer."""
        return find(name)

    @tool
    def plain(self, name: str) -> str:
        """Find a customer, unmasked."""
        return find(name)


async def test_hook_of_a_tool_runs_calls_of_that_tool_only(open_agent: OpenAgent, script: Script) -> None:
    model = script([calls(call("find", name="ann"), call("plain", name="bob")), "done"])
    outcome = await (await open_agent(Desk)).turn("x")
    assert [message.content for message in model.requests[1].messages[-2:]] == ["ann@…", "bob@example.com"]
    assert outcome.session.state == {"asked": 1}
    assert ORDER[0] == "around find {'name': 'ann'}"


async def test_hook_of_a_tool_runs_inside_the_hook_of_the_agent(open_agent: OpenAgent, script: Script) -> None:
    class Both(Desk):
        async def around_tool(self, call: ToolInvocation, ctx: AgentContext) -> Any:
            ORDER.append("outer")
            ctx.state["outer"] = True
            return (await call.run({**call.arguments, "name": "eve"})).content + "!"

    model = script([calls(call("find", name="ann")), "done"])
    bench = await open_agent(Both)
    outcome = await bench.turn("x")
    assert ORDER == ["outer", "around find {'name': 'eve'}", "find eve"]
    assert model.requests[1].messages[-1].content == "eve@…!"
    assert outcome.session.state == {"outer": True, "asked": 1}
    journal = list(bench.journal)
    await bench.turn("x", journal=journal, crashes=1)
    assert len(ORDER) == 3, "a replay calls neither"


async def test_a_refusal_and_a_failure_name_the_tool(open_agent: OpenAgent, script: Script) -> None:
    async def broken(call: ToolInvocation, ctx: AgentContext) -> int:
        return 7

    class Odd(Agent):
        model = "scripted:m"

        @tool_set
        def tools(self) -> list[Any]:
            return [FunctionTool(find, around=refused), FunctionTool(find, "other", around=broken)]

    model = script([calls(call("find", name="ann")), calls(call("other", name="ann"))])
    outcome = await (await open_agent(Odd)).turn("x")
    assert model.requests[1].messages[-1].content == "find was not called: not in this job"
    assert "around of tool other returned a int" in outcome.outputs[0][1]["error"]
    assert ORDER == []


def agent_of(folder: Path, key: str, entry: dict[str, str]) -> Agent:
    file = folder / "agent.yaml"
    file.write_text(yaml.safe_dump({"name": "desk", "model": "offline", key: [entry]}))
    return load_agent_yaml(str(file))


@pytest.mark.parametrize("key", ["tools", "tool_pool"])
def test_file_names_the_hook(key: str, tmp_path: Path) -> None:
    assert agent_of(tmp_path, key, {"tool": f"{__name__}:find", "around": f"{__name__}:masked"}).name == "desk"


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"tool": f"{__name__}:find", "arround": "x:y"}, "unknown key 'arround': did you mean 'around'"),
        ({"tool": f"{__name__}:find", "around": "nowhere"}, "not of the form 'module:name'"),
        ({"tool": f"{__name__}:find", "around": f"{__name__}:ORDER"}, "name a function"),
        ({"tool": "not_registered", "around": f"{__name__}:masked"}, "no tool is registered as 'not_registered'"),
        ({"tool": "flink_skills.tools:FileToolSet", "around": f"{__name__}:masked"}, "belongs to one tool"),
    ],
)
def test_mistakes_in_a_file(entry: dict[str, str], problem: str, tmp_path: Path) -> None:
    with pytest.raises(SkillsError, match=problem):
        agent_of(tmp_path, "tools", entry)


def test_around_rejects_what_is_no_function() -> None:
    with pytest.raises(ConfigError, match="around is 'masked': give a function"):
        tool(around="masked")  # type: ignore[call-overload]
