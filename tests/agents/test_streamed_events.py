"""The event stream while models write: pieces as they arrive, from both providers' streams over loopback."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from flink_skills import Agent, AgentEvent, AgentsExecutionEnvironment, ResourceDescriptor, chat_model_setup, tool
from flink_skills.testing import Call, Reply, Rule, ScriptedModelServer

PROVIDERS = ["openai-compatible", "anthropic"]
TEXT = "Dear Ann, the order is on its way. " * 4
ON = {"skills.events.deltas": "true", "skills.model.retry-backoff": "1 ms"}

pytestmark = pytest.mark.row("J21", "J35")


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
            env = AgentsExecutionEnvironment.get_execution_environment()
            for key, value in options.items():
                env.get_config().set(key, value)
            events = env.from_list(["hello"]).apply(Clerk).to_event_list()
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


def test_pieces_are_joined_for_a_while(ask: Callable[..., list[AgentEvent]]) -> None:
    events = ask([Rule(Reply(TEXT))], {**ON, "skills.events.delta-interval": "1 min"})
    assert [event.output_size for event in events if event.kind == "delta"] == [len(TEXT)]


def test_nobody_has_pieces_who_did_not_ask_for_them(ask: Callable[..., list[AgentEvent]]) -> None:
    events = ask([Rule(Reply(TEXT))], {"skills.events.content": "full"})
    assert {event.kind for event in events} == {"open", "chat", "turn"}


def test_a_stream_that_breaks_is_withdrawn_and_restarted(ask: Callable[..., list[AgentEvent]]) -> None:
    rules = [Rule(Reply(TEXT, break_after=8), times=1), Rule(Reply(TEXT))]
    events = ask(rules, {**ON, "skills.events.delta-interval": "0 ms"})
    (_, action, _, half), (_, mark, _, _), (_, again, _, whole) = pieces(events)
    assert (action, mark, again) == ("text", "restarted", "text")
    assert TEXT.startswith(half) and 0 < len(half) < len(TEXT)
    assert whole == TEXT


def test_pieces_have_no_secrets(ask: Callable[..., list[AgentEvent]]) -> None:
    said = "The key is pl4nted-key, and that is all."
    reply = Reply(said, tool_calls=(Call("send", {"text": said}),))
    secret = {"skills.source.options": json.dumps({"s3": {"secret": "pl4nted-key"}})}
    rules = [Rule(reply, last_role="user"), Rule(Reply("Done."))]
    events = ask(rules, {**ON, **secret, "skills.events.delta-interval": "0 ms"})
    assert "pl4nted-key" not in str(events)
    assert "The key is ***, and that is all." in [held for *_, held in pieces(events)]
