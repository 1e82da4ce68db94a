"""A conversation can continue with any provider: servers that refuse what real ones refuse accept each request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import pytest

from flink_skills import Agent, ResourceDescriptor, chat_model_setup, tool
from flink_skills.agents import (
    AssistantMessage,
    KeptConversation,
    Message,
    Session,
    SessionOp,
    ToolCall,
    ToolMessage,
    TurnStatus,
    UserMessage,
    Verbatim,
)
from flink_skills.testing import Call, Reply, ScriptedModelServer
from tests.kit.agents import Bench, OpenAgent
from tests.kit.media import PNG
from tests.kit.models import ServerFactory
from tests.kit.strict_servers import check_request

PROVIDERS = ("openai-compatible", "openai-responses", "anthropic", "alibaba")


@pytest.fixture
def isolation() -> dict[str, str]:
    return {"skills.shell.enabled": "false", "skills.model.retry-backoff": "0"}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_MODEL_KEY", "key")


def strict(answers: Iterator[Reply]) -> Callable[[dict[str, Any]], Reply]:
    """Answer with the next of ``answers`` if the request is one that every provider accepts."""

    def answer(body: dict[str, Any]) -> Reply:
        check_request(body)
        return next(answers)

    return answer


def setup(provider: str, server: ScriptedModelServer, **fields: Any) -> ResourceDescriptor:
    url = server.origin if provider == "anthropic" else server.url
    return ResourceDescriptor(
        clazz=f"{provider}:m", base_url=url, api_key_env="TEST_MODEL_KEY", media=["image"], **fields
    )


def looking_agent(first: ResourceDescriptor, second: ResourceDescriptor | None = None) -> type[Agent]:
    class Looks(Agent):
        session = "key"

        @chat_model_setup
        @staticmethod
        def main() -> ResourceDescriptor:
            return first

        if second is not None:

            @chat_model_setup
            @staticmethod
            def spare() -> ResourceDescriptor:
                return second

        @tool
        def look(self, text: str) -> Any:
            """Looks."""
            return PNG if text == "picture" else f"seen {text}"

    return Looks


async def turns(bench: Bench, *events: str, chunks: list[bytes] | None = None) -> list[Any]:
    """Run turns of one key, each by another worker, and return their outputs."""
    stored, found = list(chunks or ()), []
    for number, event in enumerate(events, 1):
        outcome = await bench.turn(event, number=number, session=Session.decode(stored))
        assert outcome.status is TurnStatus.DONE, outcome.error
        stored = [*(stored if outcome.change.op is not SessionOp.REPLACE else ()), *outcome.change.chunks]
        found += [output for _, output in outcome.outputs]
    return found


def looks(*texts: str, id_: str = "call_0", **fields: Any) -> Reply:
    return Reply(tool_calls=tuple(Call("look", {"text": text}, id_) for text in texts), **fields)


@pytest.mark.parametrize(("main", "spare"), list(permutations(PROVIDERS, 2)))
async def test_a_fallback_of_another_provider_continues_the_conversation(
    main: str,
    spare: str,
    serve: ServerFactory,
    open_agent: OpenAgent,
) -> None:
    first = [
        Reply("  "),
        Reply("", reasoning="Nothing to say."),
        looks("a", id_="functions.look:0", reasoning="Look."),
        looks("b", "picture", reasoning="Look again."),
        looks("picture"),
        Reply("one"),
        looks("c", id_="x" * 64),
        Reply(status=404),
        looks("d"),
        Reply("three"),
    ]
    second = [looks("e", "picture", id_="fc_1|call_1"), looks("f"), Reply("two")]
    one, other = serve(strict(iter(first))), serve(strict(iter(second)))
    bench = await open_agent(looking_agent(setup(main, one, fallback=["spare"]), setup(spare, other)))
    assert await turns(bench, "first", "second", "third") == ["one", "two", "three"]
    assert len(other.requests) == 3


def of_an_earlier_release(provider: str) -> list[Message]:
    """A conversation with what earlier releases stored, also in the form of a provider."""
    forms = {
        "openai-compatible": {
            "role": "assistant",
            "content": None,
            "reasoning": "hm",
            "tool_calls": [{"id": "call_0", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        },
        "openai-responses": [
            {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "hm"},
            {"id": "fc_1", "type": "function_call", "call_id": "call_0", "name": "look", "arguments": "{}"},
        ],
        "anthropic": [
            {"type": "text", "text": "hm"},
            {"type": "tool_use", "id": "call_0", "name": "look", "input": {}},
        ],
        "alibaba": [
            {
                "kind": "response",
                "parts": [
                    {"part_kind": "thinking", "content": "hm", "id": "reasoning_content", "provider_name": "alibaba"},
                    {"part_kind": "tool-call", "tool_name": "look", "args": {}, "tool_call_id": "call_0"},
                ],
            }
        ],
    }
    kept = Verbatim(f"{provider}:m", json.dumps(forms[provider]))

    def called(*ids: str, name: str = "look", verbatim: Verbatim | None = None) -> list[Message]:
        calls = tuple(ToolCall(id_, name, {}) for id_ in ids)
        return [AssistantMessage("", calls, verbatim), *(ToolMessage(id_, name, f"of {id_}") for id_ in ids)]

    return [
        UserMessage("a"),
        *called("functions.look:0"),
        *called("call_0", "call_0"),
        *called("call_0", verbatim=kept),
        *called("", "x" * 64, name="functions.look"),
        AssistantMessage("", (ToolCall("lost", "look", {}),)),
        ToolMessage("of no call", "look", "x"),
        AssistantMessage("answer"),
        AssistantMessage("another"),
        UserMessage("b"),
        UserMessage(" "),
    ]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_session_of_an_earlier_release_continues(
    provider: str,
    serve: ServerFactory,
    open_agent: OpenAgent,
) -> None:
    _, change = Session().after(KeptConversation({"main": of_an_earlier_release(provider)}), None)
    server = serve(strict(iter([looks("a"), Reply("one"), Reply("two")])))
    bench = await open_agent(looking_agent(setup(provider, server)))
    assert await turns(bench, "first", "second", chunks=[*change.chunks]) == ["one", "two"]
    sent = [json.dumps(of.get("messages") or of["input"]) for of in server.requests]
    assert all('"hm"' in of and "of call_0" in of and "of functions.look:0" in of for of in sent)
    # Providers cache the beginning of a conversation. Other workers restore it from the state.
    assert [of[: len(sent[0]) - 100] for of in sent] == [sent[0][:-100]] * 3


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_journal_events_and_results_have_the_same_ids(
    provider: str,
    serve: ServerFactory,
    open_agent: OpenAgent,
) -> None:
    server = serve(strict(iter([looks("a", "b"), looks("a"), Reply("one"), Reply("one")])))
    bench = await open_agent(looking_agent(setup(provider, server)))
    await bench.turn("first")
    requests = [json.dumps(of.get("messages") or of["input"]) for of in server.requests]
    # Another attempt at the turn, with a journal that ends before the last response.
    await bench.turn("first", journal=bench.journal[:-1])
    assert json.dumps(server.requests[-1].get("messages") or server.requests[-1]["input"]) == requests[-1]
