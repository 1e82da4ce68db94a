"""Conversations that are over their limit: what goes, what stays, and that it is the same after a restart.

Examines the internals of agents.history on purpose.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_skills import Agent, ModelError, PlanError, tool
from flink_skills.agents import Session, SessionOp, compile_plan
from flink_skills.agents.state.history import about_tokens_of, cut
from flink_skills.models import AssistantMessage, Message, ModelResponse, ToolCall, ToolMessage, UserMessage
from flink_skills.testing import call, calls
from tests.kit.agents import OpenAgent
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
