"""A declared server that cannot start: a required one fails the open with its cause, an optional one is reported."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from flink_skills import ExecutionError, ToolContext
from flink_skills.tools.dynamic import ToolPool
from flink_skills.tools.mcp import McpStdioServerParameters, McpToolSet, StdioConnectionParams
from tests.tools.mcp.test_hostile import ODD
from tests.tools.mcp.test_hostile_http import Odd

pytestmark = pytest.mark.row("J7")
NOWHERE = "http://127.0.0.1:9/mcp"


def program(code: str, **arguments: Any) -> StdioConnectionParams:
    return StdioConnectionParams(McpStdioServerParameters(sys.executable, ("-c", code)), sandbox=False, **arguments)


async def failure(params: Any, **arguments: Any) -> ExecutionError:
    toolset = McpToolSet(params, name="shop", **arguments)
    with pytest.raises(ExecutionError) as caught:
        await toolset.initialize()
    assert toolset.figures() == {}, "nothing of it is left"
    return caught.value


async def test_a_program_that_fails_is_named_with_its_exit_code_and_its_stderr() -> None:
    error = await failure(program("import sys; print('a\\nno module named shop', file=sys.stderr); sys.exit(7)"))
    text = str(error)
    assert text.startswith(f"the MCP server 'shop' (program {sys.executable}) cannot be started: ")
    assert "the program ended with exit code 7" in text
    assert "its stderr ends with: a / no module named shop" in text
    assert "required" in text
    assert not error.retryable


async def test_a_program_that_a_signal_ends_is_named_with_it() -> None:
    assert "signal 9" in str(await failure(program("import os; os.kill(os.getpid(), 9)")))


async def test_a_program_that_is_missing_is_named() -> None:
    params = StdioConnectionParams(McpStdioServerParameters("no-such-program"), sandbox=False)
    error = await failure(params)
    assert "there is no program 'no-such-program' on this machine" in str(error)
    assert not error.retryable


async def test_secrets_in_stderr_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_SECRET", "s3cr3t-of-the-shop")
    code = "import os, sys; sys.exit('bad token ' + os.environ['TOKEN'])"
    found = McpStdioServerParameters(sys.executable, ("-c", code), {"TOKEN": "${env:SHOP_SECRET}"})
    text = str(await failure(StdioConnectionParams(found, sandbox=False)))
    assert "bad token" in text
    assert "s3cr3t" not in text


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


@pytest.mark.parametrize(("status", "retryable"), [(401, False), (404, False), (503, True)])
async def test_the_status_of_a_server_that_refuses_is_named(server: Odd, status: int, retryable: bool) -> None:
    server.status = status
    error = await failure(server.url)
    assert f"HTTP {status}" in str(error)
    assert error.retryable is retryable


async def test_a_silent_server_fails_after_its_timeout() -> None:
    error = await failure(program("import time; time.sleep(600)", timeout=0.2))
    assert "the server did not answer within 0.6 s" in str(error)


async def test_an_older_server_is_no_failure() -> None:
    params = McpStdioServerParameters(sys.executable, (str(ODD), "no discovery"))
    toolset = McpToolSet(StdioConnectionParams(params, sandbox=False, timeout=1.0))
    await toolset.initialize()
    try:
        assert await toolset.get_tools(ToolContext())
    finally:
        await toolset.close()


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


async def test_a_pool_with_a_required_server_does_not_start() -> None:
    ok = McpToolSet(
        StdioConnectionParams(McpStdioServerParameters(sys.executable, (str(ODD), "nothing")), sandbox=False)
    )
    pool = ToolPool([ok, McpToolSet(NOWHERE, name="shop")], owner="clerk")
    with pytest.raises(ExecutionError, match="agent clerk: the MCP server 'shop'"):
        await pool.initialize()
    assert ok.figures() == {}, "those that had started are closed"
