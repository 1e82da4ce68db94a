"""What tools add to the system text of models that have them, and that a repeated request has the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, ClassVar

import pytest

from flink_skills import (
    Agent,
    BaseToolSet,
    ResourceDescriptor,
    Tool,
    ToolContext,
    ToolResult,
    ToolSpec,
    chat_model_setup,
    tool_pool,
    tool_set,
)
from flink_skills.agents import decode
from flink_skills.testing import call, calls
from flink_skills.tools.web import ScriptedSearch, SearchHit, WebSearchTool, sources_policy
from tests.kit.agents import OpenAgent
from tests.kit.models import Script


class Speaking(Tool):
    # By name: an agent that is not of a module has copies of its tools.
    said: ClassVar[dict[str, int]] = {}

    def __init__(self, name: str, *texts: str) -> None:
        self.name = name
        self.texts = list(texts)
        self.said[name] = 0

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, "A tool.", {"type": "object", "properties": {}})

    def prompt_addition(self) -> str:
        self.said[self.name] += 1
        text = self.texts[min(self.said[self.name], len(self.texts)) - 1]
        if text == "broken":
            raise OSError("no text")
        return text

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult("done")


class Quiet(Speaking):
    prompt_addition = Tool.prompt_addition


def agent_with(*tools: Any) -> type[Agent]:
    class Has(Agent):
        model = "scripted:m"
        instructions = "Be short."

        @tool_set
        def given(self) -> list[Any]:
            return list(tools)

    return Has


@pytest.mark.row("J30")
async def test_a_model_that_may_search_is_told_of_sources_and_the_month(open_agent: OpenAgent, script: Script) -> None:
    class Researcher(Agent):
        instructions = "Be short."

        @tool_set
        def web(self) -> WebSearchTool:
            return WebSearchTool(ScriptedSearch([SearchHit("A", "https://a.example.org", "a")]))

        @chat_model_setup
        def reader(self) -> ResourceDescriptor:
            return ResourceDescriptor(clazz="scripted.setup")

        @chat_model_setup
        def writer(self) -> ResourceDescriptor:
            return ResourceDescriptor(clazz="scripted.setup", tools=[])

        async def on_event(self, event: Any, ctx: Any) -> Any:
            await ctx.chat(event, model="reader")
            return await ctx.chat(event, model="writer")

    model = script(lambda request: "ok")
    await (await open_agent(Researcher)).turn("x")
    reader, writer = model.requests
    assert reader.system == f"Be short.\n\n{sources_policy(date.today())}"
    assert (writer.system, writer.tools) == ("Be short.", [])


async def test_a_repeated_request_has_the_text_of_the_first(open_agent: OpenAgent, script: Script) -> None:
    speaks = Speaking("speaks", "It is May.", "It is June.")
    model = script(lambda request: "done" if len(request.messages) > 1 else calls(call("speaks")))
    bench = await open_agent(agent_with(speaks))
    await bench.turn("x")
    assert [decode(entry)["r"].get("p") for entry in bench.journal] == [{"speaks": "It is May."}, None, None]
    journal = list(bench.journal)
    for kept in (1, 2):
        await bench.turn("x", journal=journal[:kept])
    assert [request.system for request in model.requests] == ["Be short.\n\nIt is May."] * 4
    assert Speaking.said["speaks"] == 1
    await bench.turn("y", number=2)
    assert model.requests[-1].system == "Be short.\n\nIt is June."


async def test_without_such_tools_nothing_is_kept(open_agent: OpenAgent, script: Script) -> None:
    model = script([calls(call("quiet")), "done"])
    bench = await open_agent(agent_with(Quiet("quiet", "never")))
    await bench.turn("x")
    assert not bench.runtime.generation.model(None).tools.speakers
    assert [set(decode(entry)["r"]) & {"p"} for entry in bench.journal] == [set()] * 3
    assert model.requests[0].system == "Be short."


async def test_what_fails_or_is_said_twice_is_left_out(
    open_agent: OpenAgent, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    model = script(lambda request: "ok")
    tools = Speaking("a", "One."), Speaking("b", "broken"), Speaking("c", "One."), Speaking("d", " ")
    await (await open_agent(agent_with(*tools))).turn("x")
    assert model.requests[0].system == "Be short.\n\nOne."
    assert "tool b: prompt_addition() failed" in caplog.text


class Prices(BaseToolSet):
    async def get_tools(self, context: ToolContext) -> Iterable[Tool]:
        return [Quiet("price", ""), Quiet("rebate", "")] if str(context.key).startswith("vip") else []

    def prompt_addition(self) -> str:
        return "Prices are in euro."


@pytest.mark.row("J6")
async def test_a_tool_set_speaks_to_models_that_have_a_tool_of_it(open_agent: OpenAgent, script: Script) -> None:
    model = script(lambda request: "ok")
    bench = await open_agent(agent_with(Prices()))
    await bench.turn("x", key='"vip"')
    await bench.turn("x", key='"other"')
    assert [request.system for request in model.requests] == ["Be short.\n\nPrices are in euro.", "Be short."]


async def test_tools_of_a_pool_speak_once_a_skill_brings_them(
    open_agent: OpenAgent, script: Script, tmp_path: Path
) -> None:
    folder = tmp_path / "skills" / "shop"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: shop\ndescription: Prices.\n---\n# Shop\n\nTools:\n- price\n- a\n")
    speaks = Speaking("a", "Text of a.")

    class Has(Agent):
        model = "scripted:m"

        @tool_pool
        def given(self) -> list[Any]:
            return [Prices(), speaks]

    model = script([calls(call("load_skill", name="shop")), calls(call("a")), "done"])
    bench = await open_agent(Has, tmp_path / "skills")
    await bench.turn("x", key='"vip"')
    texts = [request.system for request in model.requests]
    assert "euro" not in texts[0]
    assert texts[1].count("Prices are in euro.") == texts[1].count("Text of a.") == 1
    assert texts[2] == texts[1]
    assert [bool(decode(entry)["r"].get("p")) for entry in bench.journal] == [False, False, True, False, False]
