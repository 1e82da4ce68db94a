"""Conversations and state per key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyflink.common import Types

from flink_skills import AgentsExecutionEnvironment
from flink_skills.testing import Call, Reply, ScriptedModelServer
from tests.flink.agents import Scripted
from tests.flink.running import collect, flink_environment
from tests.flink.skill_files import write_skill

pytestmark = pytest.mark.flink

EVENTS = [("a", "first of a"), ("b", "first of b"), ("a", "second of a"), ("a", "third of a")]
TYPE = Types.ROW_NAMED(["k", "text"], [Types.STRING(), Types.STRING()])


def users(body: dict[str, Any]) -> list[str]:
    """The texts of the users in a request, one a word of what this test's events say."""
    return [message["content"] for message in body["messages"] if message["role"] == "user"]


def script(body: dict[str, Any]) -> Reply:
    """Loads the skill ``notes`` first in each turn, then says how many events it has seen."""
    if body["messages"][-1]["role"] == "user":
        return Reply(tool_calls=(Call("load_skill", {"name": "notes"}),))
    return Reply(f"{len(users(body))} events; {body['messages'][-1]['content'][:40]}")


@pytest.mark.both_versions
def test_a_conversation_goes_on_over_the_events_of_a_key_or_ends_with_each(
    serve: Callable[..., ScriptedModelServer], tmp_path: Path
) -> None:
    server = serve(script)
    write_skill(tmp_path / "skills", "notes", description="Takes notes.", body="Write it down.")
    env = flink_environment(parallelism=2)
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    agents_env.add_skills_from_paths([str(tmp_path / "skills")])
    events = agents_env.from_datastream(env.from_collection(EVENTS, TYPE), "k")
    outputs = [
        events.apply(Scripted(server.url, name=session, session=session, instructions=session)).to_datastream()
        for session in ("key", "event")
    ]
    records = collect(*outputs)

    def answers(agent: str, key: str) -> list[str]:
        return sorted(r["answer"] for r in records if (r["agent"], r["key"]) == (agent, key))

    loaded, known = answers("key", "a")[0], answers("key", "a")[1:]
    assert loaded.startswith("1 events; ")
    assert "loaded already" not in loaded
    # The skill that the first turn loaded is still there, so its text is not sent again.
    assert known == [f"{n} events; Skill notes is loaded already: follow it" for n in (2, 3)]
    assert len(answers("key", "b")) == 1
    assert answers("key", "b")[0].startswith("1 events; ")
    assert len(answers("event", "a")) == 3
    assert {answer.partition(";")[0] for answer in answers("event", "a")} == {"1 events"}
    assert all("loaded already" not in answer for answer in answers("event", "a"))

    longest = max(server.requests, key=lambda body: len(body["messages"]))
    assert [text.split('"')[-2] for text in users(longest)] == ["first of a", "second of a", "third of a"]
    for body in server.requests:
        assert len({text.split('"')[-2][-1] for text in users(body)}) == 1, "two keys in one conversation"
