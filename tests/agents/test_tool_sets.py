"""Tools that models always have: made ones, registered ones, and those that tool sets give for a key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flink_skills import (
    Agent,
    BaseToolSet,
    FunctionTool,
    PlanError,
    ResourceDescriptor,
    ToolContext,
    UnknownNameError,
    chat_model_setup,
    load_agent_yaml,
    register_tool,
    tool,
    tool_set,
)
from flink_skills.models import ToolMessage
from flink_skills.testing import call, calls
from flink_skills.tools.calling import ApprovalRequest
from flink_skills.tools.files import FileToolSet
from flink_skills.tools.web import ScriptedSearch, SearchHit, WebFetchTool, WebSearchTool
from tests.kit.agents import OpenAgent
from tests.kit.models import Script, offered, results


def price(article: str) -> int:
    """Price of an article."""
    return len(article)


def discount(article: str) -> int:
    """Discount of an article."""
    return 1


def stock(article: str) -> int:
    """Stock of an article."""
    return 7


class Shop(BaseToolSet):
    name = "shop"
    closed = 0

    async def get_tools(self, context: ToolContext) -> list[Any]:
        return [price, discount] if str(context.key).startswith("vip") else [price]

    async def close(self) -> None:
        Shop.closed += 1


class Clerk(Agent):
    model = "scripted:m"

    @tool
    def greet(self, name: str) -> str:
        """Greet."""
        return f"hello {name}"

    @tool_set
    def at_hand(self) -> list[Any]:
        return [Shop(), FunctionTool(stock, name="in_stock")]


@pytest.mark.row("J6")
async def test_a_tool_set_chooses_by_the_key_and_is_closed_with_the_agent(
    open_agent: OpenAgent, script: Script
) -> None:
    before = Shop.closed
    model = script(lambda request: "ok")
    bench = await open_agent(Clerk)
    await bench.turn("x", key='"vip-1"')
    assert offered(model) == ["greet", "in_stock", "price", "discount"]
    await bench.turn("x", key='"other"')
    assert offered(model) == ["greet", "in_stock", "price"]
    await bench.runtime.close()
    assert Shop.closed == before + 1


async def test_their_tools_are_called(open_agent: OpenAgent, script: Script) -> None:
    model = script([calls(call("price", article="abc"), call("in_stock", article="a"), call("discount")), "done"])
    bench = await open_agent(Clerk)
    await bench.turn("x", key='"other"')
    assert results(model)[:2] == ["3", "7"]
    assert results(model)[2].startswith("There is no tool 'discount'")


async def test_a_model_has_those_that_its_setup_names(open_agent: OpenAgent, script: Script) -> None:
    class Two(Clerk):
        @chat_model_setup
        def narrow(self) -> ResourceDescriptor:
            return ResourceDescriptor(clazz="scripted.setup", tools=["greet", "disc*"])

    model = script([calls(call("price", article="abc")), "done"])
    bench = await open_agent(Two)
    await bench.turn("x", key='"vip"')
    assert offered(model) == ["greet", "discount"]
    assert results(model)[0].startswith("There is no tool 'price'")


async def test_a_tool_set_that_fails_takes_no_other_tool_along(
    open_agent: OpenAgent, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(BaseToolSet):
        async def get_tools(self, context: ToolContext) -> list[Any]:
            raise ConnectionError("the directory is down")

    class Uses(Clerk):
        @tool_set
        def broken(self) -> BaseToolSet:
            return Broken()

    model = script(lambda request: "ok")
    bench = await open_agent(Uses)
    await bench.turn("x", key='"other"')
    assert offered(model) == ["greet", "in_stock", "price"]
    assert "the directory is down; its tools are absent" in caplog.text


async def test_one_that_is_named_like_the_agents_own_is_left_out(
    open_agent: OpenAgent, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    class Same(Clerk):
        @tool
        def price(self, article: str) -> str:
            """The agent's own price."""
            return "own"

    model = script([calls(call("price", article="abc")), "done"])
    bench = await open_agent(Same)
    await bench.turn("x", key='"other"')
    assert results(model) == ["own"]
    assert "tool 'price' of a tool set is omitted" in caplog.text


@pytest.mark.row("J3")
async def test_a_registered_tool_is_there_by_its_name(open_agent: OpenAgent, script: Script) -> None:
    register_tool("stock_of_registry", stock)

    class Named(Agent):
        model = "scripted:m"

        @tool_set
        def named(self) -> list[Any]:
            return ["stock_of_registry"]

    model = script(lambda request: "ok")
    await (await open_agent(Named)).turn("x")
    assert offered(model) == ["stock_of_registry"]


async def test_mistakes_are_found_at_submission(open_agent: OpenAgent) -> None:
    class Unknown(Agent):
        model = "scripted:m"

        @tool_set
        def named(self) -> list[Any]:
            return ["stock_of_registri"]

    with pytest.raises(PlanError, match=r"@tool_set named\(\), item 1: unknown registered tool 'stock_of_registri'"):
        await open_agent(Unknown)

    class Twice(Clerk):
        @tool_set
        def twice(self) -> list[Any]:
            return [FunctionTool(price, name="greet")]

    with pytest.raises(PlanError, match="two tools are named 'greet'"):
        await open_agent(Twice)

    class Misspelt(Agent):
        @tool
        def greet(self) -> str:
            """Greet."""
            return ""

        @chat_model_setup
        def narrow(self) -> ResourceDescriptor:
            return ResourceDescriptor(clazz="scripted.setup", tools=["gret"])

    with pytest.raises(UnknownNameError, match="gret"):
        await open_agent(Misspelt)


async def test_calls_that_need_a_yes_ask_the_agent(open_agent: OpenAgent, script: Script) -> None:
    class Careful(Clerk):
        asked: list[ApprovalRequest] = []  # noqa: RUF012 - of the test

        async def approve(self, request: ApprovalRequest) -> Any:
            self.asked.append(request)
            return request.arguments["article"] == "cheap" or "too dear"

    model = script([calls(call("price", article="dear"), call("price", article="cheap")), "done"])
    bench = await open_agent(Careful, **{"skills.tools.approve": "price"})
    await bench.turn("x", key='"other"')
    assert results(model) == ["price was not called: the call was not approved: too dear", "5"]
    assert [(of.tool, of.model, of.key) for of in Careful.asked] == [("price", "model", "other")] * 2
    assert len({of.call_id for of in Careful.asked}) == 2


async def test_an_agent_that_says_nothing_approves_nothing(open_agent: OpenAgent, script: Script) -> None:
    model = script([calls(call("greet", name="x")), "done"])
    await (await open_agent(Clerk, **{"skills.tools.approve": "greet"})).turn("x", key='"other"')
    assert "this agent approves no calls: give it a method approve" in results(model)[0]


SIX = ["Read", "Write", "Edit", "Grep", "Glob", "Bash"]


def parsed_results(model: Any) -> list[Any]:
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
    assert offered(model) == SIX
    wrote, edited, read, grep, glob, bash = parsed_results(model)
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
    assert offered(model) == ["Read", "Grep", "Glob"]
    assert parsed_results(model)[0].startswith("There is no tool 'Bash'")


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
    assert offered(model) == ["web_search", "web_fetch"]
    search, fetch = parsed_results(model)
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
    assert sorted(offered(model)) == sorted([*SIX, "shout", "shout_of_registry"])
    assert parsed_results(model)[0] == "A"
    assert parsed_results(model)[1]["success"]
