"""Servers that hang, lie, flood and die: neither the worker nor another server suffers by it."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills import ConfigError, ExecutionError, ToolContext
from flink_skills.tools.dynamic import ToolPool
from flink_skills.tools.mcp import (
    McpStdioServerParameters,
    McpToolSet,
    StdioConnectionParams,
    StreamableHTTPConnectionParams,
)
from tests.kit.waiting import MARGIN, until
from tests.tools.mcp.conftest import OpenToolSet
from tests.tools.mcp.test_hostile_http import Odd
from tests.tools.mcp.test_servers import tools_of

ODD = Path(__file__).with_name("odd_server.py")


def odd(*words: str, **arguments: Any) -> StdioConnectionParams:
    program = McpStdioServerParameters(sys.executable, (str(ODD), *words))
    return StdioConnectionParams(program, sandbox=False, **arguments)


async def said(toolset: McpToolSet, tool: str, text: str = "") -> Any:
    return await (await tools_of(toolset))[tool].call({"text": text}, ToolContext())


def exists(path: Path) -> Callable[[], Awaitable[bool]]:
    return lambda: asyncio.to_thread(path.exists)


@pytest.mark.row("J7", "J8")
async def test_an_optional_server_that_says_nothing_holds_nobody_up(opened: OpenToolSet, tmp_path: Path) -> None:
    file = tmp_path / "starts.txt"
    before = asyncio.get_running_loop().time()
    toolset = await opened(odd("silent", str(file), timeout=0.5), required=False)
    assert asyncio.get_running_loop().time() - before < 0.5 + MARGIN
    assert await tools_of(toolset) == {}
    file.with_suffix(".speak").touch()
    await until(lambda: tools_of(toolset))
    assert (await said(toolset, "count", "abc")).content == "3"
    assert len(file.read_text().split()) > 1, "each attempt has a process of its own"


@pytest.mark.row("J7", "J8")
async def test_an_older_server_that_does_not_answer_what_it_does_not_know_is_reached(opened: OpenToolSet) -> None:
    toolset = await opened(odd("no discovery", timeout=1.0))
    await until(lambda: tools_of(toolset))
    assert (await said(toolset, "count", "abc")).content == "3"


@pytest.mark.row("J7", "J8")
@pytest.mark.parametrize(
    ("what", "count", "told"),
    [
        ("huge list", 1_000, "the server's list of tools is too long: the tools after the first 1,000 are omitted"),
        (
            "endless pages",
            100,
            "the server's list of tools has more than 100 pages: the tools on later pages are omitted",
        ),
        ("long words", 1, "the tool 'wordy' is omitted: its definition has 100,"),
        ("long enums", 20, ""),
        ("bad names", 1, "a tool without a name is omitted"),
        ("bad names", 1, "the tool 'a:b' is omitted: another tool has the name 'a_b'"),
        ("bad schemas", 1, "the tool 'kind' is omitted: model providers reject its schema: 'sting' is not valid"),
    ],
)
async def test_lists_have_limits(
    opened: OpenToolSet, caplog: pytest.LogCaptureFixture, what: str, count: int, told: str
) -> None:
    toolset = await opened(odd(what))
    assert len(await tools_of(toolset)) == count
    assert told in caplog.text


@pytest.mark.row("J7", "J8")
async def test_garbage_between_answers_is_passed_over(opened: OpenToolSet) -> None:
    toolset = await opened(odd("garbage"))
    for text in ("a", "ab"):
        assert (await said(toolset, "count", text)).content == str(len(text))


@pytest.mark.row("J7", "J8")
@pytest.mark.parametrize("tool", ["nonsense", "wrong"])
async def test_a_senseless_answer_is_an_error_of_that_call_alone(opened: OpenToolSet, tool: str) -> None:
    toolset = await opened(odd("nothing"))
    pid = (await said(toolset, "pid")).content
    answer, other = await asyncio.gather(said(toolset, tool), said(toolset, "count", "abc"))
    assert answer.is_error
    assert not answer.retryable
    assert f"{tool}: the MCP server" in answer.content
    assert "gave no usable answer: ValidationError" in answer.content
    assert other.content == "3"
    assert (await said(toolset, "pid")).content == pid, "the connection stays"


@pytest.mark.row("J7", "J8")
async def test_a_storm_of_changes_is_a_few_looks(opened: OpenToolSet) -> None:
    toolset = await opened(odd("storm"))
    await asyncio.sleep(0)

    async def lists() -> int:
        return int((await said(toolset, "lists")).content)

    async def listed_again() -> bool:
        return await lists() >= 2

    await until(listed_again)
    assert await lists() <= 4, "one at once, and one after 1 s"


@pytest.mark.row("J7", "J8")
async def test_a_change_during_the_first_look_is_not_missed(opened: OpenToolSet) -> None:
    toolset = await opened(odd("early"))

    async def listed_again() -> bool:
        return int((await said(toolset, "lists")).content) == 2

    await until(listed_again)


@pytest.mark.row("J7", "J8")
async def test_a_server_that_works_is_not_taken_for_lost(opened: OpenToolSet) -> None:
    toolset = await opened(odd("nothing", timeout=2.0), interval=0.2)
    await until(lambda: tools_of(toolset))
    pid = (await said(toolset, "pid")).content
    assert (await said(toolset, "work", "5")).content == "done"
    assert (await said(toolset, "pid")).content == pid


@pytest.mark.row("J7", "J8")
async def test_a_server_that_hangs_while_nobody_asks_is_started_again(opened: OpenToolSet, tmp_path: Path) -> None:
    file = tmp_path / "starts.txt"
    toolset = await opened(odd("nothing", str(file), timeout=2.0), interval=0.2)
    await until(lambda: tools_of(toolset))
    pid = (await said(toolset, "pid")).content
    asked = asyncio.ensure_future(said(toolset, "work", "60"))
    await until(exists(file.with_suffix(".begun")))
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)

    async def another() -> bool:
        return toolset.figures() == {"mcpServers": 1, "mcpServersDown": 0, "mcpReconnects": 1}

    await until(another)
    assert (await said(toolset, "pid")).content != pid


@pytest.mark.row("J7", "J8")
async def test_a_server_that_ends_each_time_is_started_less_and_less_often(opened: OpenToolSet, tmp_path: Path) -> None:
    file = tmp_path / "starts.txt"
    begun = time.monotonic()
    toolset = await opened(odd("short life", str(file)), interval=0.05)
    await until(lambda: len(file.read_text().split()) >= 4, lambda: f"the fourth start: {file.read_text()!r}")
    # After 0.25 to 0.5 s, 0.5 to 1 s, 1 to 2 s.
    assert time.monotonic() - begun >= 1.75
    await toolset.close()


@pytest.mark.row("J7", "J8")
async def test_what_a_program_says_without_end_does_not_fill_the_log(
    opened: OpenToolSet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "flink_skills.mcp")
    toolset = await opened(odd("nothing"), name="loud")
    await said(toolset, "say", "\x1b[31mred")

    async def cut() -> bool:
        return "MCP server loud says more, which is left out" in caplog.text

    await until(cut)
    lines = [record.message for record in caplog.records if " says: " in record.message]
    assert len(lines) == 100
    assert lines[0] == "MCP server loud says: \ufffd[31mred"


@pytest.mark.row("J7", "J8")
async def test_a_cancelled_call_of_a_server_that_reads_nothing_ends_soon(opened: OpenToolSet, tmp_path: Path) -> None:
    file = tmp_path / "starts.txt"
    toolset = await opened(odd("nothing", str(file)))
    work = asyncio.ensure_future(said(toolset, "work", "200"))
    await until(exists(file.with_suffix(".begun")))
    # More than the pipe holds, so that nothing more can be written either.
    stuck = [asyncio.ensure_future(said(toolset, "count", "x" * 300_000)) for _ in range(4)]
    done, _ = await asyncio.wait(stuck, timeout=0.2)
    assert not done
    begun = asyncio.get_running_loop().time()
    for task in (work, *stuck):
        task.cancel()
    await asyncio.gather(work, *stuck, return_exceptions=True)
    assert asyncio.get_running_loop().time() - begun < MARGIN


@pytest.mark.row("J7", "J8")
@pytest.mark.parametrize(("rows", "whole"), [(100, True), (20_000, False)])
async def test_a_large_structured_result_is_given_as_text_alone(opened: OpenToolSet, rows: int, whole: bool) -> None:
    result = await said(await opened(odd("nothing")), "large", str(rows))
    assert result.content.startswith('{"rows": ["xxx')
    assert (result.value == {"rows": ["x" * 100] * rows}) is whole
    assert whole or result.value is None


@pytest.mark.row("J7", "J8")
@pytest.mark.parametrize("tool", ["pattern", "twice", "remote"])
async def test_a_schema_of_results_holds_nobody_up_and_reads_nothing(opened: OpenToolSet, tool: str) -> None:
    result = await said(await opened(odd("schemas of results")), tool)
    assert result.value == {"a": "a" * 60 + "!"}


@pytest.mark.row("J7", "J8")
async def test_a_server_that_reads_no_answers_is_ended(opened: OpenToolSet) -> None:
    answer = await said(await opened(odd("nothing")), "pings", "1000000")
    assert answer.is_error
    assert "sends requests and does not read the answers to 256 of them" in answer.content


@pytest.mark.row("J7", "J8")
@pytest.mark.parametrize(("count", "is_error"), [(100_000, False), (500_000, True)])
async def test_an_answer_of_very_many_values_is_refused(opened: OpenToolSet, count: int, is_error: bool) -> None:
    answer = await said(await opened(odd("nothing")), "many", str(count))
    assert answer.is_error is is_error
    assert ("a message has more than 500,000 objects and lists" in answer.content) is is_error


@pytest.mark.row("J7", "J8")
async def test_an_endless_list_of_resources_has_a_limit(opened: OpenToolSet) -> None:
    listed = await said(await opened(odd("nothing"), resources=True), "list_resources")
    assert [found["name"] for found in listed.value] == ["r0", "r1", "r2"]


@pytest.mark.row("J7", "J8")
async def test_descriptions_have_no_hidden_characters(opened: OpenToolSet) -> None:
    tools = await tools_of(await opened(odd("hidden")))
    seen = tools["seen"].spec
    assert seen.description == "Seen.[2J"
    assert seen.parameters["properties"]["a"]["description"] == "Atext."
    assert tools["unseen"].spec.description == "unseen"


@pytest.mark.row("J7", "J8")
async def test_names_of_arguments_have_no_hidden_characters(
    opened: OpenToolSet, caplog: pytest.LogCaptureFixture
) -> None:
    """The server expects them as they are, so they cannot be cleaned."""
    tools = await tools_of(await opened(odd("hidden")))
    assert {name for name in tools if name.startswith("named")} == {"named_9"}
    left_out = [record.getMessage() for record in caplog.records if "is omitted" in record.getMessage()]
    assert len(left_out) == 9
    assert "the tool 'named 0' is omitted: the schema contains the name 'a\\u202e', which has hidden" in left_out[0]
    assert all(text.isascii() and text.isprintable() for text in left_out)


@pytest.mark.row("J7", "J8")
@pytest.mark.parametrize(("argument", "value"), [("prefix", "shop."), ("prefix", "x" * 50), ("interval", 0)])
def test_arguments_that_cannot_be_are_refused(argument: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=argument):
        McpToolSet("http://shop/mcp", **{argument: value})


NOWHERE = "http://127.0.0.1:9/mcp"


def program(code: str, **arguments: Any) -> StdioConnectionParams:
    return StdioConnectionParams(McpStdioServerParameters(sys.executable, ("-c", code)), sandbox=False, **arguments)


async def failure(params: Any, **arguments: Any) -> ExecutionError:
    toolset = McpToolSet(params, name="shop", **arguments)
    with pytest.raises(ExecutionError) as caught:
        await toolset.initialize()
    assert toolset.figures() == {}, "nothing of it is left"
    return caught.value


@pytest.mark.row("J7")
async def test_a_program_that_fails_is_named_with_its_exit_code_and_its_stderr() -> None:
    error = await failure(program("import sys; print('a\\nno module named shop', file=sys.stderr); sys.exit(7)"))
    text = str(error)
    assert text.startswith(f"the MCP server 'shop' (program {sys.executable}) cannot be started: ")
    assert "the program ended with exit code 7" in text
    assert "its stderr ends with: a / no module named shop" in text
    assert "required" in text
    assert not error.retryable


@pytest.mark.row("J7")
async def test_a_program_that_a_signal_ends_is_named_with_it() -> None:
    assert "signal 9" in str(await failure(program("import os; os.kill(os.getpid(), 9)")))


@pytest.mark.row("J7")
async def test_a_program_that_is_missing_is_named() -> None:
    params = StdioConnectionParams(McpStdioServerParameters("no-such-program"), sandbox=False)
    error = await failure(params)
    assert "there is no program 'no-such-program' on this machine" in str(error)
    assert not error.retryable


@pytest.mark.row("J7")
async def test_secrets_in_stderr_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_SECRET", "s3cr3t-of-the-shop")
    code = "import os, sys; sys.exit('bad token ' + os.environ['TOKEN'])"
    found = McpStdioServerParameters(sys.executable, ("-c", code), {"TOKEN": "${env:SHOP_SECRET}"})
    text = str(await failure(StdioConnectionParams(found, sandbox=False)))
    assert "bad token" in text
    assert "s3cr3t" not in text


@pytest.mark.row("J7")
async def test_a_server_that_cannot_be_reached_may_be_there_later() -> None:
    error = await failure(NOWHERE)
    assert f"the MCP server 'shop' ({NOWHERE}) cannot be started: ConnectError" in str(error)
    assert error.retryable


@pytest.fixture
def server() -> Iterator[Odd]:
    with Odd() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.mark.row("J7")
@pytest.mark.parametrize(("status", "retryable"), [(401, False), (404, False), (503, True)])
async def test_the_status_of_a_server_that_refuses_is_named(server: Odd, status: int, retryable: bool) -> None:
    server.status = status
    error = await failure(server.url)
    assert f"HTTP {status}" in str(error)
    assert error.retryable is retryable


async def test_a_refused_token_names_its_variable(server: Odd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "secret-1234")
    server.status = 401
    params = StreamableHTTPConnectionParams(server.url, {"Authorization": "Bearer ${env:SHOP_TOKEN:-none}"})
    error = await failure(params)
    assert "the server does not accept the token in headers: check SHOP_TOKEN. Start it" in str(error)
    assert "secret-1234" not in str(error)


async def test_https_at_a_port_without_tls(server: Odd) -> None:
    error = await failure(server.url.replace("http:", "https:"))
    assert "the server does not use TLS on this port: write http:// instead of https://" in str(error)


@pytest.mark.row("J7")
async def test_a_silent_server_fails_after_its_timeout() -> None:
    error = await failure(program("import time; time.sleep(600)", timeout=0.2))
    assert "the server did not answer within 0.6 s" in str(error)


@pytest.mark.row("J7")
async def test_an_older_server_is_no_failure() -> None:
    params = McpStdioServerParameters(sys.executable, (str(ODD), "no discovery"))
    toolset = McpToolSet(StdioConnectionParams(params, sandbox=False, timeout=1.0))
    await toolset.initialize()
    try:
        assert await toolset.get_tools(ToolContext())
    finally:
        await toolset.close()


@pytest.mark.row("J7")
async def test_an_optional_server_is_a_warning_with_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    params = program("import sys; sys.exit('no module named shop')")
    toolset = McpToolSet(params, name="shop", required=False)
    await toolset.initialize()
    try:
        assert toolset.figures()["mcpServersDown"] == 1
    finally:
        await toolset.close()
    (record,) = [one for one in caplog.records if "cannot be reached" in one.getMessage()]
    assert record.levelname == "WARNING"
    assert "the program ended with exit code 1" in record.getMessage()
    assert "no module named shop" in record.getMessage()


@pytest.mark.row("J7")
async def test_a_pool_with_a_required_server_does_not_start() -> None:
    ok = McpToolSet(
        StdioConnectionParams(McpStdioServerParameters(sys.executable, (str(ODD), "nothing")), sandbox=False)
    )
    pool = ToolPool([ok, McpToolSet(NOWHERE, name="shop")], owner="clerk")
    with pytest.raises(ExecutionError, match="agent clerk: the MCP server 'shop'"):
        await pool.initialize()
    assert ok.figures() == {}, "those that had started are closed"
