"""Agents as tools: what they get, what they give back, and what one call of them may cost."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from flink_skills import Agent, AgentContext, PlanError, agent_tool
from flink_skills.agents import decode
from flink_skills.models import AssistantMessage, ToolMessage, UserMessage
from flink_skills.testing import call, calls
from tests.kit.agents import OpenAgent
from tests.kit.models import Script

pytestmark = pytest.mark.row("J12")


class Question(BaseModel):
    job: str
    days: int = 1


class Finding(BaseModel):
    job: str
    cause: str


class Researcher(Agent):
    """Looks into one incident."""

    name = "researcher"
    model = "scripted:m"
    instructions = "You research."
    input_type = Question
    output_type = Finding


class Talker(Agent):
    name = "talker"
    model = "scripted:m"
    instructions = "You talk."


def desk_with(callee: type[Agent], tool_name: str = "ask", desk_output: Any = None, **manner: Any) -> type[Agent]:
    class Desk(Agent):
        name = "desk"
        model = "scripted:m"
        instructions = "You decide."
        output_type = desk_output

        @agent_tool(name=tool_name, **manner)
        def other(self) -> Agent:
            return callee()

    return Desk


def by_agent(**answers: Any) -> Any:
    """A script for several agents, told apart by their instructions."""
    left = {name: list(of) for name, of in answers.items()}

    def answer(request: Any) -> Any:
        name = next(name for name in left if name in request.system)
        assert left[name], f"{name} was asked once more"
        return left[name].pop(0)

    return answer


def of(model: Any, name: str) -> list[Any]:
    return [request for request in model.requests if name in request.system]


async def test_input_and_output_have_schemas(open_agent: OpenAgent, script: Script) -> None:
    model = script(
        by_agent(
            decide=[calls(call("ask", job="cart", days="2")), "done"],
            research=["no JSON", '{"job": "cart", "cause": "heap"}'],
        )
    )
    bench = await open_agent(desk_with(Researcher))
    assert (await bench.turn("x")).outputs == (("", "done"),)
    [spec] = of(model, "decide")[0].tools
    assert (spec.name, spec.description) == ("ask", "Looks into one incident.")
    assert spec.parameters["required"] == ["job"]
    assert '"days":2' in of(model, "research")[0].messages[0].content.replace(" ", "")
    assert of(model, "decide")[1].messages[-1].content == '{"job": "cart", "cause": "heap"}'
    steps = [decode(entry)["id"] for entry in bench.journal]
    assert steps == ["chat#0/m0", "chat#0/t0.0/chat#0/m0", "chat#0/t0.0/chat#0/m1", "chat#0/t0.0", "chat#0/m1"]


async def test_what_does_not_fit_is_a_result(open_agent: OpenAgent, script: Script) -> None:
    model = script(by_agent(decide=[calls(call("ask", days=2)), "done"], research=[]))
    await (await open_agent(desk_with(Researcher))).turn("x")
    result = model.requests[-1].messages[-1]
    assert (result.is_error, result.content) == (True, "ask: the arguments do not fit: job: Field required")


async def test_its_answer_may_be_the_answer(open_agent: OpenAgent, script: Script) -> None:
    model = script(by_agent(decide=[calls(call("ask", request="?")), "next"], talk=["the answer"]))
    desk = desk_with(Talker, skip_summarization=True)
    desk.session = "key"
    bench = await open_agent(desk)
    outcome = await bench.turn("x")
    assert outcome.outputs == (("", "the answer"),)
    assert len(of(model, "decide")) == 1, "the caller's model is not asked again"
    replayed = await bench.turn("x", journal=bench.journal)
    assert replayed.outputs == outcome.outputs
    await bench.turn("y", number=2, session=outcome.session)
    kinds = [type(message) for message in model.requests[-1].messages]
    assert kinds == [UserMessage, AssistantMessage, ToolMessage, AssistantMessage, UserMessage]


@pytest.mark.parametrize("answer", ['{"job": "cart", "cause": "heap"}', "no JSON at all"])
async def test_only_if_it_fits_what_the_caller_is_asked_for(open_agent: OpenAgent, script: Script, answer: str) -> None:
    model = script(by_agent(decide=[calls(call("ask", request="?")), '{"job": "a", "cause": "b"}'], talk=[answer]))
    bench = await open_agent(desk_with(Talker, skip_summarization=True, desk_output=Finding))
    [(_, found)] = (await bench.turn("x")).outputs
    fits = answer.startswith("{")
    assert found.cause == ("heap" if fits else "b")
    assert len(of(model, "decide")) == (1 if fits else 2)


async def test_several_calls_and_failed_ones_are_summed_up(open_agent: OpenAgent, script: Script) -> None:
    twice = calls(call("ask", request="1"), call("ask", request="2"))
    script(by_agent(decide=[twice, "both"], talk=["a", "b"]))
    bench = await open_agent(desk_with(Talker, skip_summarization=True))
    assert (await bench.turn("x")).outputs == (("", "both"),)
    script(by_agent(decide=[calls(call("ask", request="")), "nothing"], talk=[]))
    bench = await open_agent(desk_with(Talker, skip_summarization=True))
    assert (await bench.turn("x")).outputs == (("", "nothing"),)


class Cart(Agent):
    """Changes the state that it shares."""

    name = "cart"
    made = 0

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        Cart.made += 1
        ctx.state.setdefault("items", []).append(event)
        ctx.state.pop("empty", None)
        return len(ctx.state["items"])


class Shop(Agent):
    name = "shop"
    model = "scripted:m"

    @agent_tool(share_state=True)
    def add(self) -> Agent:
        return Cart()

    @agent_tool
    def apart(self) -> Agent:
        return Cart()

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        ctx.state.update(empty=True, kept=1)
        state = ctx.state
        said = await ctx.chat(event)
        return said, dict(state)


async def test_state_is_shared_where_that_is_wanted(open_agent: OpenAgent, script: Script) -> None:
    wanted = calls(call("add", request="a"), call("add", request="b"), call("apart", request="c"))
    model = script(lambda request: "done" if isinstance(request.messages[-1], ToolMessage) else wanted)
    bench = await open_agent(Shop)
    Cart.made = 0
    outcome = await bench.turn("x")
    assert outcome.outputs == (("", ("done", {"kept": 1, "items": ["a", "b"]})),)
    results = [message.content for message in model.requests[-1].messages if isinstance(message, ToolMessage)]
    assert results == ["1", "2", "1"]
    assert outcome.session.state == {"kept": 1, "items": ["a", "b"]}
    journal = list(bench.journal)
    for kept in range(len(journal) + 1):
        again = await bench.turn("x", journal=journal[:kept])
        assert again.outputs == outcome.outputs, kept
    assert Cart.made == 3 + 3 + 3 + 2 + 1 + 0 + 0, "finished ones are not called again"


class Counts(BaseModel):
    seen: int = 0
    other: str = "o"


async def test_states_with_a_type_share_the_fields_that_both_have(open_agent: OpenAgent) -> None:
    class Counter(Agent):
        name = "counter"
        state_type = Counts

        async def on_event(self, event: Any, ctx: AgentContext) -> Any:
            ctx.state.seen += 1
            return "ok"

    class Keeper(Agent):
        name = "keeper"

        class Kept(BaseModel):
            seen: int = 41

        state_type = Kept

        @agent_tool(share_state=True)
        def count(self) -> Agent:
            return Counter()

        async def on_event(self, event: Any, ctx: AgentContext) -> Any:
            await ctx.call_tool("count", request="x")
            return ctx.state.model_dump()

    outcome = await (await open_agent(Keeper)).turn("x")
    assert outcome.outputs == (("", {"seen": 42}),)


async def test_a_call_has_a_budget_of_its_own(open_agent: OpenAgent, script: Script) -> None:
    class Busy(Agent):
        name = "busy"

        async def on_event(self, event: Any, ctx: AgentContext) -> Any:
            for number in range(10):
                await ctx.step("look", str, number)
            return "never"

    script([calls(call("ask", request="?")), "went on"])
    bench = await open_agent(desk_with(Busy, max_steps=4))
    outcome = await bench.turn("x")
    assert outcome.outputs == (("", "went on"),)
    model = bench.runtime.generation.model(None).chat_model
    assert (
        model.requests[-1].messages[-1].content == "ask failed: the agent did not return an answer within its 4 steps"
    )
    assert (await bench.turn("x", journal=bench.journal)).outputs == outcome.outputs

    class Middle(Agent):
        name = "middle"

        @agent_tool
        def busy(self) -> Agent:
            return Busy()

        async def on_event(self, event: Any, ctx: AgentContext) -> Any:
            return await ctx.call_tool("busy", request="?")

    script([calls(call("ask", request="?")), "went on"])
    bench = await open_agent(desk_with(Middle, max_steps=6))
    assert (await bench.turn("x")).outputs == (("", "went on"),), "what it calls counts, too"


class Slow(Agent):
    """Hangs when it is called for the first time, after its step."""

    name = "slow"
    ids: ClassVar[list[str]] = []

    async def on_event(self, event: Any, ctx: AgentContext) -> str:
        async def pay() -> None:
            self.ids.append(ctx.call_id)

        await ctx.step("pay", pay)
        if len(self.ids) == 1:
            await asyncio.Event().wait()
        return "paid"


async def test_a_repeated_call_has_the_call_ids_of_the_first(open_agent: OpenAgent, script: Script) -> None:
    script([calls(call("ask", request="pay")), "done"])
    bench = await open_agent(desk_with(Slow), **{"skills.tool.timeout.ask": 0.2, "skills.tool.retries.ask": 1})
    Slow.ids.clear()
    outcome = await bench.turn("x")
    assert outcome.outputs == (("", "done"),)
    assert len(Slow.ids) == 2
    assert len(set(Slow.ids)) == 1


async def test_the_limit_of_the_turn_is_above_all(open_agent: OpenAgent, script: Script) -> None:
    script(lambda request: calls(call("ask", request="?")))
    bench = await open_agent(desk_with(Talker, max_steps=4), **{"skills.turn.max-steps": "3"})
    [(tag, record)] = (await bench.turn("x")).outputs
    assert (tag, "skills.turn.max-steps = 3" in record["error"]) == ("errors", True)


async def test_circles_depth_and_wrong_limits_are_errors_at_submission(open_agent: OpenAgent) -> None:
    class Round(Agent):
        name = "round"
        model = "scripted:m"

        @agent_tool
        def again(self) -> Agent:
            return Round()

    with pytest.raises(PlanError, match="its tool 'again' leads back to agent round"):
        await open_agent(Round)
    chain: type[Agent] = Talker
    for number in range(5):
        chain = desk_with(chain)
        chain.name = f"desk-{number}"
    with pytest.raises(PlanError, match="agents call each other 5 deep"):
        await open_agent(chain)
    with pytest.raises(PlanError, match="max_steps is -1; give a whole number"):
        await open_agent(desk_with(Talker, max_steps=-1))
