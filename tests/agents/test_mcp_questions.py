"""A question of an MCP server is a wait of the turn that called its tool."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from flink_skills import Agent, AgentContext, mcp_server
from flink_skills.agents import TurnStatus
from tests.kit.agents import OpenAgent
from tests.kit.local import local_environment
from tests.kit.ports import free_port, listens
from tests.kit.waiting import until, wait_until
from tests.kit.waits import WaitBench, WaitOperation

pytestmark = pytest.mark.row("J7")
SERVER = Path(__file__).parents[1] / "tools" / "mcp" / "form_server.py"


@pytest.fixture(params=["stdio", "http", "old-stdio", "old-http"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if request.param.startswith("old"):
        # A server of the package answers the newer handshake as well.
        legacy = property(lambda self: "legacy", lambda self, value: None)
        monkeypatch.setattr("flink_skills.tools.mcp.server_connection.McpConnection._mode", legacy, raising=False)
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

    env = local_environment()
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


# Attempt by attempt


class Buyer(Agent):
    """Buys what the event names. Attempts end with what the tool says."""

    name = "buyer"
    model = "offline"

    def __init__(self, server: Any) -> None:
        self.server = server

    @mcp_server
    def shop(self) -> Any:
        return dict(self.server)

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return (await ctx.call_tool("buy", item=event["item"]))["result"]


def benches(opened: Any, *items: str) -> list[WaitBench]:
    return [WaitBench(opened, key=f'"{item}"', event={"item": item}) for item in items]


def question(bench: WaitBench) -> str:
    (asked,) = [of for of in bench.records() if of["status"] == "open"]
    return str(asked["question"])


async def test_two_keys_at_once_get_their_own_questions_only(
    server: Any, open_agent: OpenAgent, request: pytest.FixtureRequest
) -> None:
    opened = await open_agent(Buyer(server))
    both = benches(opened, "cups", "plates")
    outcomes = await asyncio.gather(*(bench.turn() for bench in both))
    is_named = "old-stdio" not in request.node.callspec.id
    for bench, outcome, item in zip(both, outcomes, ("cups", "plates"), strict=True):
        if outcome.status == TurnStatus.WAITING:
            assert question(bench) == f"How many {item}?"
        else:
            assert not is_named
            assert outcome.outputs[0][1].startswith("decline None")
    waiting = [bench for bench in both if bench.open]
    assert len(waiting) == 2 or not is_named
    for bench in reversed(waiting):
        note = bench.start["event"]["item"][:5]
        outcome = await bench.turn(bench.answer("buy", {"note": note}))
        assert f"'note': '{note}'" in outcome.outputs[0][1]
        assert bench.count(WaitOperation.OPEN) == 1


@pytest.mark.parametrize("server", ["old-stdio"], indirect=True)
async def test_a_question_that_names_no_call_is_not_shown_while_another_call_waits(
    server: Any, open_agent: OpenAgent, caplog: pytest.LogCaptureFixture
) -> None:
    opened = await open_agent(Buyer(server))
    first, second = benches(opened, "cups", "plates")
    assert (await first.turn()).status == TurnStatus.WAITING
    outcome = await second.turn()
    assert outcome.outputs[0][1].startswith("decline None")
    assert second.changes == []
    assert "skills.tool.max-concurrent" in caplog.text
    outcome = await first.turn(first.answer("buy", {"note": "x"}))
    assert outcome.outputs[0][1].startswith("accept {'size': 3")


async def test_a_worker_that_ends_while_a_question_is_open_asks_it_once(server: Any, open_agent: OpenAgent) -> None:
    killed = await open_agent(Buyer(server))
    (bench,) = benches(killed, "cups")
    assert (await bench.turn()).status == TurnStatus.WAITING
    await killed.runtime.close()
    bench.bench = await open_agent(Buyer(server))
    answer = bench.answer("buy", {"note": "x"})
    outcome = await bench.turn(answer, crashes=1)
    assert outcome.outputs[0][1].startswith("accept {'size': 3, 'color': 'red', 'note': 'x'}")
    assert (bench.count(WaitOperation.OPEN), bench.count(WaitOperation.CLOSE)) == (1, 1)
    # The answer is in the journal.
    again = await bench.turn(crashes=2)
    assert again.outputs == outcome.outputs
    assert bench.count(WaitOperation.OPEN) == 1


@pytest.mark.parametrize("server", ["stdio", "old-stdio"], indirect=True)
async def test_a_server_that_ends_while_a_question_is_open_is_called_again_with_the_answer(
    server: Any, open_agent: OpenAgent
) -> None:
    opened = await open_agent(Buyer(server))
    (bench,) = benches(opened, "cups")
    assert (await bench.turn()).status == TurnStatus.WAITING
    programs = [of for of in psutil.Process().children(recursive=True) if str(SERVER) in of.cmdline()]
    assert programs
    for program in programs:
        program.kill()
    await until(lambda: opened.runtime.figures()["mcpReconnects"] == 1)
    outcome = await bench.turn(bench.answer("buy", {"note": "x"}))
    assert outcome.outputs[0][1].startswith("accept {'size': 3, 'color': 'red', 'note': 'x'}")
    assert bench.count(WaitOperation.OPEN) == 1


@pytest.mark.parametrize("server", ["old-stdio", "old-http"], indirect=True)
async def test_a_call_that_is_held_for_too_long_is_made_again(
    server: Any, open_agent: OpenAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flink_skills.tools.mcp.server_messages._PAUSE_SECONDS", 0.0)
    opened = await open_agent(Buyer(server))
    (bench,) = benches(opened, "cups")
    assert (await bench.turn()).status == TurnStatus.WAITING
    # The program has answered nothing since, and another key may be asked.
    (other,) = benches(opened, "plates")
    await other.turn()
    outcome = await bench.turn(bench.answer("buy", {"note": "x"}))
    assert outcome.outputs[0][1] == "accept {'size': 3, 'color': 'red', 'note': 'x'} calls=3"
    assert bench.count(WaitOperation.OPEN) == 1
