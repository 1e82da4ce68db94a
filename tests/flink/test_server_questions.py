"""A worker that is killed while a question of an MCP server is open."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyflink.common import Types

from flink_skills import Agent, AgentContext, mcp_server
from tests.flink.running import environments
from tests.kit.ports import free_port, listens
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.flink, pytest.mark.row("J7")]

SERVER = Path(__file__).parents[1] / "tools" / "mcp" / "form_server.py"
ORDER = Types.ROW_NAMED(["order"], [Types.STRING()])
ANSWER = Types.ROW_NAMED(["order", "wait_id", "answer"], [Types.STRING(), Types.STRING(), Types.STRING()])


class Buyer(Agent):
    """Buys cups. Writes its worker and its result to ``folder``."""

    name = "buyer"
    model = "offline"

    def __init__(self, url: str, folder: str) -> None:
        self.url = url
        self.folder = folder

    @mcp_server
    def shop(self) -> str:
        return self.url

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        with (Path(self.folder) / "pids").open("a") as file:
            file.write(f"{os.getpid()}\n")
        result = (await ctx.call_tool("buy", item="cups"))["result"]
        (Path(self.folder) / "result").write_text(result)
        return result


def test_a_question_stays_open_when_its_worker_is_killed(tmp_path: Path) -> None:
    killed = tmp_path / "killed"

    def after_the_kill(answer: Any) -> Any:
        wait_until(killed.exists, "the worker to be killed", within=120)
        return answer

    port = free_port()
    with subprocess.Popen([sys.executable, str(SERVER), "http", str(port)]) as server:
        try:
            wait_until(lambda: listens(port) or server.poll() is not None, "the server to listen", within=60)
            env, agents_env = environments()
            answers = env.from_collection([("A-1", "buy", '{"note": "z"}')], ANSWER).map(after_the_kill, ANSWER)
            output = (
                agents_env.from_datastream(env.from_collection([("A-1",)], ORDER), "order")
                .apply(Buyer(f"http://127.0.0.1:{port}/mcp", str(tmp_path)))
                .answers(answers, "order")
            )
            found = []
            with output.to_wait_stream().execute_and_collect() as records:
                for record in records:
                    found.append((record["status"], record["wait_id"]))
                    if record["status"] == "open" and not killed.exists():
                        os.kill(int((tmp_path / "pids").read_text().split()[-1]), signal.SIGKILL)
                        killed.touch()
        finally:
            server.kill()
    (opened, wait_id), ended = found
    assert (opened, ended) == ("open", ("answered", wait_id))
    assert (tmp_path / "result").read_text() == "accept {'size': 3, 'color': 'red', 'note': 'z'}"
    pids = (tmp_path / "pids").read_text().split()
    assert len(set(pids)) == 2, "another worker continued the turn"
