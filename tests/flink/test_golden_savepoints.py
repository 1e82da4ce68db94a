"""Restore of the savepoints of releases: conversations, state, a running turn, queued events and turns that wait."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flink_skills import AgentContext
from flink_skills.testing import Reply, ScriptedModelServer
from tests.golden import waiting
from tests.golden.agents import HELD, Keeper, answer, said
from tests.golden.make import KEEP
from tests.golden.restore import SAVEPOINTS, WAITS, copied, pairs, restored, savepoints, write_skills

pytestmark = [pytest.mark.flink, pytest.mark.both_versions, pytest.mark.each_python]

NEW_EVENTS = [("idle", "x", "third"), ("idle", "y", "more"), ("hot", "x", "new"), ("fresh", "", "one")]


def test_there_is_one_for_each_flink() -> None:
    for folder in (SAVEPOINTS, WAITS):
        found = [json.loads((of / "manifest.json").read_text()) for of in savepoints(folder)]
        assert {(of["release"], of["flink"][:3]) for of in found} >= {("0.1.0", "2.2"), ("0.1.0", "2.3")}
        assert sum(file.stat().st_size for file in folder.rglob("*")) < 100_000


@pytest.mark.parametrize(("savepoint", "backend"), pairs(SAVEPOINTS))
def test_it_is_restored(
    savepoint: Path, backend: str, serve: Callable[..., ScriptedModelServer], tmp_path: Path
) -> None:
    place = copied(savepoint, tmp_path)
    asked: list[tuple[str, int]] = []

    def reply(body: dict[str, Any]) -> Reply:
        asked.append((said(body)[-1], sum(message["role"] == "tool" for message in body["messages"])))
        return answer(body)

    server = serve(reply)
    records = restored(Keeper(server.url, write_skills(tmp_path)), place, NEW_EVENTS, {"state.backend.type": backend})

    def of(key: str) -> list[tuple[Any, ...]]:
        found = sorted((r for r in records if r["key"] == key), key=lambda record: record["turn"])
        return [(r["turn"], r["chat"], r["looked"], r["answer"], r["texts"][-1], len(r["texts"])) for r in found]

    assert [record for record in records if "error" in record] == []
    assert of("hot") == [
        (1, "x", "HELD", "held", "held", 1),
        (2, "x", "THEN", "held then", "then", 2),
        (3, "y", "LAST", "last", "last", 3),
        (4, "x", "NEW", "held then new", "new", 4),
    ]
    assert of("idle") == [
        (4, "x", "THIRD", "first second third", "third", 4),
        (5, "y", "MORE", "other more", "more", 5),
    ]
    assert of("fresh") == [(1, "", "ONE", "one", "one", 1)]
    # The turn that was under way had loaded the skill, and asks from there on.
    assert [number for text, number in asked if text == HELD] == [1]


class Careful(Keeper):
    """The agent of a later version, which asks a person."""

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        found = await super().on_event(event, ctx)
        return {**found, "vote": await ctx.wait("vote")} if event["text"] == "new" else found


def test_a_job_gets_answers_after_a_savepoint_without_them(
    serve: Callable[..., ScriptedModelServer], tmp_path: Path
) -> None:
    place = copied(savepoints(SAVEPOINTS)[0], tmp_path)
    agent = Careful(serve(answer).url, write_skills(tmp_path))

    def run(wait_id: str) -> list[Any]:
        return restored(agent, place, NEW_EVENTS, {}, answers=[("hot", wait_id, "yes")], waits=True)

    # The question has the same id in each run.
    (wait_id,) = {record["wait_id"] for record in run("vote") if "wait_id" in record}
    records = [record for record in run(wait_id) if "wait_id" not in record]
    assert [record for record in records if "error" in record] == []
    hot = sorted((record for record in records if record["key"] == "hot"), key=lambda record: record["turn"])
    assert [(record["answer"], record.get("vote")) for record in hot] == [
        ("held", None),
        ("held then", None),
        ("last", None),
        ("held then new", "yes"),
    ]


@pytest.mark.parametrize(("savepoint", "backend"), pairs(WAITS))
def test_turns_that_wait_are_restored(savepoint: Path, backend: str, tmp_path: Path) -> None:
    place = copied(savepoint, tmp_path)
    steps = tmp_path / "steps"
    yes = json.dumps({"approved": True, "by": "eve"})
    # Waits that are open in the savepoint accept their names.
    answers = [("one", "approval", yes), ("two", "legal", yes), ("tool", "approval", yes), ("queue", "approval", yes)]

    def run(*more: tuple[str, str, str]) -> list[Any]:
        steps.unlink(missing_ok=True)
        events = [(waiting.EARLY, "ask", "scarf"), ("fresh", "refund", "belt")]
        options = {"state.backend.type": backend, "skills.waits.keep": KEEP}
        fields = ["key", "kind", "text"]
        return restored(waiting.Asker(steps), place, events, options, fields, [*answers, *more], waits=True)

    # The questions after the restore have the same ids in each run.
    ids = {record["key"]: record["wait_id"] for record in run() if record.get("status") == "open"}
    no = json.dumps({"approved": False, "reason": "no"})
    records = run(("queue", ids["queue"], yes), (waiting.EARLY, ids[waiting.EARLY], yes), ("fresh", ids["fresh"], no))
    results = {(record["key"], record["turn"]): record["result"] for record in records if "result" in record}
    assert results == {
        ("one", 1): "True by eve",
        ("queue", 1): "True by eve",
        ("queue", 2): "True by eve",
        ("two", 1): ["bob", "eve"],
        ("nap", 1): "slept",
        ("tool", 1): "refunded gloves",
        ("late", 1): "wait 'approval' had no answer in time",
        (waiting.EARLY, 1): "True by eve",
    }
    # The turn of "fresh" fails with the refusal. An answer with a name that no question had is not kept any more.
    errors = {record["key"]: record["error"] for record in records if "error" in record}
    assert errors.keys() == {"fresh", waiting.EARLY}
    assert "the call was not approved: no" in errors["fresh"]
    assert "the answer to wait 'approval' is not used" in errors[waiting.EARLY]
    # No step of the savepoint runs again.
    assert sorted(steps.read_text().splitlines()) == [
        "looked at bag",
        "looked at belt",
        "looked at scarf",
        "refunded gloves",
    ]
