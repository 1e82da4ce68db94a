"""Conversations that are over their limit, and messages as their provider returned them: what goes, what stays."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_skills import (
    Agent,
    AgentContext,
    ModelError,
    PlanError,
    ResourceDescriptor,
    SkillConfig,
    agent_tool,
    chat_model_setup,
    tool,
)
from flink_skills.agents import (
    Session,
    SessionOp,
    TurnStatus,
    compile_plan,
    decode,
    encode,
    message_from_json,
    message_to_json,
    open_plan,
)
from flink_skills.agents.state.history import about_tokens_of, cut
from flink_skills.models import (
    MAX_VERBATIM,
    AssistantMessage,
    Message,
    ModelResponse,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    Verbatim,
)
from flink_skills.testing import call, calls
from tests.kit.agents import Bench, OpenAgent
from tests.kit.models import Script

STEPS = st.lists(st.tuples(st.sampled_from(["user", "answer", "tools"]), st.integers(0, 400)), max_size=30)


def conversation(steps: Sequence[tuple[str, int]]) -> list[Message]:
    """Messages as turns leave them: each result of a tool stands behind the message that called it."""
    messages: list[Message] = [UserMessage("first")]
    for number, (kind, size) in enumerate(steps):
        text = f"{number} {'x' * size}"
        if kind == "user":
            messages.append(UserMessage(text))
        elif kind == "answer":
            messages.append(AssistantMessage(text))
        else:
            asked = [ToolCall(f"{number}.{i}", "t", {"text": text}) for i in range(2)]
            messages += [AssistantMessage("", tuple(asked)), *(ToolMessage(of.id, "t", text) for of in asked)]
    return messages


@given(STEPS, st.integers(0, 1_000))
def test_a_cut_keeps_whole_steps_and_the_newest(steps: list[tuple[str, int]], most: int) -> None:
    messages = conversation(steps)
    parts = cut(messages, most)
    assert sorted(map(messages.index, [*parts.gone, *parts.kept])) == sorted(map(messages.index, messages))
    assert isinstance(parts.kept[0], UserMessage)
    for part in (parts.gone, parts.kept):
        asked = {one.id for m in part if isinstance(m, AssistantMessage) for one in m.tool_calls}
        assert asked == {m.call_id for m in part if isinstance(m, ToolMessage)}
    assert parts.kept[-1] == messages[-1]
    # Over the limit only with what must stay: a user's message and the last step behind it.
    if about_tokens_of(parts.kept) > most:
        assert sum(not isinstance(m, ToolMessage) for m in parts.kept) <= 2


class Remembers(Agent):
    model = "scripted:m"
    session = "key"

    @tool
    def look(self, text: str) -> str:
        """Looks."""
        return f"seen {text}"


def asked_for_a_summary(request: Any) -> bool:
    return request.system.startswith("You keep the memory of an agent.")


async def talk(bench: Any, turns: int, session: Session | None = None) -> tuple[Session, list[bytes]]:
    session, chunks = session or Session(), []
    for number in range(1, turns + 1):
        outcome = await bench.turn(f"event {number} {'x' * 200}", number=number, session=session)
        assert outcome.error == "", outcome.message
        session = outcome.session
        chunks = [*(chunks if outcome.change.op == SessionOp.APPEND else []), *outcome.change.chunks]
    return session, chunks


async def test_the_oldest_steps_go(open_agent: OpenAgent, script: Script) -> None:
    model = script(lambda request: f"answer {'y' * 200}")
    bench = await open_agent(Remembers, **{"skills.session.max-tokens": "1000"})
    session, chunks = await talk(bench, 40)
    sizes = [about_tokens_of(request.messages) for request in model.requests]
    assert max(sizes) < 1_200
    assert len({request.messages[0].content for request in model.requests}) < 12, "the prefix changes seldom"
    assert session.conversation().messages["model"][-2].content.startswith("event 40")
    assert Session.decode(chunks).conversation().messages == session.conversation().messages
    assert sum(map(len, chunks)) < 8_000, "keyed state is bounded, too"


async def test_without_a_limit_nothing_goes(open_agent: OpenAgent, script: Script) -> None:
    model = script(lambda request: "y" * 200)
    await talk(await open_agent(Remembers, **{"skills.session.max-tokens": "0"}), 40)
    assert len(model.requests[-1].messages) == 79


@pytest.mark.row("E6")
@pytest.mark.parametrize("strategy", ["drop-oldest", "summarize"])
async def test_what_is_loaded_stays_loaded(
    open_agent: OpenAgent, script: Script, skill_folder: Path, strategy: str
) -> None:
    def answer(request: Any) -> Any:
        first = request.messages[-1]
        return calls(call("load_skill", name="shout")) if "event 1 " in first.content else "y" * 200

    model = script(answer)
    options = {
        "skills.session.max-tokens": "1000",
        "skills.session.strategy": strategy,
        "skills.load.lifetime": "session",
    }
    await talk(await open_agent(Remembers, skills=skill_folder, **options), 20)
    assert not any(isinstance(message, ToolMessage) for message in model.requests[-1].messages)
    assert "sh scripts/shout.sh" in model.requests[-1].system


async def test_the_model_sums_up_what_goes(open_agent: OpenAgent, script: Script) -> None:
    def answer(request: Any) -> str:
        if not asked_for_a_summary(request):
            return f"answer {'y' * 200}"
        lines = [json.loads(line) for line in request.messages[0].content.splitlines()]
        return f"It was about {len(lines)} messages, from {next(iter(lines[0].values())).split('x')[0]!r}."

    model = script(answer)
    options = {"skills.session.max-tokens": "1000", "skills.session.strategy": "summarize"}
    session, _ = await talk(await open_agent(Remembers, **options), 40)
    summaries = [request for request in model.requests if asked_for_a_summary(request)]
    assert 2 <= len(summaries) <= 12
    assert all(not request.tools for request in summaries)
    assert "<conversation_summary>" in summaries[1].messages[0].content, "a summary stands for the ones before"
    first = session.conversation().messages["model"][0].content
    assert first.startswith("<conversation_summary>\nIt was about")
    assert max(about_tokens_of(request.messages) for request in model.requests) < 1_300


async def test_a_cut_summary_is_marked(open_agent: OpenAgent, script: Script) -> None:
    def answer(request: Any) -> Any:
        return ModelResponse("It was", finish_reason="length") if asked_for_a_summary(request) else "y" * 200

    script(answer)
    options = {"skills.session.max-tokens": "1000", "skills.session.strategy": "summarize"}
    session, _ = await talk(await open_agent(Remembers, **options), 20)
    first = session.conversation().messages["model"][0].content
    assert "It was … (the summary was cut here)" in first


async def test_a_summary_is_not_made_twice_when_its_turn_is_restarted(open_agent: OpenAgent, script: Script) -> None:
    model = script(lambda request: "summed up" if asked_for_a_summary(request) else f"answer {'y' * 200}")
    options = {"skills.session.max-tokens": "1000", "skills.session.strategy": "summarize"}
    bench = await open_agent(Remembers, **options)
    session, _ = await talk(bench, 10)
    before = len(model.requests)
    first = await bench.turn("event 11", number=11, session=session)
    assert len(model.requests) == before + 2, "a summary, and the answer"
    for journalled in (1, 2):
        again = await bench.turn("event 11", number=11, session=session, journal=bench.journal[:journalled])
        assert again.session.conversation().messages == first.session.conversation().messages
    assert [asked_for_a_summary(request) for request in model.requests[before:]] == [True, False, False]


@pytest.mark.parametrize("failure", [ModelError("no"), ""], ids=["an error", "nothing"])
async def test_a_summary_that_fails_ends_no_turn(open_agent: OpenAgent, script: Script, failure: Any) -> None:
    def answer(request: Any) -> Any:
        if not asked_for_a_summary(request):
            return f"answer {'y' * 200}"
        if isinstance(failure, Exception):
            raise failure
        return failure

    model = script(answer)
    options = {"skills.session.max-tokens": "1000", "skills.session.strategy": "summarize"}
    session, _ = await talk(await open_agent(Remembers, **options), 20)
    assert session.conversation().messages["model"][0].content.startswith("event ")
    assert any(asked_for_a_summary(request) for request in model.requests)


async def test_chats_at_the_same_time_make_a_conversation_shorter_once(open_agent: OpenAgent, script: Script) -> None:
    import asyncio

    class Twice(Remembers):
        async def on_event(self, event: Any, ctx: Any) -> Any:
            await asyncio.gather(ctx.chat(f"{event} a"), ctx.chat(f"{event} b"))

    model = script(lambda request: "summed up" if asked_for_a_summary(request) else f"answer {'y' * 200}")
    options = {"skills.session.max-tokens": "1000", "skills.session.strategy": "summarize"}
    session, _ = await talk(await open_agent(Twice, **options), 6)
    assert sum(map(asked_for_a_summary, model.requests)) == 1
    assert [m.content for m in session.conversation().messages["model"]].count(
        "<conversation_summary>\nsummed up\n</conversation_summary>"
    ) == 1


async def test_an_event_says_which_conversation_of_its_key_it_goes_on_with(
    open_agent: OpenAgent, script: Script
) -> None:
    class Selects(Remembers):
        session_selector = "conversation"

        async def on_event(self, event: Any, ctx: Any) -> Any:
            ctx.state["turns"] = ctx.state.get("turns", 0) + 1
            ctx.emit([ctx.session_id, ctx.state["turns"]])
            return await ctx.chat(event["text"])

    model = script(lambda request: "seen " + ", ".join(m.content for m in request.messages))
    bench, session, seen = await open_agent(Selects), Session(), []
    for number, (id_, text) in enumerate([("a", "1"), ("b", "2"), ("a", "3"), (None, "4"), (7, "5")], 1):
        event = {"conversation": id_, "text": text}
        outcome = await bench.turn(event, number=number, session=session)
        session = outcome.session
        seen.append(outcome.outputs[0][1])
    assert seen == [["a", 1], ["b", 2], ["a", 3], ["", 4], ["7", 5]], "the state is the key's"
    assert [len(request.messages) for request in model.requests] == [1, 1, 3, 1, 1]
    assert set(session.conversations) == {"a", "b", "", "7"}


@pytest.mark.parametrize(
    ("selector", "problem"),
    [
        (lambda self, event: event["no"], "session_selector failed: KeyError: 'no'"),
        (lambda self, event: [1], "session_selector returned list; expected a string or a whole number"),
        (lambda self, event: "x" * 300, "session_selector returned 300 characters; the maximum is 256"),
    ],
)
async def test_a_selector_that_fails_is_a_failed_turn(open_agent: OpenAgent, selector: Any, problem: str) -> None:
    bench = await open_agent(type("Selects", (Remembers,), {"session_selector": selector, "__module__": __name__}))
    outcome = await bench.turn({"text": "x"})
    assert outcome.message == problem


@pytest.mark.parametrize(
    ("session", "selector", "problem"),
    [("event", "a", "needs session = 'key'"), ("key", 3, "give the name of a field"), ("key", "", "give the name")],
)
def test_a_selector_that_cannot_be_is_refused(session: str, selector: Any, problem: str) -> None:
    agent = type("Selects", (Remembers,), {"session": session, "session_selector": selector})
    with pytest.raises(PlanError, match=problem):
        compile_plan(agent)


SECRET = "c2lnbmF0dXJl"


class Keeps(Agent):
    session = "key"

    @chat_model_setup
    @staticmethod
    def model() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="scripted:m")

    @tool
    def look(self, text: str) -> str:
        """Looks."""
        return f"seen {text}"


def verbatim(text: str, size: int = 0) -> Verbatim:
    return Verbatim("scripted", json.dumps([{"thinking": "x" * size, "signature": SECRET}, {"text": text}]))


def looks(text: str) -> ModelResponse:
    response = calls(call("look", text=text), prefix=text)
    return ModelResponse("", response.tool_calls, Usage(10, 5, 1, 4, 2, 3), "tool_calls", verbatim(text))


def answers(text: str, size: int = 0) -> ModelResponse:
    return ModelResponse(text, (), Usage(10, 5, 1, 4, 2, 3), "stop", verbatim(text, size))


def forms(messages: Sequence[Message]) -> list[str | None]:
    """Return the verbatim form of each message of the model, or None for a message without one."""
    said = [message for message in messages if isinstance(message, AssistantMessage)]
    return [message.verbatim.raw if message.verbatim else None for message in said]


def test_messages_of_earlier_releases_stay_as_they_are() -> None:
    plain = b'\x01{"a":"x","c":[["1","t",{}]]}'
    message = AssistantMessage("x", (ToolCall("1", "t", {}),))
    assert message_from_json(decode(plain)) == message
    assert encode(message_to_json(message)) == plain
    kept = b'\x01{"a":"x","c":[],"v":["m","[1]"]}'
    assert message_from_json(decode(kept)) == AssistantMessage("x", verbatim=Verbatim("m", "[1]"))
    assert encode(message_to_json(message_from_json(decode(kept)))) == kept


async def test_it_goes_back_in_its_turn_and_in_later_ones(open_agent: OpenAgent, script: Script) -> None:
    model = script([looks("a"), answers("b"), answers("c")])
    bench = await open_agent(Keeps)
    first = await bench.turn("one")
    assert forms(model.requests[1].messages) == [verbatim("a").raw]
    session = Session.decode(first.change.chunks)
    await bench.turn("two", number=2, session=session)
    assert forms(model.requests[2].messages) == [verbatim("a").raw, verbatim("b").raw]


async def test_it_goes_back_after_a_failover(open_agent: OpenAgent, script: Script) -> None:
    model = script([looks("a"), answers("b"), answers("b")])
    bench = await open_agent(Keeps)
    first = await bench.turn("one")
    journal = bench.journal[:2]
    again = await bench.turn("one", journal=journal)
    assert model.requests[2] == model.requests[1]
    assert forms(model.requests[2].messages) == [verbatim("a").raw]
    assert again.change.chunks == first.change.chunks


def broken_off(text: str) -> Verbatim:
    return Verbatim("scripted", json.dumps({"text": text}))


@pytest.mark.parametrize(
    "response",
    [
        ModelResponse("a\ud800", verbatim=broken_off("a")),
        ModelResponse("a", verbatim=broken_off("\ud800")),
        ModelResponse("a", verbatim=Verbatim("scripted", '{"text":"\ud800"}')),
        ModelResponse("", (ToolCall("1\ud800", "look", {"text": "a"}),), verbatim=broken_off("a")),
        ModelResponse("", (ToolCall("1", "look", {"text": 10**5000}),), verbatim=broken_off("a")),
    ],
    ids=["text", "escaped", "raw", "id", "integer"],
)
async def test_one_that_not_every_encoding_takes_is_omitted(
    response: ModelResponse, open_agent: OpenAgent, script: Script
) -> None:
    model = script([response, answers("b"), answers("c")])
    bench = await open_agent(Keeps)
    first = await bench.turn("one")
    assert first.status == TurnStatus.DONE, first.message
    await bench.turn("two", number=2, session=first.session)
    assert forms(model.requests[-1].messages)[0] is None


async def test_a_pair_of_surrogates_is_kept(open_agent: OpenAgent, script: Script) -> None:
    response = ModelResponse("a", verbatim=broken_off("\N{GRINNING FACE}"))
    script([response])
    outcome = await (await open_agent(Keeps)).turn("one")
    assert forms(outcome.session.conversation().messages["model"]) == [response.verbatim and response.verbatim.raw]


async def test_one_over_the_limit_is_omitted(
    open_agent: OpenAgent, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    script([answers("a", MAX_VERBATIM), answers("b", MAX_VERBATIM // 2)])
    bench = await open_agent(Keeps)
    with caplog.at_level(logging.WARNING, "flink_skills.model"):
        first = await bench.turn("one")
        second = await bench.turn("two", number=2, session=first.session)
    kept = forms(second.session.conversation().messages["model"])
    assert [raw is None for raw in kept] == [True, False]
    [record] = caplog.records
    assert "the reasoning of an answer is not kept" in record.getMessage()


async def converse(bench: Bench, turns: int) -> Session:
    session = Session()
    for number in range(1, turns + 1):
        outcome = await bench.turn(f"event {number}", number=number, session=session)
        assert outcome.status == TurnStatus.DONE, outcome.message
        session = outcome.session
    return session


@pytest.mark.parametrize("strategy", ["drop-oldest", "summarize"])
async def test_a_conversation_that_is_too_long_loses_it_first(
    strategy: str, open_agent: OpenAgent, script: Script
) -> None:
    model = script(lambda request: answers("a", 1_000))
    options = {"skills.session.max-tokens": "1000", "skills.session.strategy": strategy}
    session = await converse(await open_agent(Keeps, **options), 8)
    said = session.conversation().messages["model"]
    assert len(said) == 16, "no message is gone"
    kept = [raw is not None for raw in forms(said)]
    assert kept[-1]
    assert 0 < sum(kept) < 5
    assert kept == sorted(kept), "the newest is kept"
    assert len(model.requests) == 8, "nothing was summed up"


async def test_messages_go_if_that_does_not_suffice(open_agent: OpenAgent, script: Script) -> None:
    script(lambda request: answers("y" * 400, 400))
    session = await converse(await open_agent(Keeps, **{"skills.session.max-tokens": "1000"}), 20)
    said = session.conversation().messages["model"]
    assert 0 < len(said) < 30
    assert said[0].content.startswith("event ")


async def test_a_summary_is_made_without_it(open_agent: OpenAgent, script: Script) -> None:
    model = script(lambda request: "sum" if "memory of an agent" in request.system else answers("y" * 400, 400))
    options = {"skills.session.max-tokens": "1000", "skills.session.strategy": "summarize"}
    await converse(await open_agent(Keeps, **options), 20)
    summaries = [request for request in model.requests if "memory of an agent" in request.system]
    assert summaries
    assert not any(SECRET in message.content for request in summaries for message in request.messages)


async def test_it_is_in_no_record_and_no_log(
    open_agent: OpenAgent, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    script([looks("a"), answers("b")])
    caplog.set_level(logging.DEBUG)
    bench = await open_agent(Keeps)
    bench.runtime = replace(bench.runtime, plan=replace(bench.runtime.plan, outputs="record"))
    outcome = await bench.turn("one")
    [(_, record)] = outcome.outputs
    assert record["output"] == "b"
    assert SECRET not in repr(record)
    assert SECRET not in repr(outcome.session)
    assert SECRET not in caplog.text


async def test_a_record_has_the_details_of_tokens_if_there_are_any(open_agent: OpenAgent, script: Script) -> None:
    script([looks("a"), answers("b"), "c"])
    bench = await open_agent(Keeps)
    bench.runtime = replace(bench.runtime, plan=replace(bench.runtime.plan, outputs="record"))
    [(_, first)] = (await bench.turn("one")).outputs
    [(_, second)] = (await bench.turn("two", number=2)).outputs
    details = {"cache_read_tokens": 8, "cached_share": 0.4, "cache_write_tokens": 4, "reasoning_tokens": 6}
    assert first["usage"] == {"input_tokens": 20, "output_tokens": 10, "requests": 2, **details}
    assert second["usage"] == {"input_tokens": 0, "output_tokens": 0, "requests": 1}
    assert second["finish_reason"] == "stop"


async def test_a_column_always_has_the_details_of_tokens(script: Script, tmp_path: Path, proved_once: None) -> None:
    script(["no details", answers("a")])
    names = ("cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
    columns = [[name, ["BIGINT", False, None, None, []], [["usage", name]]] for name in names]
    rows = {"output": {"table": "t", "columns": columns}, "errors": None, "events": None}
    plan = compile_plan(Keeps, config=SkillConfig({"skills.store.dir": str(tmp_path / "store")}))
    runtime = await open_plan(replace(plan, outputs="record", rows=rows), scratch_dir=str(tmp_path))
    try:
        found = [(await Bench(runtime).turn("one")).outputs for _ in range(2)]
    finally:
        await runtime.close()
    assert found == [(("", (0, 0, 0)),), (("", (4, 2, 3)),)]


class Talker(Agent):
    model = "scripted:m"
    instructions = "You talk."


class Caller(Agent):
    model = "scripted:m"

    @agent_tool
    def ask(self) -> Agent:
        return Talker()

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        await ctx.chat("?")
        return ctx.usage


async def test_tokens_of_an_agent_that_is_a_tool_count_in_the_turn_and_in_a_replay(
    open_agent: OpenAgent, script: Script
) -> None:
    script([calls(call("ask", request="?")), answers("a"), "done"])
    bench = await open_agent(Caller)
    first = await bench.turn("x")
    assert first.outputs == (("", Usage(10, 5, 3, 4, 2, 3)),)
    assert (await bench.turn("x", journal=bench.journal)).outputs == first.outputs
