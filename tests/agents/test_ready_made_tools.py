"""The tools for files and for the web as tools that models always have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, ResourceDescriptor, chat_model_setup, load_agent_yaml, register_tool, tool_set
from flink_skills.models import ToolMessage
from flink_skills.testing import call, calls
from flink_skills.tools.files import FileToolSet
from flink_skills.tools.web import ScriptedSearch, SearchHit, WebFetchTool, WebSearchTool
from tests.kit.agents import OpenAgent
from tests.kit.models import Script

SIX = ["Read", "Write", "Edit", "Grep", "Glob", "Bash"]


def names(model: Any) -> list[str]:
    return [spec.name for spec in model.requests[-1].tools]


def results(model: Any) -> list[Any]:
    found = (message.content for message in model.requests[-1].messages if isinstance(message, ToolMessage))
    return [json.loads(content) if content.startswith("{") else content for content in found]


class Editor(Agent):
    model = "scripted:m"

    @tool_set
    def files(self) -> FileToolSet:
        return FileToolSet()


@pytest.mark.row("J13", "J32")
async def test_all_six_file_tools_are_offered_and_work(open_agent: OpenAgent, script: Script) -> None:
    model = script(
        [
            calls(call("Write", path="a.txt", content="one\ntwo\n")),
            calls(call("Edit", path="a.txt", old_string="two", new_string="three")),
            calls(
                call("Read", path="a.txt"),
                call("Grep", pattern="th.ee"),
                call("Glob", pattern="*.txt"),
                call("Bash", command="wc -l < a.txt"),
            ),
            "done",
        ]
    )
    bench = await open_agent(Editor)
    outcome = await bench.turn("x")
    assert outcome.outputs == (("", "done"),)
    assert names(model) == SIX
    wrote, edited, read, grep, glob, bash = results(model)
    assert all(of["success"] for of in (wrote, edited, read, grep, glob, bash))
    assert "three" in read["content"]
    assert (grep["total_matches"], glob["count"], bash["stdout"].strip()) == (1, 1, "2")


@pytest.mark.row("J13")
async def test_a_model_has_the_file_tools_that_its_setup_names(open_agent: OpenAgent, script: Script) -> None:
    class Reader(Editor):
        @chat_model_setup
        def narrow(self) -> ResourceDescriptor:
            return ResourceDescriptor(clazz="scripted.setup", tools=["Re*", "G*"])

    model = script([calls(call("Bash", command="true")), "done"])
    bench = await open_agent(Reader)
    await bench.turn("x")
    assert names(model) == ["Read", "Grep", "Glob"]
    assert results(model)[0].startswith("There is no tool 'Bash'")


async def test_files_belong_to_the_key_and_stay_for_its_next_event(open_agent: OpenAgent, script: Script) -> None:
    def answer(request: Any) -> Any:
        said, last = request.messages[0].content, request.messages[-1]
        if isinstance(last, ToolMessage):
            return last.content
        return calls(call("Write", path="a", content="mine")) if said == "write" else calls(call("Read", path="a"))

    script(answer)
    bench = await open_agent(Editor)
    await bench.turn("write", key='"k1"')
    [[_, same]] = (await bench.turn("read", key='"k1"', number=2)).outputs
    [[_, other]] = (await bench.turn("read", key='"k2"')).outputs
    assert "mine" in json.loads(same)["content"]
    assert not json.loads(other)["success"]


@pytest.mark.row("J24", "J28")
async def test_web_tools_are_offered_and_work(open_agent: OpenAgent, script: Script) -> None:
    class Web(Agent):
        model = "scripted:m"

        @tool_set
        def web(self) -> list[Any]:
            return [WebSearchTool(ScriptedSearch([SearchHit("A", "https://a.example.org/", "a")])), WebFetchTool]

    model = script([calls(call("web_search", query="anything"), call("web_fetch", url="http://127.0.0.1/")), "done"])
    await (await open_agent(Web)).turn("x")
    assert names(model) == ["web_search", "web_fetch"]
    search, fetch = results(model)
    assert search["results"][0]["url"] == "https://a.example.org/"
    assert fetch["error"].startswith("SSRF_BLOCKED_URL")


at_hand = FileToolSet("notes")


def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


@pytest.mark.row("J3")
async def test_a_yaml_list_of_tools_takes_sets_functions_and_names(
    open_agent: OpenAgent, script: Script, tmp_path: Path
) -> None:
    register_tool("shout_of_registry", shout)
    file = tmp_path / "clerk.yaml"
    here = __name__
    file.write_text(f"model: scripted:m\ntools: ['{here}:at_hand', '{here}:shout', shout_of_registry]\n")
    model = script([calls(call("shout", text="a"), call("Write", path="b", content="c")), "done"])
    await (await open_agent(load_agent_yaml(file))).turn("x")
    assert sorted(names(model)) == sorted([*SIX, "shout", "shout_of_registry"])
    assert results(model)[0] == "A"
    assert results(model)[1]["success"]
