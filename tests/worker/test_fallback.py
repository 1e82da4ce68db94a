"""A worker is killed in a turn that a fallback answers: the next worker continues with that model."""

from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills.agents import DeclarativeAgent, decode
from flink_skills.testing import Call, Reply, Rule, ScriptedModelServer
from tests.kit.waiting import wait_until
from tests.worker.bridge import Body, Bridge

pytestmark = pytest.mark.row("K11")

OPTIONS = {"skills.model.max-retries": 1, "skills.model.retry-backoff": "1 ms"}


def agent(first: str, spare: str) -> DeclarativeAgent:
    setups = {
        "main": {"clazz": "openai-compatible:large", "base_url": first, "fallback": ["spare"]},
        "spare": {"clazz": "openai-compatible:small", "base_url": spare},
    }
    return DeclarativeAgent.from_spec({"name": "clerk", "chat_model_setups": setups})


def test_a_turn_of_a_killed_worker_goes_on_with_the_model_that_answered(tmp_path: Path) -> None:
    rules = [
        Rule(Reply(tool_calls=(Call("nothing"),)), tool_results=0),
        Rule(Reply(hang=True), times=1),
        Rule(Reply("from the spare")),
    ]
    with (
        ScriptedModelServer([Rule(Reply(status=503), times=2), Rule(Reply("from the first"))]) as first,
        ScriptedModelServer(rules) as spare,
    ):
        clerk = agent(first.url, spare.url)
        killed = Bridge(tmp_path)
        try:
            killed.open(clerk, **OPTIONS)
            killed.turn(1, "x")
            journal = [_entry(killed), _entry(killed)]
            wait_until(lambda: spare.stats()["requests"] == 2)
        finally:
            killed.stop()
        assert [decode(entry)["r"].get("by") for entry in journal] == ["spare", None]
        (tmp_path / "next").mkdir()
        following = Bridge(tmp_path / "next")
        try:
            following.open(clerk, **OPTIONS)
            following.turn(1, "x", journal=journal, crashes=1)
            assert following.end()["outputs"] == [("", "from the spare")]
            # The first model is well again, and answers the next turn.
            assert (first.stats()["requests"], spare.stats()["requests"]) == (2, 3)
            following.turn(2, "y", number=2)
            assert following.end()["outputs"] == [("", "from the first")]
        finally:
            following.stop()


def _entry(worker: Bridge) -> bytes:
    """The journal entry of the next step."""
    _, body = worker.receive()
    return Body(body, 13).take()
