"""Answers while they arrive, through a turn: who listens hears each piece, and what does not count is taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills import Agent, SkillConfig
from flink_skills.agents import Turn, TurnOutcome, TurnStart, TurnStatus, compile_plan, open_plan
from flink_skills.models import ModelSetup
from flink_skills.telemetry import Activity, Delta, Discarded, Observer, Telemetry, TextDelta
from flink_skills.testing import Reply, Rule, ScriptedModelServer


class Listener(Observer):
    wants_deltas = True

    def __init__(self) -> None:
        self.heard: list[tuple[str, Delta]] = []

    def delta(self, activity: Activity, delta: Delta) -> None:
        self.heard.append((activity.kind, delta))


class Failing(Listener):
    def delta(self, activity: Activity, delta: Delta) -> None:
        raise RuntimeError("no")


class Plain(Agent):
    name = "plain"


async def run(server: ScriptedModelServer, tmp_path: Path, *observers: Observer) -> TurnOutcome:
    config = SkillConfig({"skills.model.retry-backoff": "1 ms"})
    setup = ModelSetup("openai-compatible", "m", base_url=server.url)
    runtime = await open_plan(
        compile_plan(Plain, config=config, model=setup, outputs="record"),
        scratch_dir=str(tmp_path),
        telemetry=Telemetry(observers),
    )
    try:
        start = TurnStart('"k"', 1, b"hello", "hello")
        return await Turn(runtime, start, lambda entry, reset, outputs: None).run()
    finally:
        await runtime.close()


async def test_a_stream_that_breaks_is_withdrawn_and_asked_for_again(tmp_path: Path) -> None:
    listener = Listener()
    rules = [Rule(Reply("one two three", break_after=3), times=1), Rule(Reply("one two three", output_tokens=7))]
    with ScriptedModelServer(rules) as server:
        outcome = await run(server, tmp_path, Failing(), listener)
        assert [body.get("stream") for body in server.requests] == [True, True]
    assert outcome.status == TurnStatus.DONE
    [(_, record)] = outcome.outputs
    assert record["output"] == "one two three"
    assert record["usage"] == {"input_tokens": 10, "output_tokens": 7, "requests": 1}
    kinds = {kind for kind, _ in listener.heard}
    pieces = [delta for _, delta in listener.heard]
    assert kinds == {"chat"}
    assert pieces[0] == TextDelta("one ")
    mark = Discarded(restarted=True)
    assert pieces.count(mark) == 1
    assert pieces[pieces.index(mark) + 1 :] == [TextDelta("one "), TextDelta("two "), TextDelta("three")]


@pytest.mark.parametrize("observers", [(), (Observer(),)], ids=["nobody", "nobody-who-hears"])
async def test_where_nobody_listens_answers_come_whole(observers: tuple[Observer, ...], tmp_path: Path) -> None:
    with ScriptedModelServer([Rule(Reply("hello"))]) as server:
        assert (await run(server, tmp_path, *observers)).status == TurnStatus.DONE
        assert [bool(body.get("stream")) for body in server.requests] == [False]
