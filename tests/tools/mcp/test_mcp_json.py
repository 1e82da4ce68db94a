"""Servers as other clients configure them: ``.mcp.json`` files, their keys and variables."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, ConfigError, ExecutionError, ToolContext, load_agent_yaml, tool_set
from flink_skills.agents import read_declaration
from flink_skills.tools.mcp import (
    McpClientCredentials,
    McpStdioServerParameters,
    McpToolSet,
    SseConnectionParams,
    StdioConnectionParams,
    StreamableHTTPConnectionParams,
    mcp_servers_from,
)
from tests.tools.mcp.conftest import SERVER, OpenToolSet
from tests.tools.mcp.test_hostile import ODD

pytestmark = pytest.mark.row("J7")

PUBLIC: dict[str, Any] = {
    "mcpServers": {
        "issues": {
            "type": "http",
            "url": "https://mcp.issues.example/mcp",
            "headers": {"Authorization": "Bearer ${ISSUES_TOKEN}"},
            "alwaysAllow": ["search"],
            "timeout": 60000,
        },
        "search": {"httpUrl": "https://${SEARCH_HOST:-search.example}/mcp", "description": "The web."},
        "docs": {"serverUrl": "https://docs.example/sse", "type": "sse"},
        "old": {"command": "no-such-program", "disabled": True},
        "files": {
            "command": "files-server",
            "args": ["--token", "${env:FILES_TOKEN}", "/srv"],
            "env": {"A": "${A}"},
            "cwd": "/srv",
            "autoApprove": [],
        },
        "stock": {
            "type": "streamableHttp",
            "url": "https://stock.example/mcp",
            "oauth": {"clientId": "agent", "clientSecret": "${STOCK_SECRET}", "scopes": ["read"], "callbackPort": 1},
        },
    }
}


def written(folder: Path, data: Any) -> Path:
    path = folder / ".mcp.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def params_of(toolset: Any) -> Any:
    return toolset._params


def test_a_public_file_is_understood(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    written(tmp_path, PUBLIC)
    agent = tmp_path / "clerk.yaml"
    agent.write_text("model: offline\nmcp_servers:\n  file: .mcp.json\n  issues: {prefix: issues_, required: false}\n")
    found = {of.name: of for of in read_declaration(load_agent_yaml(agent)).toolsets}  # type: ignore[attr-defined]
    assert params_of(found["issues"]) == StreamableHTTPConnectionParams(
        "https://mcp.issues.example/mcp", {"Authorization": "Bearer ${env:ISSUES_TOKEN}"}
    )
    assert found["issues"]._prefix == "issues_"  # type: ignore[attr-defined]
    assert not found["issues"].required  # type: ignore[attr-defined]
    assert params_of(found["search"]).url == "https://${env:SEARCH_HOST:-search.example}/mcp"
    assert params_of(found["docs"]) == SseConnectionParams("https://docs.example/sse")
    assert params_of(found["files"]).server_params == McpStdioServerParameters(
        "files-server", ("--token", "${env:FILES_TOKEN}", "/srv"), {"A": "${env:A}"}, "/srv"
    )
    assert params_of(found["stock"]).auth == McpClientCredentials("agent", "${env:STOCK_SECRET}", scopes=("read",))
    assert "old" not in found
    said = caplog.text
    for text in (
        "'old' is disabled",
        "alwaysAllow has no effect",
        "timeout has no effect",
        "callbackPort has no effect",
    ):
        assert text in said, text
    assert str(tmp_path / ".mcp.json") in said


def test_a_warning_is_logged_once_for_all_readings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path, {**PUBLIC, "inputs": []})

    class Clerk(Agent):
        name = "clerk"
        model = "offline"

        @tool_set
        def servers(self) -> list[McpToolSet]:
            return mcp_servers_from(path)

    for _ in range(2):
        assert len(read_declaration(Clerk()).toolsets) == 5
    for text in (
        "alwaysAllow has no effect",
        "timeout has no effect",
        "callbackPort has no effect",
        "inputs: not read",
    ):
        assert caplog.text.count(text) == 1, text


def test_comments_and_trailing_commas_are_ignored(tmp_path: Path) -> None:
    text = """\
    // of the editor
    {"mcpServers": {
        /* the shop, "quoted"
           on two lines */
        "shop": {"url": "https://shop.example//mcp", "headers": {"A": "/* a */, }",},}, // one
    },
    }"""
    [found] = mcp_servers_from(written(tmp_path, text))
    assert params_of(found) == StreamableHTTPConnectionParams("https://shop.example//mcp", {"A": "/* a */, }"})


@pytest.mark.parametrize(
    ("server", "place"),
    [
        ({"url": "https://shop.example/mcp", "headers": {"A": "Bearer $SHOP_TOKEN"}}, "headers.A"),
        ({"url": "https://$SHOP_HOST/mcp"}, "url"),
        ({"command": "shop", "env": {"B": "$SHOP_TOKEN"}}, "env.B"),
        ({"command": "shop", "args": ["--token", "$SHOP_TOKEN"]}, "args"),
        ({"command": "shop", "cwd": "/srv/$SHOP_FOLDER"}, "cwd"),
        ({"url": "https://shop.example/mcp", "headers": {"D": "Bearer %SHOP_TOKEN%"}}, "headers.D"),
        ({"url": "https://shop.example/mcp", "headers": {"E": "${{ secrets.SHOP }}"}}, "headers.E"),
        ({"url": "https://shop.example/mcp", "headers": {"F": "Bearer {env:SHOP_TOKEN}"}}, "headers.F"),
        ({"command": "sh", "args": ["-c", "exec shop --home $HOME"]}, ""),
        ({"url": "https://shop.example/mcp", "headers": {"A": "pa$$WORD a$B", "B": "${SHOP_TOKEN}", "C": "$5"}}, ""),
    ],
)
def test_a_variable_without_braces_is_a_warning(
    server: dict[str, Any], place: str, caplog: pytest.LogCaptureFixture
) -> None:
    McpToolSet(server)
    messages = [record.getMessage() for record in caplog.records]
    expected = f"{place} of an MCP server contains a variable in another form than ${{NAME}}, which is passed literally"
    assert [message.startswith(expected) and "SHOP" not in message for message in messages] == [True] * bool(place)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ({"context_servers": {"x": {"source": "custom", "command": "a", "env": {}}}}, {"command": "a", "env": {}}),
        (
            {"mcp": {"x": {"type": "local", "command": ["a", "b"], "enabled": True, "environment": {"C": "d"}}}},
            {"transport": "stdio", "command": "a", "args": ["b"], "env": {"C": "d"}},
        ),
        ({"mcp": {"x": {"type": "remote", "url": "https://a/m"}}}, {"url": "https://a/m"}),
        (
            {"mcpServers": {"x": {"transportType": "sse", "url": "https://a/m", "disabledTools": []}}},
            {"transport": "sse", "url": "https://a/m"},
        ),
        (
            {"mcpServers": {"x": {"isActive": True, "type": "streamableHttp", "baseUrl": "https://a/m", "tags": []}}},
            {"transport": "streamable-http", "url": "https://a/m"},
        ),
        ({"mcpServers": {"x": {"command": "a", "args": None, "url": "", "type": None}}}, {"command": "a"}),
    ],
    ids=["Zed", "OpenCode", "OpenCode, URL", "Cline", "Cherry Studio", "empty fields"],
)
def test_files_of_other_clients_are_understood(file: Any, expected: Any, tmp_path: Path) -> None:
    [found] = mcp_servers_from(written(tmp_path, file))
    assert params_of(found) == params_of(McpToolSet(expected))


def test_the_object_itself_and_python_take_the_same(tmp_path: Path) -> None:
    path = written(tmp_path, {"servers": PUBLIC["mcpServers"], "inputs": []})
    by_file = {of.name: params_of(of) for of in mcp_servers_from(path)}
    agent = tmp_path / "clerk.yaml"
    agent.write_text(json.dumps({"model": "offline", "mcp_servers": PUBLIC}))
    by_object = {of.name: params_of(of) for of in read_declaration(load_agent_yaml(agent)).toolsets}  # type: ignore[attr-defined]
    assert by_file == by_object
    assert len(by_file) == 5


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ({"url": "https://a.example", "ulr": 1}, "unknown key 'ulr' in .*server 'x'.* 'url'"),
        ({"url": "https://a.example", "type": "ws"}, "type: 'ws' is not supported; write stdio"),
        ({"command": "a", "envFile": ".env"}, "envFile: a job does not read this file; write each variable"),
        ({"url": "https://a.example", "excludeTools": ["a"]}, "excludeTools: .*'tools'"),
        ({"url": "https://a.example", "headersHelper": "a.sh"}, "headersHelper: .*file:/path"),
        ({"url": "https://a.example", "oauth": {"clientId": "a"}}, "oauth: a job has no browser.*clientSecret"),
        (
            {"url": "https://a.example", "oauth": {"clientId": "a", "clientSecret": "s3cr3t"}},
            "client_secret is written literally; write ..env:NAME",
        ),
        ({"url": "https://a.example", "headers": {"A": "${input:x}"}}, "headers.A .*input:x.* write ..env:NAME"),
        ({"command": "a", "args": ["${workspaceFolder}/b", "${input:c}"]}, "args .*input:c"),
        ({"url": "https://a.example", "command": "a"}, "either 'command' .* or 'url'"),
        ({}, "either 'command' .* or 'url'"),
        ({"url": "https://a.example", "httpUrl": "https://b.example"}, "httpUrl: .*twice"),
        ({"url": "https://a.example", "args": ["a"]}, "has no 'args'"),
        ({"url": "https://a.example", "disabled": "yes"}, "disabled: is 'yes'; write true or false"),
    ],
)
def test_unusable_key_is_named_with_file_server_and_fix(tmp_path: Path, server: Any, words: str) -> None:
    path = written(tmp_path, {"mcpServers": {"x": server}})
    with pytest.raises(ConfigError, match=words) as caught:
        mcp_servers_from(path)
    assert str(path) in str(caught.value)
    assert "'x'" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)
    agent = tmp_path / "clerk.yaml"
    agent.write_text("model: offline\nmcp_servers: {file: .mcp.json}\n")
    with pytest.raises(ConfigError, match=rf"clerk\.yaml:2:.*{words}"):
        load_agent_yaml(agent)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"mcpServers": {}, // a\n; }', "is not JSON .*line 2 column 1.*correct it"),
        ('{"mcpServers": {"a": {"url": "http://a"}, "a": {"url": "http://b"}}}', "duplicate key 'a'"),
        ('{"theme": "dark"}', "has no servers; write them in the object 'mcpServers'"),
        ("[]", "is a list; write a mapping"),
    ],
)
def test_a_file_that_is_no_configuration_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        mcp_servers_from(written(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.json cannot be read"):
        mcp_servers_from(tmp_path / "nothing.json")


@pytest.mark.row("J8")
async def test_variables_are_resolved_in_the_worker(
    opened: OpenToolSet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SERVER_FILE", str(SERVER))
    monkeypatch.setenv("FOLDER", str(tmp_path))
    monkeypatch.setenv("SHOP_SECRET", "s3cr3t-of-the-shop")
    server = {
        "command": "${PYTHON_OF_SERVER:-" + sys.executable + "}",
        "args": ["${SERVER_FILE}", "${env:KIND:-stdio}"],
        "env": {"SHOP_TOKEN": "${SHOP_SECRET}"},
        "cwd": "${FOLDER}",
        "sandbox": False,
    }
    toolset = await opened(server)
    assert "s3cr3t" not in repr(params_of(toolset))
    assert await toolset.get_tools(ToolContext())


@pytest.mark.parametrize("sandbox", [True, False])
def test_a_copy_of_the_environment_loses_what_the_program_cannot_get(
    sandbox: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PS1", "${chroot:+x} ")
    later = f"LATER_{sandbox}"  # a warning is logged once
    monkeypatch.setenv(later, "${NOT_SET}/x")
    monkeypatch.setenv("LD_DEBUG", "")
    monkeypatch.setenv("BASH_FUNC_x%%", "() { :; }")
    monkeypatch.setenv("SHOP_TOKEN", "s3cr3t-of-the-shop")
    env = os.environ.copy()
    server = StdioConnectionParams(McpStdioServerParameters("shop", env=env), sandbox=sandbox).server_params
    assert server.env["SHOP_TOKEN"] == "s3cr3t-of-the-shop"
    gone = {"PS1", later} | ({"LD_DEBUG", "BASH_FUNC_x%%", "HOME"} if sandbox else set())
    assert gone <= env.keys() - server.env.keys()
    assert {"LD_DEBUG", "HOME"} <= server.env.keys() or sandbox
    assert "s3cr3t" not in caplog.text
    for name in gone:
        assert name in caplog.text
    given = {"LD_DEBUG": "all", "HOME": "/srv", "A": "${input:a}", "SHOP_TOKEN": "x"}
    with pytest.raises(ConfigError, match="A of an MCP server: .*input:a" if not sandbox else "LD_DEBUG.*; .*HOME"):
        if sandbox:
            del given["A"]
        StdioConnectionParams(McpStdioServerParameters("shop", env=given), sandbox=sandbox)


def odd(what: str) -> StdioConnectionParams:
    return StdioConnectionParams(McpStdioServerParameters(sys.executable, (str(ODD), what)), sandbox=False)


async def test_a_bad_tool_takes_no_other_tool_away(opened: OpenToolSet, caplog: pytest.LogCaptureFixture) -> None:
    toolset = await opened(odd("bad tools"), name="shop")
    tools = {of.spec.name: of for of in await toolset.get_tools(ToolContext())}
    assert sorted(tools) == ["good", "last"]
    for name, reason in (
        ("no type", "inputSchema"),
        ("result", "outputSchema"),
        ("number", "inputSchema"),
        ("", "Input should be a valid string"),
        ("hints", "annotations"),
    ):
        (line,) = [r.getMessage() for r in caplog.records if f"the tool {name!r} is omitted" in r.getMessage()]
        assert line.startswith("MCP server shop: ")
        assert reason in line
    result = await tools["last"].call({"text": "abc"}, ToolContext())
    assert not result.is_error
    assert toolset._connection is not None
    toolset._connection.changed()
    assert sorted(of.spec.name for of in await toolset.get_tools(ToolContext())) == ["good", "last"]


@pytest.mark.parametrize("chosen", [["god"], ["no type"], ["x_*"]])
async def test_a_filter_that_selects_nothing_is_an_error(
    chosen: list[str], opened: OpenToolSet, caplog: pytest.LogCaptureFixture
) -> None:
    toolset = McpToolSet(odd("bad tools"), name="shop", tool_filter=chosen)
    with pytest.raises(ExecutionError, match="selects none of its 2 tools") as caught:
        await toolset.initialize()
    assert not getattr(caught.value, "retryable", True)
    reason = {"god": "Did you mean 'good'", "no type": "'no type' is omitted: inputSchema", "x_*": "Tools: good, last"}
    assert reason[chosen[0]] in str(caught.value)
    optional = await opened(odd("bad tools"), name="shop", tool_filter=chosen, required=False)
    assert list(await optional.get_tools(ToolContext())) == []
    assert "selects none of its 2 tools" in caplog.text
