"""One turn: the loop of model and tools, its journal, its limits and how it ends."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from flink_skills import Agent, ModelError, ResourceDescriptor, ToolContext, chat_model_setup, tool
from flink_skills.agents import SessionOp, Turn, TurnStart, TurnStatus, decode
from flink_skills.models import ModelResponse, ToolMessage, Usage
from flink_skills.testing import call, calls
from tests.kit.agents import OpenAgent
from tests.kit.models import Script
from tests.kit.waiting import until


class Scripted(Agent):
    model = "scripted:m"


def main_outputs(outcome: Any) -> list[Any]:
    return [value for tag, value in outcome.outputs if not tag]


def error_of(outcome: Any) -> str:
    assert outcome.status == TurnStatus.FAILED, outcome
    ((tag, record),) = outcome.outputs
    assert tag == "errors"
    assert record["output"] is None
    return str(record["error"])


async def test_without_code_the_answer_is_emitted(open_agent: OpenAgent, script: Script) -> None:
    model = script(["hello"])
    bench = await open_agent(Scripted)
    outcome = await bench.turn({"a": 1})
    assert outcome.status == TurnStatus.DONE
    assert main_outputs(outcome) == ["hello"]
    assert model.requests[0].messages[0].content == '{"a": 1}'


@pytest.mark.row("C12", "E13")
async def test_skill_is_loaded_and_its_command_runs_in_its_folder(
    open_agent: OpenAgent, script: Script, skill_folder: Path
) -> None:
    model = script(
        [
            calls(call("load_skill", name="shout")),
            calls(
                call(
                    "execute_shell_command", command="sh scripts/shout.sh; cat $WORK_DIR/inputs/event.json", stdin="abc"
                )
            ),
            "done",
        ]
    )
    bench = await open_agent(Scripted, skill_folder)
    outcome = await bench.turn({"text": "x"})
    assert main_outputs(outcome) == ["done"]
    loaded, ran = (m for m in model.requests[2].messages if isinstance(m, ToolMessage))
    assert "sh scripts/shout.sh" in loaded.content
    assert "notes.md" in loaded.content
    assert "ABC" in ran.content
    assert '{"text": "x"}' in ran.content


@pytest.mark.parametrize(
    ("event", "read"), [({"text": "ä"}, '{"text": "ä"}'), ('an "ä"', 'an "ä"'), ([1], "[1]"), (7, "7")]
)
@pytest.mark.parametrize("tool", ["execute_shell_command", "skill_run"])
async def test_a_command_reads_the_event_on_standard_input(
    tool: str, event: Any, read: str, open_agent: OpenAgent, script: Script, skill_folder: Path
) -> None:
    ran = {"command": "cat", "stdin": " ${EVENT}\n"} if tool == "skill_run" else {"command": "cat", "stdin": "$EVENT"}
    load = call("skill_load", skill="shout") if tool == "skill_run" else call("load_skill", name="shout")
    more = {"skill": "shout"} if tool == "skill_run" else {}
    model = script([calls(load), calls(call(tool, **ran, **more)), "done"])
    options = {"skills.tools": "full"} if tool == "skill_run" else {}
    bench = await open_agent(Scripted, skill_folder, **options)
    assert main_outputs(await bench.turn(event)) == ["done"]
    result = [m for m in model.requests[-1].messages if isinstance(m, ToolMessage)][-1].content
    found = json.loads(result)["stdout"] if tool == "skill_run" else result.split("stdout:\n")[1].split("\nstderr")[0]
    assert found == read


@pytest.mark.row("J5")
async def test_tool_calls_of_one_response_run_at_the_same_time(open_agent: OpenAgent, script: Script) -> None:
    model = script([calls(call("meet", name="a"), call("meet", name="b")), "met"])
    bench = await open_agent(Meeting)
    outcome = await bench.turn("go")
    assert main_outputs(outcome) == ["met"]
    results = [m.content for m in model.requests[1].messages if isinstance(m, ToolMessage)]
    assert results == ["a", "b"]


async def test_a_response_leaves_before_the_tool_is_called_that_it_asks_for(
    open_agent: OpenAgent, script: Script
) -> None:
    written: list[bytes] = []

    class Looks(Scripted):
        @tool
        def look(self) -> int:
            """Return the number of steps that have left the process."""
            return len(written)

    def append(entry: bytes, reset: bool, outputs: object) -> None:
        # As the connection of a worker does: what a round of the loop finishes is written in the next one.
        asyncio.get_running_loop().call_soon(written.append, entry)

    model = script([calls(call("look")), "done"])
    bench = await open_agent(Looks)
    await Turn(bench.runtime, TurnStart('"k"', 1, b"x", "x"), append).run()
    assert model.requests[1].messages[-1].content == "1"


async def test_unknown_tool_is_answered_with_what_there_is(
    open_agent: OpenAgent, script: Script, skill_folder: Path
) -> None:
    model = script([calls(call("load_skil", name="shout")), "sorry"])
    bench = await open_agent(Scripted, skill_folder)
    assert main_outputs(await bench.turn("x")) == ["sorry"]
    answer = model.requests[1].messages[-1]
    assert answer.is_error
    assert "load_skill" in answer.content


async def test_finished_steps_are_replayed_and_not_repeated(open_agent: OpenAgent, script: Script) -> None:
    """A failover after each step in turn ends like the turn without one, and asks the model only for the rest."""

    class Steps(Scripted):
        async def on_event(self, event: Any, ctx: Any) -> Any:
            first = await ctx.chat("one")
            second = await ctx.step("double", lambda n: [n, ctx.call_id], 21)
            third = await ctx.chat("two")
            ctx.state["n"] = ctx.state.get("n", 0) + 1
            return [first, second, third, ctx.state["n"], ctx.usage.requests]

    answers = {"one": "1", "two": "2"}
    model = script(lambda request: ModelResponse(answers[request.messages[-1].content], usage=Usage(1, 1, 1)))
    bench = await open_agent(Steps)
    whole = await bench.turn("e")
    journal = list(bench.journal)
    assert len(journal) == 3
    assert len(model.requests) == 2
    for finished in range(len(journal) + 1):
        model.requests.clear()
        again = await bench.turn("e", journal=journal[:finished])
        assert again.outputs == whole.outputs
        assert again.change == whole.change
        assert bench.journal == journal
        assert len(model.requests) == sum(entry["id"].startswith("chat") for entry in map(decode, journal[finished:]))


async def test_step_that_asks_for_something_else_starts_the_turn_anew(open_agent: OpenAgent, script: Script) -> None:
    class Changing(Scripted):
        async def on_event(self, event: Any, ctx: Any) -> Any:
            return await ctx.step("s", lambda n: n, event)

    bench = await open_agent(Changing)
    await bench.turn(1)
    old = list(bench.journal)
    outcome = await bench.turn(2, journal=old)
    assert main_outputs(outcome) == [2]
    assert [decode(entry)["id"] for entry in bench.journal] == ["anew", "step:s#0"]


async def test_call_ids_depend_on_key_number_event_and_step_alone(open_agent: OpenAgent, script: Script) -> None:
    class Ids(Scripted):
        @tool
        def id_of_call(self, context: ToolContext) -> str:
            "The id."
            return context.call_id

        async def on_event(self, event: Any, ctx: Any) -> Any:
            return [await ctx.call_tool("id_of_call"), await ctx.call_tool("id_of_call"), ctx.call_id]

    bench = await open_agent(Ids)
    ids = main_outputs(await bench.turn("e"))[0]
    assert len(set(ids)) == 3
    assert main_outputs(await bench.turn("e"))[0] == ids
    for other in ({"key": '"other"'}, {"number": 2}, {"event_bytes": b"other"}):
        assert not set(ids) & set(main_outputs(await bench.turn("e", **other))[0])


async def test_answer_that_does_not_fit_is_asked_for_again(open_agent: OpenAgent, script: Script) -> None:
    model = script(["no idea", '```json\n{"city": "Ulm", "size": "large"}\n```', '{"city": "Ulm", "size": 3}'])
    bench = await open_agent(CityAgent)
    assert main_outputs(await bench.turn("x")) == [City(city="Ulm", size=3)]
    assert "size" in model.requests[2].messages[-1].content
    assert model.requests[0].output_schema is not None


async def test_model_that_never_fits_is_an_error(open_agent: OpenAgent, script: Script) -> None:
    model = script(lambda request: "no")
    bench = await open_agent(CityAgent, None, **{"skills.turn.max-output-retries": 2})
    assert "no usable answer after 3 attempts" in error_of(await bench.turn("x"))
    assert len(model.requests) == 3


async def test_transient_model_errors_are_retried_and_others_not(open_agent: OpenAgent, script: Script) -> None:
    model = script([ModelError("busy", retryable=True, retry_after=0.0), "done"])
    bench = await open_agent(Scripted, None, **{"skills.model.retry-backoff": "1 ms"})
    assert main_outputs(await bench.turn("x")) == ["done"]
    model = script([ModelError("no such model")])
    bench = await open_agent(Scripted)
    assert "no such model" in error_of(await bench.turn("x"))
    assert len(model.requests) == 1


async def test_retries_end(open_agent: OpenAgent, script: Script) -> None:
    model = script(lambda request: ModelError("busy", retryable=True))
    bench = await open_agent(Scripted, None, **{"skills.model.retry-backoff": "1 ms", "skills.model.max-retries": 2})
    assert "given up after 3 attempts" in error_of(await bench.turn("x"))
    assert len(model.requests) == 3


async def test_endless_tool_calls_reach_the_step_limit(open_agent: OpenAgent, script: Script) -> None:
    script(lambda request: calls(call("nothing")))
    bench = await open_agent(Scripted, None, **{"skills.turn.max-steps": 7})
    assert "skills.turn.max-steps = 7" in error_of(await bench.turn("x"))
    assert len(bench.journal) == 7


async def test_token_limit(open_agent: OpenAgent, script: Script) -> None:
    script([ModelResponse("x", usage=Usage(90, 20, 1))])
    bench = await open_agent(Scripted, None, **{"skills.turn.max-tokens": 100})
    assert "110 tokens" in error_of(await bench.turn("x"))


async def test_turn_that_takes_too_long_is_an_error(open_agent: OpenAgent, script: Script) -> None:
    async def hang(request: Any) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    script(hang)
    bench = await open_agent(Scripted, None, **{"skills.turn.timeout": "50 ms"})
    assert "skills.turn.timeout" in error_of(await bench.turn("x"))


async def test_cancelling_from_outside_is_no_error_record(open_agent: OpenAgent, script: Script) -> None:
    started = asyncio.Event()

    async def hang(request: Any) -> str:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    script(hang)
    bench = await open_agent(Scripted)
    task = asyncio.create_task(bench.turn("x"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("failure", "message"),
    [(ValueError("bad event"), "ValueError: bad event"), (SystemExit(3), "sys.exit(3)")],
)
async def test_exception_of_the_agent_is_an_error_record_with_its_event(
    open_agent: OpenAgent, script: Script, failure: BaseException, message: str
) -> None:
    bench = await open_agent(Failing(failure))
    outcome = await bench.turn({"n": 1})
    assert message in error_of(outcome)
    assert outcome.outputs[0][1]["event"] == {"n": 1}
    assert outcome.change.op == SessionOp.KEEP


async def test_on_error_fail_fails_the_job(open_agent: OpenAgent, script: Script) -> None:
    bench = await open_agent(Failing(ValueError("bad")), None, **{"skills.turn.on-error": "fail"})
    outcome = await bench.turn("x")
    assert outcome.status == TurnStatus.FAIL_JOB
    assert outcome.outputs == ()
    assert "bad" in outcome.message


async def test_turn_that_kills_its_worker_again_and_again_is_given_up(open_agent: OpenAgent, script: Script) -> None:
    model = script(["never"])
    bench = await open_agent(Scripted)
    assert "3 times" in error_of(await bench.turn("x", crashes=3))
    assert model.requests == []


async def test_emit_side_outputs_and_return(open_agent: OpenAgent, script: Script) -> None:
    class Emits(Scripted):
        async def on_event(self, event: Any, ctx: Any) -> Any:
            ctx.emit(1)
            ctx.emit_to("audit", ctx.key)
            return 2

    outcome = await (await open_agent(Emits)).turn("x")
    assert outcome.outputs == (("", 1), ("audit", "k"), ("", 2))


async def test_conversation_goes_on_over_the_events_of_a_key(open_agent: OpenAgent, script: Script) -> None:
    class Remembers(Scripted):
        session = "key"

    model = script(lambda request: str(len(request.messages)))
    bench = await open_agent(Remembers)
    first = await bench.turn("a")
    second = await bench.turn("b", number=2, session=first.session)
    assert main_outputs(second) == ["3"]
    assert [m.content for m in model.requests[1].messages] == ["a", "1", "b"]
    assert second.change.op == SessionOp.APPEND


async def test_models_do_not_read_each_others_conversations(open_agent: OpenAgent, script: Script) -> None:
    class Two(Agent):
        session = "key"

        @chat_model_setup
        @staticmethod
        def first() -> ResourceDescriptor:
            return ResourceDescriptor(clazz="scripted:a")

        @chat_model_setup
        @staticmethod
        def second() -> ResourceDescriptor:
            return ResourceDescriptor(clazz="scripted:b")

        async def on_event(self, event: Any, ctx: Any) -> Any:
            return [await ctx.chat("for a"), await ctx.chat("for b", model="second")]

    model = script(lambda request: "x")
    await (await open_agent(Two)).turn("e")
    assert [m.content for m in model.requests[1].messages] == ["for b"]


async def test_agent_without_models_and_skills(open_agent: OpenAgent) -> None:
    class Counter(Agent):
        async def on_event(self, event: Any, ctx: Any) -> Any:
            return await ctx.step("n", lambda: 1)

    assert main_outputs(await (await open_agent(Counter)).turn("x")) == [1]


async def test_result_of_a_step_must_be_keepable(open_agent: OpenAgent, script: Script) -> None:
    class Typed(Scripted):
        async def on_event(self, event: Any, ctx: Any) -> Any:
            city = await ctx.step("typed", lambda: City(city="Ulm", size=1), result_type=City)
            assert isinstance(city, City)
            return await ctx.step("socket", object)

    assert "'socket' returned object" in error_of(await (await open_agent(Typed)).turn("x"))


class City(BaseModel):
    city: str
    size: int


class CityAgent(Scripted):
    output_type = City


class Meeting(Scripted):
    """Its tool ends only when it runs twice at once. Importable, so the runtime's instance is made from this class."""

    arrived: ClassVar[list[str]] = []

    @tool
    async def meet(self, name: str) -> str:
        "Waits for the other."
        self.arrived.append(name)
        # An event would belong to the loop of the first test that made it.
        await until(lambda: len(self.arrived) == 2, "both calls")
        return name


