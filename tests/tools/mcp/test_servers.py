"""Real MCP servers over each transport. Examines the internals of tools.mcp.server_mapping on purpose."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from flink_skills import ConfigError, ToolContext
from flink_skills.tools import Tool
from flink_skills.tools.mcp import (
    McpStdioServerParameters,
    McpToolSet,
    SseConnectionParams,
    StdioConnectionParams,
    StreamableHTTPConnectionParams,
)
from flink_skills.tools.mcp.server_mapping import connection_params
from tests.kit.media import PNG
from tests.kit.waiting import until
from tests.tools.mcp.conftest import DEADLINE, SERVER, STDIO, ConnectionParams, OpenToolSet, StartHttp, reached

# The shared servers are reached from the event loop of the module.
sharing = pytest.mark.asyncio(loop_scope="module")
PLAIN, ODD = (Path(__file__).with_name(f"{name}_server.py") for name in ("plain", "odd"))
LONG = "a_name_with_everything_that_is_not_allowed_and_is_very_"


async def tools_of(toolset: McpToolSet) -> dict[str, Tool]:
    return {tool.spec.name: tool for tool in await toolset.get_tools(ToolContext())}


NAMES = ["price", "shop_price", "shop_p*", "shop_", "s*", "mcp_*", "*"]


@pytest.mark.parametrize(
    ("prefix", "chosen", "expected"),
    [
        ("", None, NAMES),
        ("shop_", None, ["shop_price", "shop_p*", "s*", "*"]),
        ("shop_", lambda name, context: True, ["shop_price", "shop_p*", "s*", "*"]),
        ("shop_", ["price"], ["shop_price", "shop_p*", "s*", "*"]),
        ("shop_", ["stock_*"], ["s*", "*"]),
    ],
)
def test_a_server_can_only_bring_names_with_its_prefix_that_its_filter_admits(
    prefix: str, chosen: Any, expected: list[str]
) -> None:
    toolset = McpToolSet("http://127.0.0.1:9/mcp", prefix=prefix, tool_filter=chosen)
    assert [name for name in NAMES if toolset.can_bring(name)] == expected


@pytest.mark.asyncio(loop_scope="function")
async def test_a_server_that_reports_changes_can_bring_tools_later(tmp_path: Path) -> None:
    for program, complete in ((PLAIN, True), (ODD, False)):
        server = {"command": sys.executable, "args": [str(program), "plain"], "sandbox": False}
        toolset = McpToolSet(server, prefix="shop_")
        assert not toolset.is_complete
        await toolset.initialize()
        try:
            assert toolset.is_complete is complete
        finally:
            await toolset.close()


@pytest.mark.row("J7", "J8", "J9", "J10", "J34")
@sharing
async def test_tools_are_listed_and_called(shared: McpToolSet) -> None:
    tools = await tools_of(shared)
    assert tools["shop_price"].spec.description == "Price of an article."
    assert tools["shop_price"].spec.parameters["required"] == ["article"]
    result = await tools["shop_price"].call({"article": "abc"}, ToolContext())
    assert (result.content, result.value, result.is_error) == ("3", {"result": 3}, False)
    wrong = await tools["shop_price"].call({"articel": "abc"}, ToolContext())
    assert wrong.is_error
    assert "article" in wrong.content
    assert (await tools["shop_refuse"].call({"why": "no"}, ToolContext())).is_error


@sharing
async def test_images_and_documents_of_results_are_media(shared: McpToolSet) -> None:
    tools = await tools_of(shared)
    result = await tools["shop_picture"].call({"data": base64.b64encode(PNG).decode()}, ToolContext())
    assert result.content == f"here\n[image image.png, {len(PNG)} bytes]\n[PDF shop.pdf, 9 bytes]"
    assert [(of.media_type, of.name, of.data) for of in result.media] == [
        ("image/png", "image.png", PNG),
        ("application/pdf", "shop.pdf", b"%PDF-1.7\n"),
    ]
    # The server's word for the type is not believed.
    text = await tools["shop_picture"].call({"data": base64.b64encode(b"<svg/>").decode()}, ToolContext())
    assert [of.name for of in text.media] == ["shop.pdf"]
    assert "[image, image/png, 6 bytes]" in text.content
    read = await tools["shop_read_resource"].call({"uri": "shop://logo.png"}, ToolContext())
    assert [(of.name, of.size) for of in read.media] == [("logo.png", 8)]


@pytest.mark.row("J7", "J11")
async def test_a_server_that_ends_is_an_error_and_comes_back(
    params: ConnectionParams, opened: OpenToolSet, http_server: StartHttp
) -> None:
    toolset = await opened(params)
    tools = await tools_of(toolset)
    lost = await tools["end"].call({}, ToolContext())
    assert lost.is_error
    assert lost.retryable
    assert "went away during the request" in lost.content
    assert "not known whether the call had an effect" in lost.content
    assert set(await tools_of(toolset)) == set(tools), "its tools stay"
    if not isinstance(params, StdioConnectionParams):
        server = http_server(params.url)
        server.port, server.kind = (
            int(params.url.split(":")[2].split("/")[0]),
            ("sse" if isinstance(params, SseConnectionParams) else "streamable-http"),
        )
        server.start()

    async def answers() -> bool:
        return not (await tools["price"].call({"article": "abc"}, ToolContext())).is_error

    await until(answers)


@sharing
async def test_many_calls_at_once_share_the_connection(shared: McpToolSet) -> None:
    tools = await tools_of(shared)
    asked = [tools["shop_price"].call({"article": "x" * number}, ToolContext()) for number in range(40)]
    assert [result.content for result in await asyncio.gather(*asked)] == [str(number) for number in range(40)]


async def test_a_cancelled_call_leaves_the_connection_usable(opened: OpenToolSet) -> None:
    tools = await tools_of(await opened(STDIO))
    task = asyncio.ensure_future(tools["price"].call({"article": "abc"}, ToolContext()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await tools["price"].call({"article": "ab"}, ToolContext())).content == "2"


@sharing
async def test_prompts_and_resources_are_tools_where_they_are_asked_for(shared: McpToolSet) -> None:
    tools = await tools_of(shared)

    async def said(tool: str, /, **arguments: Any) -> str:
        return (await tools[tool].call(arguments, ToolContext())).content

    listed = [{"name": "about", "uri": "shop://about"}, {"name": "logo", "uri": "shop://logo.png"}]
    assert json.loads(await said("shop_list_resources")) == listed
    assert await said("shop_read_resource", uri="shop://about") == "a shop"
    assert json.loads(await said("shop_list_prompts")) == [{"name": "greet", "arguments": ["name"]}]
    assert await said("shop_get_prompt", name="greet", arguments={"name": "Bo"}) == "user: Greet Bo"
    for name, arguments in (("shop_read_resource", {}), ("shop_get_prompt", {"name": "nope"}), ("shop_get_prompt", {})):
        assert (await tools[name].call(arguments, ToolContext())).is_error


async def test_tools_may_be_filtered_and_have_names_that_providers_take(
    opened: OpenToolSet, http_server: StartHttp
) -> None:
    server = http_server("streamable-http")
    server.start()
    params = reached(server)
    some = await opened(params, tool_filter=["price", "re*"], prefix="x_")
    assert set(await tools_of(some)) == {"x_price", "x_refuse", "x_read"}
    by_key = await opened(params, tool_filter=lambda name, context: name == context.key)
    assert [tool.spec.name for tool in await by_key.get_tools(ToolContext(key="price"))] == ["price"]
    more = await opened(params, tool_filter=["price"], prefix="y_", prompts=True)
    assert set(await tools_of(more)) == {"y_price", "y_list_prompts", "y_get_prompt"}, "the filter is for its tools"
    (odd,) = [name for name in await tools_of(await opened(params)) if name.startswith("a_name")]
    assert len(odd) == 64
    assert odd.startswith(LONG)


@pytest.mark.row("J7")
async def test_new_tools_of_a_server_are_found(params: ConnectionParams, opened: OpenToolSet) -> None:
    # It is not found by looking: that is done too seldom for this test.
    toolset = await opened(params, interval=10 * DEADLINE)
    before = await tools_of(toolset)
    assert "discount" not in before
    assert (await before["learn"].call({}, ToolContext())).content == "learned"

    async def found() -> bool:
        return "discount" in await tools_of(toolset)

    await until(found)
    assert (await tools_of(toolset))["price"] is before["price"], "what stayed the same is the same object"


@pytest.mark.row("J7")
async def test_an_optional_server_that_is_down_at_open_has_its_tools_when_it_comes(
    http_server: StartHttp, opened: OpenToolSet
) -> None:
    server = http_server("streamable-http")
    changes: list[dict[str, int]] = []
    toolset = McpToolSet(StreamableHTTPConnectionParams(server.url, timeout=2), required=False)
    toolset.on_change = lambda: changes.append(toolset.figures())
    await toolset.initialize()
    try:
        assert await tools_of(toolset) == {}
        assert toolset.figures() == {"mcpServers": 1, "mcpServersDown": 1, "mcpReconnects": 0}
        server.start()
        tools = await until(lambda: tools_of(toolset))
        assert (await tools["price"].call({"article": "abc"}, ToolContext())).content == "3"
        assert changes[-1]["mcpServersDown"] == 0
    finally:
        await toolset.close()


async def test_a_closed_tool_set_leaves_no_process(opened: OpenToolSet) -> None:
    def servers() -> set[psutil.Process]:
        return {of for of in psutil.Process().children(recursive=True) if str(SERVER) in of.cmdline()}

    before = servers()  # those that tests share
    toolset = await opened(STDIO)
    assert servers() > before
    await toolset.close()
    assert servers() == before


async def test_secrets_are_read_where_they_are_used(
    opened: OpenToolSet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SHOP_SECRET", "s3cr3t-of-the-shop")
    program = McpStdioServerParameters(sys.executable, (str(SERVER), "stdio"), {"SHOP_TOKEN": "${env:SHOP_SECRET}"})
    params = StdioConnectionParams(program, sandbox=False)
    assert "SHOP" not in repr(params)
    tools = await tools_of(await opened(params))
    found = json.loads((await tools["surroundings"].call({}, ToolContext())).content)
    assert found["token"] == "s3cr3t-of-the-shop"
    assert "SHOP_SECRET" not in found["names"], "only what is given to it"
    assert "s3cr3t" not in caplog.text


async def test_a_secret_that_is_not_set_is_named(opened: OpenToolSet, caplog: pytest.LogCaptureFixture) -> None:
    params = StreamableHTTPConnectionParams("http://127.0.0.1:9/mcp", {"Authorization": "Bearer ${env:NOT_SET}"})
    toolset = await opened(params, required=False)
    assert await tools_of(toolset) == {}
    assert "the environment variable 'NOT_SET'" in caplog.text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("http://h/mcp", StreamableHTTPConnectionParams("http://h/mcp")),
        ({"url": "http://h/sse", "transport": "sse"}, SseConnectionParams("http://h/sse")),
        (
            {"command": "server", "args": ["-x"], "timeout": 3},
            StdioConnectionParams(McpStdioServerParameters("server", ["-x"]), timeout=3),
        ),
        (McpStdioServerParameters("server"), StdioConnectionParams(McpStdioServerParameters("server"))),
    ],
)
def test_raw_parameters_are_taken(value: Any, expected: Any) -> None:
    assert connection_params(value) == expected


def test_the_parameters_of_the_package_are_taken() -> None:
    from mcp import StdioServerParameters

    found = connection_params(StdioServerParameters(command="server", args=["-x"]))
    assert found == StdioConnectionParams(McpStdioServerParameters("server", ("-x",)))


@pytest.mark.parametrize(
    "value",
    [
        *(7, "server", {"uri": "http://h"}, {"url": "http://h", "transport": "carrier pigeon"}),
        *({"url": "h/mcp"}, {"url": "http://h", "timeout": 0}, {"url": "http://h", "timeout": "5"}),
        *({"url": "http://h", "headers": {"X": 7}}, {"url": "http://h", "headers": "X: 7"}),
        *({"command": "s", "args": [7]}, {"command": "s", "args": "-x"}, {"command": "s", "env": {"PORT": 7}}),
        *({"command": "s", "sandbox": "no"}, {"command": ""}, {"command": "s", "timeout": float("nan")}),
    ],
)
def test_others_are_refused(value: Any) -> None:
    with pytest.raises(ConfigError):
        connection_params(value)
