"""The event stream of a job while a model writes, and a worker that is killed in the middle."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from pyflink.common import Types

from flink_skills import (
    AgentContext,
    AgentEvent,
    StreamingFunctionTool,
    ToolContext,
    tool_set,
)
from flink_skills.testing import Call, Reply, Rule, ScriptedModelServer
from flink_skills.tools import StreamedArguments
from tests.flink.agents import Scripted
from tests.flink.running import environments

pytestmark = pytest.mark.flink

TEXT = "Dear Ann, the order is on its way. " * 4
TYPE = Types.ROW_NAMED(["k"], [Types.STRING()])


class Clerk(Scripted):
    """Writes letters; notes in ``folder`` where it runs and what its tool did."""

    name = "clerk"

    def __init__(self, url: str, folder: str) -> None:
        super().__init__(url)
        self.folder = folder

    def note(self, file: str, line: str) -> None:
        with Path(self.folder, file).open("a") as notes:
            notes.write(line + "\n")

    @tool_set
    def at_hand(self) -> list[Any]:
        return [StreamingFunctionTool(self.send, self.preview, name="send")]

    def send(self, text: str, context: ToolContext) -> str:
        """Send a letter."""
        self.note("sent", context.call_id)
        return "sent"

    async def preview(self, streamed: StreamedArguments, context: ToolContext) -> None:
        self.note("previews", f"{context.call_id} {os.getpid()}")

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        self.note("pids", str(os.getpid()))
        return await ctx.chat("Write.")


@pytest.mark.both_versions
@pytest.mark.row("J21")
def test_pieces_arrive_while_they_are_written_and_a_kill_is_marked(tmp_path: Path) -> None:
    call = Call("send", {"text": TEXT})
    stalled = Rule(Reply("I write.", tool_calls=(call,), stall_after=9), last_role="user", times=1)
    rules = [stalled, Rule(Reply("I write.", tool_calls=(call,)), last_role="user"), Rule(Reply("Done."))]
    events: list[AgentEvent] = []
    with ScriptedModelServer(rules) as server:
        env, agents_env = environments({"skills.events.deltas": "true", "execution.buffer-timeout": "10 ms"})
        output = agents_env.from_datastream(env.from_collection([("a",)], TYPE), "k").apply(
            Clerk(server.url, str(tmp_path))
        )
        with output.to_event_stream().execute_and_collect() as records:
            for event in records:
                events.append(event)
                if event.action == "arguments" and not (tmp_path / "killed").exists():
                    # The answer never comes to its end, and here is what was written of it.
                    (tmp_path / "killed").touch()
                    os.kill(int((tmp_path / "pids").read_text().split()[-1]), signal.SIGKILL)

    of_turn = [event for event in events if event.turn is not None]
    said = [(event.kind, event.action, event.attempt) for event in of_turn]
    mark = said.index(("delta", "restarted", 2))
    assert set(said[:mark]) == {("delta", "text", 1), ("delta", "arguments", 1)}
    assert list(dict.fromkeys(kind for kind, *_ in said[mark:])) == ["delta", "chat", "tool", "turn"]
    again = [event for event in of_turn[mark:] if event.action == "arguments"]
    assert json.loads("".join(json.loads(event.detail)["arguments"] for event in again)) == {"text": TEXT}
    assert len({event.id for event in events}) == len(events)
    (sent,) = (tmp_path / "sent").read_text().split()
    previews = {tuple(line.split()) for line in (tmp_path / "previews").read_text().splitlines()}
    pids = (tmp_path / "pids").read_text().split()
    # Both attempts showed the same call, each in its own process.
    assert previews == {(sent, pid) for pid in pids} and len(set(pids)) == 2