class Failing(Scripted):
    def __init__(self, failure: BaseException) -> None:
        self.failure = failure

    async def on_event(self, event: Any, ctx: Any) -> Any:
        raise self.failure


class Talks(Agent):
    model = "scripted:m"
    session = "key"

    @tool
    def look(self, text: str) -> str:
        """Looks at a text."""
        return f"seen {text}\ud801"


async def test_halves_of_a_character_do_not_spoil_a_conversation(open_agent: OpenAgent, script: Script) -> None:
    # JSON can write what no encoding takes; a request with it would fail, and so would all that come after it.
    model = script([calls(call("look", text="a\ud800", **{"k\ud800": ["\udc00", "\ud83d\ude00"]})), "b\udfff", "good"])
    bench = await open_agent(Talks)
    first = await bench.turn({"said": "\ud800"})
    assert main_outputs(first) == ["b\ufffd"]
    assert main_outputs(await bench.turn("second", number=2, session=first.session)) == ["good"]
    for request in model.requests:
        repr(request.messages).encode()
        for message in request.messages:
            message.content.encode()
    (asked,) = model.requests[1].messages[1].tool_calls
    assert asked.arguments == {"text": "a\ufffd", "k\ufffd": ["\ufffd", "\U0001f600"]}


@pytest.mark.parametrize("number", [10**5_000, [10**5_000]], ids=["alone", "in a list"])
async def test_a_model_is_told_of_an_integer_that_json_does_not_write(
    open_agent: OpenAgent, script: Script, number: Any
) -> None:
    # Clients that read arguments themselves hand such a number on; the journal could not keep it.
    model = script([calls(call("look", text="a", times=number)), "good"])
    assert main_outputs(await (await open_agent(Talks)).turn("first")) == ["good"]
    told = model.requests[1].messages[-1]
    assert (told.is_error, told.name) == (True, "look")
    assert told.content.startswith("look: the arguments are not valid JSON")
    assert "an integer has too many digits" in told.content
