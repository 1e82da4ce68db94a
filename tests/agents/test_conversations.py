"""Named and fresh conversations of ``ctx.chat``, and conversations with agents that are tools."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from flink_skills import FRESH, Agent, AgentContext, PlanError, agent_tool
from flink_skills.agents import Session, TurnOutcome, TurnStatus, compile_plan, decode
from flink_skills.models import ModelRequest, ToolMessage, UserMessage
from flink_skills.testing import call, calls
from tests.kit.agents import Bench, OpenAgent
from tests.kit.models import Script


def said(request: ModelRequest) -> list[str]:
    return [message.content for message in request.messages if isinstance(message, UserMessage)]


class Talks(Agent):
    """Makes the chats that its event lists."""

    instructions = "You talk."
    model = "scripted:m"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        for message, options in event:
            await ctx.chat(message, **options)


class Remembers(Talks):
    session = "key"


@pytest.mark.parametrize("agent", [Talks, Remembers])
async def test_conversations_with_one_model_have_their_own_messages(
    open_agent: OpenAgent, script: Script, agent: type[Agent]
) -> None:
    model = script(lambda request: "ok")
    bench = await open_agent(agent)
    critic = {"conversation": "critic"}
    await bench.turn([("a", {}), ("b", critic), ("c", {"conversation": FRESH}), ("d", {}), ("e", critic)])
    assert list(map(said, model.requests)) == [["a"], ["b"], ["c"], ["a", "d"], ["b", "e"]]


async def test_named_conversations_continue_in_later_turns_and_fresh_ones_do_not(
    open_agent: OpenAgent, script: Script
) -> None:
    model = script(lambda request: "ok")
    bench = await open_agent(Remembers)
    event = [("a", {}), ("b", {"conversation": "critic"}), ("c", {"conversation": FRESH})]
    first = await bench.turn(event)
    assert sorted(first.session.conversation().messages) == ["model", "model#critic"]
    stored = Session.decode(first.change.chunks)
    model.requests.clear()
    await bench.turn(event, number=2, session=stored)
    assert list(map(said, model.requests)) == [["a", "a"], ["b", "b"], ["c"]]


async def test_instructions_of_a_call_replace_those_of_the_model(open_agent: OpenAgent, script: Script) -> None:
    model = script(lambda request: "ok")
    bench = await open_agent(Talks)
    critic = {"conversation": "critic", "system": "You find mistakes in {{braces}}."}
    await bench.turn([("a", critic), ("b", {"conversation": "critic"}), ("c", {"system": ""})])
    assert [request.system for request in model.requests] == ["You find mistakes in {{braces}}.", "You talk.", ""]


async def test_a_replay_has_the_same_conversations_and_a_changed_name_restarts_the_turn(
    open_agent: OpenAgent, script: Script
) -> None:
    model = script(lambda request: f"answer {len(request.messages)}")
    bench = await open_agent(Remembers)
    event = [("a", {"conversation": "x"}), ("b", {"conversation": "x"}), ("c", {"conversation": FRESH})]
    whole = await bench.turn(event)
    journal = list(bench.journal)
    model.requests.clear()
    again = await bench.turn(event, journal=journal[:2], crashes=1)
    assert again.session.conversations == whole.session.conversations
    assert list(map(said, model.requests)) == [["c"]]
    model.requests.clear()
    await bench.turn([("a", {"conversation": "y"})], journal=journal, crashes=1)
    assert list(map(said, model.requests)) == [["a"]]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"conversation": ""}, "conversation is '': give a string of 1 to 100 characters, FRESH or None"),
        ({"conversation": 7}, "conversation is 7"),
        ({"conversation": "x" * 101}, "give a string of 1 to 100 characters"),
        ({"system": 7}, "system is of type int: give the instructions as a string"),
    ],
)
async def test_wrong_arguments_are_errors(open_agent: OpenAgent, options: Any, problem: str) -> None:
    bench = await open_agent(Talks)
    outcome = await bench.turn([("a", options)])
    assert outcome.status == TurnStatus.FAILED
    assert problem in outcome.message


# Conversations with agents that are tools


class Researcher(Agent):
    """Researches a topic."""

    model = "scripted:child"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return await ctx.chat(event)


class Desk(Agent):
    model = "scripted:m"
    session = "key"

    @agent_tool(sessions=True)
    def research(self) -> Agent:
        return Researcher()

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        if isinstance(event, str):
            return await ctx.chat(event)
        return [await ctx.call_tool("research", arguments) for arguments in event]


def asks(*sessions: str) -> list[dict[str, str]]:
    requests = [{"request": f"question {number}", "session_id": of} for number, of in enumerate(sessions, 1)]
    return [{name: value for name, value in of.items() if value} for of in requests]


async def turns(bench: Bench, *events: Any) -> list[TurnOutcome]:
    """Run turns of one key. The session of each is read from the chunks that the turns before it wrote."""
    chunks: list[bytes] = []
    outcomes = []
    for number, event in enumerate(events, 1):
        outcome = await bench.turn(event, number=number, session=Session.decode(chunks))
        chunks = [*chunks, *outcome.change.chunks] if outcome.change.op.name == "APPEND" else [*outcome.change.chunks]
        outcomes.append(outcome)
    return outcomes


async def test_calls_with_a_session_id_continue_a_conversation_in_the_turn_and_in_later_ones(
    open_agent: OpenAgent, script: Script
) -> None:
    model = script(lambda request: "ok")
    bench = await open_agent(Desk)
    first, _ = await turns(bench, asks("a", "b", "", "a"), asks("a"))
    assert list(map(said, model.requests)) == [
        ["question 1"],
        ["question 2"],
        ["question 3"],
        ["question 1", "question 4"],
        ["question 1", "question 4", "question 1"],
    ]
    assert sorted(first.session.conversation().messages) == ["research@a/model", "research@b/model"]


async def test_the_journal_has_the_conversation_so_a_replay_calls_no_agent(
    open_agent: OpenAgent, script: Script
) -> None:
    model = script(lambda request: f"answer to {said(request)}")
    bench = await open_agent(Desk)
    event = asks("a", "a", "b")
    whole = await bench.turn(event)
    journal = list(bench.journal)
    model.requests.clear()
    for done in range(len(journal) + 1):
        again = await bench.turn(event, journal=journal[:done], crashes=1)
        assert again.outputs == whole.outputs
        assert again.session.conversations == whole.session.conversations


async def test_calls_of_one_response_with_the_same_id_run_one_after_another(
    open_agent: OpenAgent, script: Script
) -> None:
    running, most = 0, 0

    class Slow(Researcher):
        async def on_event(self, event: Any, ctx: AgentContext) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            answer = await ctx.chat(event)
            running -= 1
            return answer

    class Both(Desk):
        @agent_tool(sessions=True)
        def research(self) -> Agent:
            return Slow()

    def answers(request: ModelRequest) -> Any:
        if request.tools and not any(isinstance(of, ToolMessage) for of in request.messages):
            return calls(*(call("research", request=text, session_id=of) for text, of in (("1", "a"), ("2", "a"))))
        return "ok"

    model = script(answers)
    bench = await open_agent(Both)
    assert (await bench.turn("go")).status == TurnStatus.DONE
    assert [said(request) for request in model.requests if not request.tools] == [["1"], ["1", "2"]]
    assert most == 1


async def test_a_tool_keeps_the_conversations_that_were_used_last(open_agent: OpenAgent, script: Script) -> None:
    script(lambda request: "ok")
    bench = await open_agent(Desk)
    names = [f"s{number}" for number in range(33)]
    outcomes = await turns(bench, *(asks(name) for name in names))
    kept = outcomes[-1].session.conversation()
    assert list(kept.messages) == [f"research@{name}/model" for name in names[1:]]
    assert set(kept.skill_states) <= set(kept.messages)


async def test_a_long_conversation_of_an_agent_tool_is_shortened(open_agent: OpenAgent, script: Script) -> None:
    model = script(lambda request: "word " * 200)
    bench = await open_agent(Desk, **{"skills.session.max-tokens": 1000})
    outcomes = await turns(bench, *[asks("a")] * 12)
    assert {outcome.status for outcome in outcomes} == {TurnStatus.DONE}
    assert max(len(request.messages) for request in model.requests) < 12
    assert outcomes[-1].session.conversation().about_tokens("research@a/model") < 2000


async def test_ids_of_another_form_are_errors_for_the_model(open_agent: OpenAgent, script: Script) -> None:
    model = script([calls(call("research", request="x", session_id="a/b")), "done"])
    bench = await open_agent(Desk)
    await bench.turn("go")
    result = model.requests[1].messages[-1]
    assert result.content == "research: session_id has 1 to 64 letters, digits, '.', '_', ':' and '-'"


async def test_without_sessions_there_is_no_such_argument(open_agent: OpenAgent, script: Script) -> None:
    class Plain(Agent):
        model = "scripted:m"

        @agent_tool
        def research(self) -> Agent:
            return Researcher()

    model = script(lambda request: "ok")
    for agent, arguments in ((Plain, ["request"]), (Desk, ["request", "session_id"])):
        bench = await open_agent(agent)
        await bench.turn("x")
        assert list(model.requests[-1].tools[-1].parameters["properties"]) == arguments


def test_an_input_type_with_a_field_of_this_name_is_an_error_at_submit() -> None:
    class Question(BaseModel):
        session_id: str

    class Typed(Researcher):
        input_type = Question
        model = "offline"

    class Asks(Agent):
        model = "offline"

        @agent_tool(sessions=True)
        def research(self) -> Agent:
            return Typed()

    with pytest.raises(PlanError, match="input_type has a field session_id, which sessions=True adds: rename it"):
        compile_plan(Asks)


# Several at the same time


class Counts(Agent):
    """Makes steps."""

    input_type: ClassVar[Any] = None
    started: ClassVar[list[str]] = []
    together: ClassVar[asyncio.Event]

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        Counts.started.append(event)
        if len(Counts.started) == 3:
            Counts.together.set()
        await Counts.together.wait()
        return [await ctx.step("count", abs, number) for number in range(4)]


class Starts(Agent):
    @agent_tool
    def count(self) -> Agent:
        return Counts()

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        running = asyncio.gather(*(ctx.call_tool("count", request=name) for name in "abc"))
        before = await ctx.step("before", len, "four")
        return before, await running


async def test_agents_run_at_the_same_time_and_are_awaited_later(open_agent: OpenAgent) -> None:
    bench = await open_agent(Starts)
    Counts.started, Counts.together = [], asyncio.Event()
    whole = await bench.turn("x")
    assert whole.outputs == (("", (4, [[0, 1, 2, 3]] * 3)),)
    journal = list(bench.journal)
    for done in range(len(journal)):
        Counts.started, Counts.together = [], asyncio.Event()
        Counts.together.set()
        again = await bench.turn("x", journal=journal[:done], crashes=1)
        assert again.outputs == whole.outputs
        assert {decode(entry)["id"] for entry in bench.journal} == {decode(entry)["id"] for entry in journal}


async def test_they_have_the_limits_of_their_caller(open_agent: OpenAgent) -> None:
    bench = await open_agent(Starts, **{"skills.turn.max-steps": 12})
    Counts.started, Counts.together = [], asyncio.Event()
    outcome = await bench.turn("x")
    assert outcome.status == TurnStatus.FAILED
    assert "the turn reached skills.turn.max-steps = 12" in outcome.message
