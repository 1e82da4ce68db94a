"""The event stream while models write: pieces as they arrive, from both providers' streams over loopback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flink_skills import (
    Agent,
    AgentEvent,
    ResourceDescriptor,
    SkillConfig,
    chat_model_setup,
    tool,
)
from flink_skills.agents import Turn, TurnOutcome, TurnStart, TurnStatus, compile_plan, open_plan
from flink_skills.models import ModelSetup
from flink_skills.telemetry import Activity, Delta, Discarded, Observer, Telemetry, TextDelta
from flink_skills.testing import Call, Reply, Rule, ScriptedModelServer
from tests.kit.local import local_environment

PROVIDERS = ["openai-compatible", "anthropic"]
TEXT = "Dear Ann, the order is on its way. " * 4
ON = {"skills.events.deltas": "true", "skills.model.retry-backoff": "1 ms"}


class Clerk(Agent):
    name = "clerk"
    url = ""
    provider = ""

    @chat_model_setup
    def model(self) -> ResourceDescriptor:
        clazz = f"{self.provider}:m"
        return ResourceDescriptor(clazz=clazz, base_url=self.url, api_key_env="TEST_MODEL_KEY")

    @tool
    def send(self, text: str) -> str:
        """Send a letter."""
        return "sent"


@pytest.fixture(params=PROVIDERS)
def ask(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[AgentEvent]]:
    monkeypatch.setenv("TEST_MODEL_KEY", "k")
    monkeypatch.setattr(Clerk, "provider", request.param)

    def ask(rules: list[Rule], options: dict[str, str] = ON) -> list[AgentEvent]:
        with ScriptedModelServer(rules) as server:
            monkeypatch.setattr(Clerk, "url", server.origin if request.param == "anthropic" else server.url)
            events = local_environment(options).from_list(["hello"]).apply(Clerk).to_event_list()
            streams = [body.get("stream", False) for body in server.requests]
        assert set(streams) == {"skills.events.deltas" in options}
        return events

    return ask


def pieces(events: list[AgentEvent]) -> list[tuple[Any, ...]]:
    """Step and action of each piece, equal ones that follow each other joined, with what they hold together."""
    found: list[tuple[Any, ...]] = []
    for event in events:
        if event.kind != "delta":
            continue
        detail = json.loads(event.detail) if event.detail else {}
        held = detail.get(event.action, "")
        assert event.output_size == (len(held) or None)
        if found and found[-1][:3] == (event.step, event.action, event.tool):
            found[-1] = (*found[-1][:3], found[-1][3] + held)
        else:
            found.append((event.step, event.action, event.tool, held))
    return found


@pytest.mark.row("J21", "J35")
def test_texts_and_arguments_come_in_pieces_before_their_answer(ask: Callable[..., list[AgentEvent]]) -> None:
    rules = [
        Rule(Reply("I write.", tool_calls=(Call("send", {"text": TEXT}),)), last_role="user"),
        Rule(Reply(TEXT, piece_latency=0.02)),
    ]
    events = ask(rules, {**ON, "skills.events.delta-interval": "0 ms"})
    assert sum(event.kind == "delta" for event in events) > 6
    first, second, third = pieces(events)
    assert first == ("chat#0/m0", "text", None, "I write.")
    assert second[:3] == ("chat#0/m0", "arguments", "send")
    assert json.loads(second[3]) == {"text": TEXT}
    assert third == ("chat#0/m1", "text", None, TEXT)
    kinds = [event.kind for event in events if event.turn is not None]
    assert list(dict.fromkeys(kinds)) == ["delta", "chat", "tool", "turn"]
    assert kinds.index("chat") > 1 and kinds[-3:] == ["delta", "chat", "turn"]
    one = next(event for event in events if event.kind == "delta")
    assert (one.agent, one.turn, one.attempt, one.name, one.model) == ("clerk", 1, 1, "model", "model")
    assert one.status == "ok"
    assert len({event.id for event in events}) == len(events)


@pytest.mark.row("J21", "J35")
def test_pieces_are_joined_for_a_while(ask: Callable[..., list[AgentEvent]]) -> None:
    events = ask([Rule(Reply(TEXT))], {**ON, "skills.events.delta-interval": "1 min"})
    assert [event.output_size for event in events if event.kind == "delta"] == [len(TEXT)]


@pytest.mark.row("J21", "J35")
def test_nobody_has_pieces_who_did_not_ask_for_them(ask: Callable[..., list[AgentEvent]]) -> None:
    events = ask([Rule(Reply(TEXT))], {"skills.events.content": "full"})
    assert {event.kind for event in events} == {"open", "chat", "turn"}


@pytest.mark.row("J21", "J35")
def test_a_stream_that_breaks_is_withdrawn_and_restarted(ask: Callable[..., list[AgentEvent]]) -> None:
    rules = [Rule(Reply(TEXT, break_after=8), times=1), Rule(Reply(TEXT))]
    events = ask(rules, {**ON, "skills.events.delta-interval": "0 ms"})
    (_, action, _, half), (_, mark, _, _), (_, again, _, whole) = pieces(events)
    assert (action, mark, again) == ("text", "restarted", "text")
    assert TEXT.startswith(half) and 0 < len(half) < len(TEXT)
    assert whole == TEXT


@pytest.mark.row("J21", "J35")
def test_pieces_have_no_secrets(ask: Callable[..., list[AgentEvent]]) -> None:
    said = "The key is pl4nted-key, and that is all."
    reply = Reply(said, tool_calls=(Call("send", {"text": said}),))
    secret = {"skills.source.options": json.dumps({"s3": {"secret": "pl4nted-key"}})}
    rules = [Rule(reply, last_role="user"), Rule(Reply("Done."))]
    events = ask(rules, {**ON, **secret, "skills.events.delta-interval": "0 ms"})
    assert "pl4nted-key" not in str(events)
    assert "The key is ***, and that is all." in [held for *_, held in pieces(events)]


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
