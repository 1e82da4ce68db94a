"""A message as its provider returned it: where it goes, what bounds it, and who never sees it."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, AgentContext, ResourceDescriptor, SkillConfig, agent_tool, chat_model_setup, tool
from flink_skills.agents import (
    Session,
    TurnStatus,
    compile_plan,
    decode,
    encode,
    message_from_json,
    message_to_json,
    open_plan,
)
from flink_skills.models import MAX_VERBATIM, AssistantMessage, Message, ModelResponse, ToolCall, Usage, Verbatim
from flink_skills.testing import call, calls
from tests.kit.agents import Bench, OpenAgent
from tests.kit.models import Script

SECRET = "c2lnbmF0dXJl"


class Remembers(Agent):
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
    bench = await open_agent(Remembers)
    first = await bench.turn("one")
    assert forms(model.requests[1].messages) == [verbatim("a").raw]
    session = Session.decode(first.change.chunks)
    await bench.turn("two", number=2, session=session)
    assert forms(model.requests[2].messages) == [verbatim("a").raw, verbatim("b").raw]


async def test_it_goes_back_after_a_failover(open_agent: OpenAgent, script: Script) -> None:
    model = script([looks("a"), answers("b"), answers("b")])
    bench = await open_agent(Remembers)
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
    bench = await open_agent(Remembers)
    first = await bench.turn("one")
    assert first.status == TurnStatus.DONE, first.message
    await bench.turn("two", number=2, session=first.session)
    assert forms(model.requests[-1].messages)[0] is None


async def test_a_pair_of_surrogates_is_kept(open_agent: OpenAgent, script: Script) -> None:
    response = ModelResponse("a", verbatim=broken_off("\N{GRINNING FACE}"))
    script([response])
    outcome = await (await open_agent(Remembers)).turn("one")
    assert forms(outcome.session.conversation().messages["model"]) == [response.verbatim and response.verbatim.raw]


async def test_one_over_the_limit_is_omitted(
    open_agent: OpenAgent, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    script([answers("a", MAX_VERBATIM), answers("b", MAX_VERBATIM // 2)])
    bench = await open_agent(Remembers)
    with caplog.at_level(logging.WARNING, "flink_skills.model"):
        first = await bench.turn("one")
        second = await bench.turn("two", number=2, session=first.session)
    kept = forms(second.session.conversation().messages["model"])
    assert [raw is None for raw in kept] == [True, False]
    [record] = caplog.records
    assert "the reasoning of an answer is not kept" in record.getMessage()


async def talk(bench: Bench, turns: int) -> Session:
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
    session = await talk(await open_agent(Remembers, **options), 8)
    said = session.conversation().messages["model"]
    assert len(said) == 16, "no message is gone"
    kept = [raw is not None for raw in forms(said)]
    assert kept[-1]
    assert 0 < sum(kept) < 5
    assert kept == sorted(kept), "the newest is kept"
    assert len(model.requests) == 8, "nothing was summed up"


async def test_messages_go_if_that_does_not_suffice(open_agent: OpenAgent, script: Script) -> None:
    script(lambda request: answers("y" * 400, 400))
    session = await talk(await open_agent(Remembers, **{"skills.session.max-tokens": "1000"}), 20)
    said = session.conversation().messages["model"]
    assert 0 < len(said) < 30
    assert said[0].content.startswith("event ")


async def test_a_summary_is_made_without_it(open_agent: OpenAgent, script: Script) -> None:
    model = script(lambda request: "sum" if "memory of an agent" in request.system else answers("y" * 400, 400))
    options = {"skills.session.max-tokens": "1000", "skills.session.strategy": "summarize"}
    await talk(await open_agent(Remembers, **options), 20)
    summaries = [request for request in model.requests if "memory of an agent" in request.system]
    assert summaries
    assert not any(SECRET in message.content for request in summaries for message in request.messages)


async def test_it_is_in_no_record_and_no_log(
    open_agent: OpenAgent, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    script([looks("a"), answers("b")])
    caplog.set_level(logging.DEBUG)
    bench = await open_agent(Remembers)
    bench.runtime = replace(bench.runtime, plan=replace(bench.runtime.plan, outputs="record"))
    outcome = await bench.turn("one")
    [(_, record)] = outcome.outputs
    assert record["output"] == "b"
    assert SECRET not in repr(record)
    assert SECRET not in repr(outcome.session)
    assert SECRET not in caplog.text


async def test_a_record_has_the_details_of_tokens_if_there_are_any(open_agent: OpenAgent, script: Script) -> None:
    script([looks("a"), answers("b"), "c"])
    bench = await open_agent(Remembers)
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
    plan = compile_plan(Remembers, config=SkillConfig({"skills.store.dir": str(tmp_path / "store")}))
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
