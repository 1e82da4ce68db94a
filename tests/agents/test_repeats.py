"""A model that calls a tool again with the same result: the note in the result, the counts, and the end of the turn."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flink_skills import Agent, Tool, ToolContext, ToolResult, ToolSpec, TurnError, agent_tool, tool
from flink_skills.agents import TurnStatus, decode, encode, message_to_json
from flink_skills.models import ModelResponse, ToolCall, UserMessage
from flink_skills.testing import call, calls
from tests.kit.agents import OpenAgent
from tests.kit.models import Script, results

NOTE = "note: the same call gave the same result {} times; change the arguments or answer"


class Shop(Agent):
    model = "scripted:m"

    @tool
    def stock(self, article: str, warehouse: str = "north") -> int:
        """Number of pieces in stock."""
        return len(article)

    @tool
    def broken(self, article: str) -> int:
        """Fails."""
        raise ValueError(f"no article {article}")

    @tool(repeats=True)
    def poll(self) -> str:
        """State of the shop."""
        return "busy"

    @tool
    def count(self, context: ToolContext) -> str:
        """Count the calls in the state of the key."""
        context.state["calls"] = context.state.get("calls", 0) + 1
        return "counted"


def error_of(outcome: Any) -> str:
    assert outcome.status == TurnStatus.FAILED, outcome
    return str(outcome.outputs[-1][1]["error"])


async def test_a_repeated_result_states_how_often(open_agent: OpenAgent, script: Script) -> None:
    same = [calls(call("stock", article="pen")), calls(call("stock", article="pen", warehouse="north"))]
    other = [calls(call("stock", article="ink")), calls(call("broken", article="pen"))]
    model = script([*same, *other, calls(call("stock", article="pen")), calls(call("broken", article="pen")), "done"])
    outcome = await (await open_agent(Shop)).turn("x")
    assert outcome.outputs == (("", "done"),)
    pen, ink, failed = "3", "3", "broken failed: ValueError: no article pen"
    assert results(model) == [
        pen,
        f"{pen}\n\n{NOTE.format(2)}",
        ink,
        failed,
        f"{pen}\n\n{NOTE.format(3)}",
        f"{failed}\n\n{NOTE.format(2)}",
    ]
    # A request begins with the messages of the one before.
    for before, after in zip(model.requests, model.requests[1:], strict=False):
        sent = [message_to_json(message) for message in after.messages]
        assert [message_to_json(message) for message in before.messages] == sent[: len(before.messages)]


async def test_calls_of_one_response_count_one_by_one(open_agent: OpenAgent, script: Script) -> None:
    model = script([calls(*[call("stock", article="pen")] * 3), "done"])
    await (await open_agent(Shop)).turn("x")
    assert sorted(results(model)) == ["3", f"3\n\n{NOTE.format(2)}", f"3\n\n{NOTE.format(3)}"]


@pytest.mark.parametrize("limit", [None, 1, 3])
@pytest.mark.parametrize("name", ["stock", "broken", "unknown"])
async def test_the_turn_fails_after_max_repeats(
    name: str, limit: int | None, open_agent: OpenAgent, script: Script
) -> None:
    article = "p" * 1000
    model = script(lambda request: calls(call(name, article=article)))
    options = {} if limit is None else {"skills.turn.max-repeats": limit}
    error = error_of(await (await open_agent(Shop, **options)).turn("x"))
    most = limit or 5
    assert len(model.requests) == most + 1
    assert error.startswith(f'LimitError: the model goes in circles: {name} {{"article": "ppp')
    assert f"gave the same result {most + 1} times, and skills.turn.max-repeats is {most}. " in error
    assert "ppp…" in error
    assert len(error) < 700


async def test_arguments_without_a_json_object_count_too(open_agent: OpenAgent, script: Script) -> None:
    script(lambda request: ModelResponse("", (ToolCall("c", "stock", "not JSON"),)))
    assert "in circles: stock not JSON gave" in error_of(await (await open_agent(Shop)).turn("x"))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("poll", {}),
        ("stock", {"skills.tool.repeats.stock": "true"}),
        ("count", {}),
    ],
)
async def test_a_tool_that_polls_and_a_state_that_changes_are_no_repeats(
    name: str, options: dict[str, str], open_agent: OpenAgent, script: Script
) -> None:
    model = script([*[calls(call(name, **({"article": "pen"} if name == "stock" else {})))] * 8, "done"])
    assert (await (await open_agent(Shop, **options)).turn("x")).outputs == (("", "done"),)
    assert not any("same call" in result for result in results(model))


async def test_the_option_overrides_the_tool_and_0_is_no_limit(open_agent: OpenAgent, script: Script) -> None:
    script(lambda request: calls(call("poll")))
    assert "in circles: poll" in error_of(
        await (await open_agent(Shop, **{"skills.tool.repeats.poll": "false"})).turn(0)
    )
    model = script([*[calls(call("stock", article="pen"))] * 9, "done"])
    outcome = await (await open_agent(Shop, **{"skills.turn.max-repeats": 0})).turn("x")
    assert outcome.outputs == (("", "done"),)
    assert results(model)[-1] == f"3\n\n{NOTE.format(9)}"


class Timed(Tool):
    """A tool whose result has a duration."""

    spec = ToolSpec("timed", "Look.", {"type": "object", "properties": {}})
    calls = 0

    async def call(self, arguments: Any, context: ToolContext) -> ToolResult:
        self.calls += 1
        return ToolResult(json.dumps({"value": 1, "ms": self.calls}), compared={"value": 1})


async def test_a_tool_selects_the_compared_parts_of_its_result(open_agent: OpenAgent, script: Script) -> None:
    class Clock(Agent):
        model = "scripted:m"

        @tool
        def timed(self) -> Tool:
            return Timed()

    script(lambda request: calls(call("timed")))
    assert "in circles: timed {} gave" in error_of(await (await open_agent(Clock)).turn("x"))


async def test_each_message_to_a_model_and_the_agents_code_count_for_themselves(
    open_agent: OpenAgent, script: Script
) -> None:
    class Loops(Shop):
        async def on_event(self, event: Any, ctx: Any) -> Any:
            for _ in range(8):
                await ctx.call_tool("stock", article="pen")
                try:
                    await ctx.call_tool("broken", article="pen")
                except TurnError as error:
                    assert "same call" not in str(error)
                await ctx.chat("How many pens?")
            return "done"

    model = script([calls(call("stock", article="pen")), "3"] * 8)
    assert (await (await open_agent(Loops)).turn("x")).outputs == (("", "done"),)
    assert set(results(model)) == {"3"}


async def test_a_sub_agent_in_circles_fails_the_turn(open_agent: OpenAgent, script: Script) -> None:
    class Desk(Agent):
        model = "scripted:m"

        @agent_tool
        def shop(self) -> Agent:
            """Knows the stock."""
            return Shop()

    def answer(request: Any) -> Any:
        is_desk = request.messages[0].content == "start"
        return calls(call("shop", request="pens?") if is_desk else call("stock", article="pen"))

    model = script(answer)
    assert "in circles: stock" in error_of(await (await open_agent(Desk)).turn("start"))
    assert len(model.requests) == 7


async def test_repeated_code_of_answers(open_agent: OpenAgent, script: Script) -> None:
    class Coder(Agent):
        model = "scripted:m"
        run_code = True

    model = script(lambda request: "```python\nprint(6 * 7)\n```\n")
    options = {"skills.code.max-rounds": "20", "skills.turn.max-repeats": "2"}
    assert "in circles: run_code" in error_of(await (await open_agent(Coder, **options)).turn("x"))
    told = [message.content for message in model.requests[-1].messages if isinstance(message, UserMessage)]
    assert NOTE.format(2) in told[-1]


async def test_a_resumed_turn_builds_the_same_messages(open_agent: OpenAgent, script: Script) -> None:
    """A failover after each step ends as the turn without one, with the same requests and the same journal."""

    def answer(request: Any) -> Any:
        return calls(call("stock", article="pen"), call("stock", article="pen"), call("broken", article="ink"))

    async def turn(journal: list[bytes]) -> tuple[Any, Any]:
        outcome = await bench.turn("x", journal=journal)
        return [message_to_json(message) for message in model.requests[-1].messages], error_of(outcome)

    model = script(answer)
    bench = await open_agent(Shop)
    whole = await turn([])
    entries = bench.journal
    assert len(entries) == 3 * 4
    for finished in range(len(entries) - 3):
        assert await turn(entries[:finished]) == whole
        assert bench.journal == entries


async def test_the_first_result_has_no_digest_and_that_of_an_earlier_release_counts(
    open_agent: OpenAgent, script: Script
) -> None:
    model = script(lambda request: calls(call("broken", article="pen")) if len(request.messages) < 6 else "done")
    bench = await open_agent(Shop)
    await bench.turn("x")
    told, entries = results(model), [decode(entry) for entry in bench.journal]
    first, second, _ = (entry for entry in entries if "/t" in entry["id"])
    assert "same" not in first["r"]
    digest, times = second["r"]["same"]
    assert times == 2
    first["r"]["same"] = [digest, 1]
    earlier = [encode(entry) for entry in entries]
    for finished in range(2, 6):
        await bench.turn("x", journal=earlier[:finished])
        assert results(model) == told


async def test_an_answering_tool_answers_without_the_note(open_agent: OpenAgent, script: Script) -> None:
    class Answers(Shop):
        @tool
        def last(self) -> Tool:
            return Last()

    class Last(Tool):
        ends_chat = True
        spec = ToolSpec("last", "Answer.", {"type": "object", "properties": {}})

        async def call(self, arguments: Any, context: ToolContext) -> ToolResult:
            return ToolResult("the end")

    script([calls(call("last"), call("stock", article="pen")), calls(call("last"))])
    assert (await (await open_agent(Answers)).turn("x")).outputs == (("", "the end"),)


async def test_an_empty_result_is_named_as_empty(open_agent: OpenAgent, script: Script) -> None:
    class Quiet(Agent):
        model = "scripted:m"

        @tool
        def nothing(self) -> str:
            """Say nothing."""
            return " \n"

    model = script([calls(call("nothing")), "done"])
    await (await open_agent(Quiet)).turn("x")
    assert results(model) == ["(The result is empty.)"]
