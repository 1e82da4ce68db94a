"""A question of an MCP server is a wait of the turn that called its tool."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, AgentContext, AgentsExecutionEnvironment, mcp_server
from tests.kit.ports import free_port, listens
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.row("J7")
SERVER = Path(__file__).parents[1] / "tools" / "mcp" / "form_server.py"


@pytest.fixture(params=["stdio", "http", "old-stdio", "old-http"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if request.param.startswith("old"):
        # A server of the package answers the newer handshake as well.
        legacy = property(lambda self: "legacy", lambda self, value: None)
        monkeypatch.setattr("flink_skills.tools.mcp.connection.McpConnection._mode", legacy, raising=False)
    if request.param.endswith("stdio"):
        yield {"command": sys.executable, "args": [str(SERVER), request.param], "sandbox": False}
        return
    port = free_port()
    process = subprocess.Popen([sys.executable, str(SERVER), request.param, str(port)])
    wait_until(lambda: listens(port) or process.poll() is not None, "the server to listen", within=60)
    yield {"url": f"http://127.0.0.1:{port}/mcp"}
    process.kill()
    process.wait()


def run(server: Any, answers: list[Any], tool: str = "buy", **arguments: Any) -> Any:
    class Buyer(Agent):
        name = "buyer"
        model = "offline"

        @mcp_server
        def shop(self) -> Any:
            return dict(server)

        async def on_event(self, event: Any, ctx: AgentContext) -> Any:
            return (await ctx.call_tool(tool, **arguments))["result"]

    env = AgentsExecutionEnvironment.get_execution_environment()
    given = [{"order": "A-1", "wait_id": tool, "answer": answer} for answer in answers]
    return env.from_list([{"order": "A-1"}], "order").apply(Buyer).answers(given, "order")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"note": "x"}, "accept {'size': 3, 'color': 'red', 'note': 'x'}"),
        (
            {"action": "accept", "content": {"note": "y", "size": "5"}},
            "accept {'size': 5, 'color': 'red', 'note': 'y'}",
        ),
        ('{"note": "z"}', "accept {'size': 3, 'color': 'red', 'note': 'z'}"),
        ("decline", "decline None"),
        ({"action": "cancel"}, "cancel None"),
    ],
)
def test_a_person_answers_by_the_schema_of_the_server(server: Any, answer: Any, said: str) -> None:
    output = run(server, [answer], item="cups")
    (result,) = output.to_list(raise_on_error=True)
    assert result.startswith(said)
    asked, ended = output.to_wait_list()
    assert (asked["name"], asked["question"], ended["status"]) == ("buy", "How many cups?", "answered")


def test_an_answer_that_does_not_fit_is_an_error_record_and_the_wait_goes_on(server: Any) -> None:
    output = run(server, [{"color": "green", "note": "x"}, {"note": "too long"}, {"note": "ok"}], item="cups")
    (result,) = output.to_list()
    assert result.startswith("accept {'size': 3, 'color': 'red', 'note': 'ok'}")
    errors = output.to_list("errors")
    assert len(errors) == 2
    assert "color must be one of" in str(errors[0])
    assert "note has the length 8" in str(errors[1])


def test_without_a_reader_of_waits_it_is_declined(server: Any, caplog: pytest.LogCaptureFixture) -> None:
    (result,) = run(server, [], item="cups").to_list(raise_on_error=True)
    assert result.startswith("decline None")
    assert "the answer to the question of the MCP server shop is 'decline'" in caplog.text


@pytest.mark.parametrize("server", ["old-stdio", "old-http"], indirect=True)
def test_a_request_for_a_url_is_declined(server: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert run(server, [], tool="visit").to_list(raise_on_error=True) == ["decline"]
    assert "a job has no browser that opens a URL" in caplog.text


@pytest.mark.parametrize("server", ["old-stdio", "old-http"], indirect=True)
def test_a_call_that_waits_is_made_once_while_its_worker_lives(server: Any) -> None:
    (result,) = run(server, [{"note": "x"}], item="cups").to_list(raise_on_error=True)
    assert result.endswith("calls=1")
