"""A conversation can continue with any provider: servers that refuse what real ones refuse accept each request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, ResourceDescriptor, SkillConfig, chat_model_setup, tool
from flink_skills.agents import (
    KeptConversation,
    Session,
    SessionOp,
    TurnStatus,
    compile_plan,
    decode,
    encode,
    open_plan,
)
from flink_skills.models import AssistantMessage, Message, ModelRequest, ToolCall, ToolMessage, UserMessage, Verbatim
from flink_skills.telemetry import Activity, Delta, Observer, Telemetry, ToolCallDelta
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
        assert outcome.status is TurnStatus.DONE, outcome.message
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
    """A conversation with the ids that earlier releases stored, including the form of a provider."""
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


class Listener(Observer):
    wants_deltas = True

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.called: list[str] = []

    def delta(self, activity: Activity, delta: Delta) -> None:
        if isinstance(delta, ToolCallDelta) and delta.call_id not in self.heard:
            self.heard.append(delta.call_id)

    def ended(self, activity: Activity) -> None:
        if activity.kind == "tool":
            self.called.append(str(activity.attributes["model_call_id"]))


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_journal_events_and_results_have_the_same_ids(
    provider: str, serve: ServerFactory, tmp_path: Path
) -> None:
    server = serve(strict(iter([looks("a", id_="look:0"), looks("b", id_="look:0"), looks("c"), Reply("one")])))
    listener = Listener()
    agent = looking_agent(setup(provider, server))
    runtime = await open_plan(
        compile_plan(agent, config=SkillConfig()), scratch_dir=str(tmp_path), telemetry=Telemetry([listener])
    )
    bench = Bench(runtime)
    try:
        outcome = await bench.turn("first")
    finally:
        await runtime.close()
    assert outcome.outputs == (("", "one"),)
    kept = [m for m in outcome.session.conversation().messages["main"] if isinstance(m, AssistantMessage)]
    ids = [call.id for message in kept for call in message.tool_calls]
    assert len({*ids}) == 3
    assert ids[2] == "call_0"
    assert listener.heard == ids
    assert listener.called == ids
    assert [call[0] for entry in map(decode, bench.journal) for call in entry["r"].get("c", ())] == ids
    sent = json.dumps(server.requests[-1])
    assert all(sent.count(id_) == 2 for id_ in ids)


async def test_another_attempt_sends_the_same_ids(serve: ServerFactory, open_agent: OpenAgent) -> None:
    answers = [looks("a", id_="look:0"), looks("b", id_="look:0"), Reply("one"), Reply("one")]
    server = serve(strict(iter(answers)))
    bench = await open_agent(looking_agent(setup("openai-compatible", server)))
    await bench.turn("first")
    for entry in (bench.journal[:-1], of_an_earlier_journal(bench.journal[:-1])):
        await bench.turn("first", journal=entry)
        assert server.requests[-1]["messages"] == server.requests[2]["messages"]


def of_an_earlier_journal(entries: list[bytes]) -> list[bytes]:
    """Return a journal whose responses have the ids that the server gave."""
    found = list(map(decode, entries))
    for entry in found:
        for call in entry["r"].get("c", ()):
            call[0] = "look:0"
    return list(map(encode, found))


class Paths(Agent):
    session = "key"
    output_type = int
    run_code = True

    @tool
    def look(self, text: str) -> Any:
        """Looks."""
        return PNG

    def before_model(self, request: ModelRequest, context: Any) -> ModelRequest:
        first, *rest = request.messages
        return replace(request, messages=[UserMessage("Be brief."), first, *rest])


@pytest.mark.parametrize(
    ("provider", "strategy"), [*((provider, "native") for provider in PROVIDERS), ("openai-compatible", "json")]
)
async def test_every_path_that_appends_alternates(
    provider: str, strategy: str, serve: ServerFactory, open_agent: OpenAgent, skill_folder: Path
) -> None:
    code: Any = "```bash\necho 1\n```" if strategy == "native" else call_of("look", text="b")
    said = iter(
        [
            *("", "<think>hm</think>", "no number", call_of("load_skill", name="shout"), code),
            *(call_of("look", text="a"), 7),
            # The skill has changed: a notice precedes the event.
            *("  ", call_of("nowhere", a="b"), 8),
            # The conversation is over its limit: a summary.
            *("summary", "no number", 9),
        ]
    )

    def answer(body: dict[str, Any]) -> Reply:
        check_request(body)
        return reply(next(said), strategy, is_summary="<conversation_summary>" not in str(body) and number == 3)

    number = 0
    server = serve(answer)
    stored: list[bytes] = []
    outputs = []

    descriptor = setup(provider, server, strategy=strategy)

    class AllPaths(Paths):
        @chat_model_setup
        @staticmethod
        def main() -> ResourceDescriptor:
            return descriptor

    for number in (1, 2, 3):
        options = {"skills.session.max-tokens": "200", "skills.session.strategy": "summarize"} if number == 3 else {}
        bench = await open_agent(AllPaths, skill_folder, **{"skills.shell.enabled": "true", **options})
        outcome = await bench.turn(f"event {number}", number=number, session=Session.decode(stored))
        assert outcome.status is TurnStatus.DONE, outcome.message
        stored = [*(stored if outcome.change.op is not SessionOp.REPLACE else ()), *outcome.change.chunks]
        outputs += [output for _, output in outcome.outputs]
        (skill_folder / "shout" / "SKILL.md").write_text("---\nname: shout\ndescription: Other.\n---\nOther\n")
    assert outputs == [7, 8, 9]
    assert next(said, None) is None
    asked = str(server.requests)
    assert "<skills_changed>" in asked
    assert "<conversation_summary>" in asked


def call_of(name: str, /, **arguments: str) -> Call:
    return Call(name, arguments, "call_0")


def reply(said: Any, strategy: str, *, is_summary: bool) -> Reply:
    """Return the reply in the form of a strategy."""
    if is_summary or (strategy == "json" and said in ("", "  ", "<think>hm</think>", "no number")):
        return Reply(str(said))
    if strategy == "native":
        return Reply(tool_calls=(said,)) if isinstance(said, Call) else Reply(str(said))
    action = {"action": "answer", "arguments": {"content": said}}
    if isinstance(said, Call):
        action = {"action": said.name, "arguments": dict(said.arguments)}
    return Reply(json.dumps({"next": action}))
