"""Spans of turns: their names, places and attributes, and one trace per turn whatever happens to it.

Examines the internals of telemetry.tracing on purpose.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from flink_skills import ModelError, SkillConfig, tool
from flink_skills.agents import OpenAgent, Turn, TurnOutcome, TurnStart, TurnStatus, compile_plan, open_plan
from flink_skills.manager import SkillScope
from flink_skills.models import ModelRequest, ModelResponse, ToolMessage, Usage, Verbatim
from flink_skills.telemetry import Telemetry, TracingObserver, TurnSampler, key_hash
from flink_skills.telemetry.tracing import PresetIds, agent_span_id
from flink_skills.testing import call, calls
from tests.agents import desk
from tests.agents.conftest import script, skill_folder  # noqa: F401 - fixtures
from tests.kit.models import Script

pytestmark = pytest.mark.usefixtures("proved_once")

_USERS = InMemorySpanExporter()
_USERS_PROVIDER = TracerProvider()
_USERS_PROVIDER.add_span_processor(SimpleSpanProcessor(_USERS))


class Desk(desk.Desk):
    instructions = "You work at a desk."

    @tool
    def weigh(self, text: str) -> int:
        """Weighs a text."""
        with _USERS_PROVIDER.get_tracer("scales").start_as_current_span("balance"):
            return len(text)


class Process:
    """Stands for one worker: an open agent, and what its exporter was given."""

    def __init__(self, runtime: OpenAgent, exporter: InMemorySpanExporter) -> None:
        self.runtime = runtime
        self.exporter = exporter
        self.journal: list[bytes] = []

    async def turn(self, journal: Sequence[bytes] = (), crashes: int = 0) -> TurnOutcome:
        self.journal = list(journal)

        def append(entry: bytes, reset: bool, outputs: Any) -> None:
            self.journal.append(entry)

        start = TurnStart('"k"', 2, b"event", "event", timestamp=17, journal=tuple(journal), crashes=crashes)
        return await Turn(self.runtime, start, append).run()

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def one(self, name: str) -> ReadableSpan:
        [span] = [span for span in self.spans if span.name == name]
        return span


class FixedSampler(TurnSampler):
    """Sampler that accepts each turn with a share, or none."""

    fixed: float | None = None

    def sample(self, turn_id: str) -> float | None:
        return self.fixed


Begin = Callable[..., Any]


@pytest.fixture
async def begin(tmp_path: Path, skill_folder: Path, script: Script) -> Any:  # noqa: F811
    """Makes processes that answer by a script, each with an observer of its own; they share what is open."""
    runtimes: dict[str, OpenAgent] = {}
    answer: Any = None

    async def open_one(**options: Any) -> OpenAgent:
        config = SkillConfig(
            {
                "skills.store.dir": str(tmp_path / "store"),
                "skills.model.max-retries": 1,
                "skills.model.retry-backoff": "1 ms",
                **options,
            }
        )
        plan = compile_plan(Desk, job_scopes=[SkillScope(level="job", paths=(str(skill_folder),))], config=config)
        return await open_plan(plan, scratch_dir=str(tmp_path / f"scratch-{len(runtimes)}"))

    async def make(
        answers: Any, content: str = "none", redact: Any = None, sampler: TurnSampler | None = None, **options: Any
    ) -> Process:
        nonlocal answer
        given = iter(()) if callable(answers) else iter(answers)
        answer = answers if callable(answers) else lambda request: next(given)
        if str(options) not in runtimes:
            runtimes[str(options)] = await open_one(**options)
        runtime = runtimes[str(options)]
        exporter, ids = InMemorySpanExporter(), PresetIds()
        provider = TracerProvider(id_generator=ids, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        telemetry = Telemetry([TracingObserver(provider, ids, content=content, sampler=sampler, redact=redact)])
        return Process(replace(runtime, host=replace(runtime.host, telemetry=telemetry)), exporter)

    def current(request: ModelRequest) -> Any:
        return answer(request)

    script(current)
    yield make
    for runtime in runtimes.values():
        await runtime.close()


def answers() -> list[Any]:
    return [
        calls(call("load_skill", name="shout")),
        calls(call("execute_shell_command", command="sh scripts/shout.sh; exit 3", stdin="abc")),
        calls(call("adder", request="1 and 1"), call("weigh", text="pl4nted")),
        "two",
        ModelError("busy", retryable=True),
        "done",
    ]


def parent_of(span: ReadableSpan, spans: Sequence[ReadableSpan]) -> str:
    """The name of the parent; fails where it is not among ``spans``."""
    if span.parent is None:
        return ""
    [parent] = [of for of in spans if of.context.span_id == span.parent.span_id]
    return parent.name


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_a_turn_is_one_trace(begin: Begin) -> None:
    process = await begin(answers())
    outcome = await process.turn()
    assert outcome.status == TurnStatus.DONE

    spans = process.spans
    root = process.one("invoke_agent desk")
    turn_id = attributes(root)["flink_skills.turn.id"]
    assert root.parent is None and root.kind == SpanKind.INTERNAL
    assert {f"{span.context.trace_id:032x}" for span in spans} == {turn_id}
    assert root.context.span_id == agent_span_id(turn_id, "")
    assert len({span.context.span_id for span in spans}) == len(spans)
    tree = sorted((span.name, parent_of(span, spans)) for span in spans)
    assert tree == [
        ("chat m", "invoke_agent adder"),
        *[("chat m", "invoke_agent desk")] * 4,
        ("command sh", "execute_tool execute_shell_command"),
        ("execute_tool adder", "invoke_agent desk"),
        ("execute_tool execute_shell_command", "invoke_agent desk"),
        ("execute_tool load_skill", "invoke_agent desk"),
        ("execute_tool weigh", "invoke_agent desk"),
        ("invoke_agent adder", "execute_tool adder"),
        ("invoke_agent desk", ""),
        ("step look", "invoke_agent desk"),
    ]
    for span in spans:
        assert span.start_time <= span.end_time
        assert root.start_time <= span.start_time


async def test_attributes_are_those_of_the_conventions(begin: Begin, skill_folder: Path) -> None:  # noqa: F811
    process = await begin(answers())
    await process.turn()
    root = attributes(process.one("invoke_agent desk"))
    assert root["gen_ai.operation.name"] == "invoke_agent"
    assert root["gen_ai.agent.name"] == root["gen_ai.agent.id"] == "desk"
    assert root["gen_ai.conversation.id"] == root["flink_skills.key.hash"] == key_hash('"k"')
    assert root["gen_ai.provider.name"] == "scripted"
    assert (root["flink_skills.turn.number"], root["flink_skills.turn.attempt"]) == (2, 1)
    assert root["flink_skills.event.timestamp"] == 17
    assert root["flink_skills.turn.requests"] == 5
    assert root["flink_skills.skill.names"] == ("shout",)

    chats = [span for span in process.spans if span.name.startswith("chat ")]
    assert {span.kind for span in chats} == {SpanKind.CLIENT}
    chat = attributes(chats[0])
    assert chat["gen_ai.operation.name"] == "chat"
    assert chat["gen_ai.request.model"] == "m"
    assert chat["gen_ai.usage.input_tokens"] == 0
    assert chat["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert chat["flink_skills.step"] == "chat#0/m0"

    loaded = process.one("execute_tool load_skill")
    [event] = loaded.events
    digest = attributes(loaded)["flink_skills.skill.digest"]
    assert event.name == "flink_skills.skill"
    assert event.attributes["flink_skills.skill.action"] == "activate"
    assert event.attributes["flink_skills.skill.name"] == "shout"
    assert event.attributes["flink_skills.skill.digest"] == digest
    assert str(skill_folder) in attributes(loaded)["flink_skills.skill.origin"]
    assert attributes(loaded)["gen_ai.tool.type"] == "function"
    assert len(attributes(loaded)["gen_ai.tool.call.id"]) == 32
    assert root["flink_skills.skill.digests"] == (digest,)

    command = attributes(process.one("command sh"))
    assert command["process.exit.code"] == 3 and command["error.type"] == "exit 3"
    assert (command["flink_skills.skill.name"], command["flink_skills.skill.digest"]) == ("shout", digest)
    assert command["flink_skills.command.isolation"] == process.runtime.isolation

    [retried] = [span for span in chats if span.events]
    assert retried.events[0].attributes["flink_skills.retry.attempt"] == 1
    assert retried.status.status_code == StatusCode.UNSET


async def test_cached_and_reasoning_tokens_are_there_where_a_provider_reports_them(begin: Begin) -> None:
    usage, no_details = Usage(10, 5, 1, 4, 2, 3), Usage(1, 1, 1)
    process = await begin([replace(calls(call("weigh", text="a")), usage=usage), ModelResponse("b", (), no_details)])
    await process.turn()
    expected = {
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.cache_creation.input_tokens": 2,
        "gen_ai.usage.reasoning.output_tokens": 3,
    }
    found = [_usage_of(span) for span in process.spans if span.name.startswith("chat ")]
    assert found == [expected, {"gen_ai.usage.input_tokens": 1, "gen_ai.usage.output_tokens": 1}]
    sums = {"gen_ai.usage.input_tokens": 11, "gen_ai.usage.output_tokens": 6}
    assert _usage_of(process.one("invoke_agent desk")) == {**expected, **sums}


def _usage_of(span: ReadableSpan) -> dict[str, Any]:
    return {name: of for name, of in attributes(span).items() if name.startswith("gen_ai.usage.")}


@pytest.mark.parametrize("content", ["metadata", "full"])
async def test_no_span_has_a_message_as_its_provider_wrote_it(begin: Begin, content: str) -> None:
    kept = Verbatim("scripted", '{"signature": "c2lnbmF0dXJl"}')
    first = replace(calls(call("weigh", text="a")), verbatim=kept)
    process = await begin([first, ModelResponse("b", verbatim=kept)], content=content)
    await process.turn()
    assert sum(span.name.startswith("chat ") for span in process.spans) == 2
    assert "c2lnbmF0dXJl" not in "".join(span.to_json() for span in process.spans)


@pytest.mark.row("H11")
async def test_staging_and_collecting_have_spans(begin: Begin) -> None:
    command = "cp $WORK_DIR/inputs/notes.md $OUTPUT_DIR/a.txt"
    inputs = [{"from": "skill://shout/notes.md"}]
    run = call("skill_run", skill="shout", command=command, inputs=inputs, output_files=["out/a.txt"])
    process = await begin([calls(call("skill_load", skill="shout")), calls(run), "done"], **{"skills.tools": "full"})
    await process.turn()
    stage, ran, collect = (process.one(name) for name in ("stage shout", "command cp", "collect shout"))
    assert {parent_of(span, process.spans) for span in (stage, ran, collect)} == {"execute_tool skill_run"}
    assert stage.end_time <= ran.start_time <= ran.end_time <= collect.start_time
    for span, kind in ((stage, "stage"), (collect, "collect")):
        found = attributes(span)
        assert (found[f"flink_skills.{kind}.files"], found[f"flink_skills.{kind}.bytes"]) == (1, 4)
        assert found["flink_skills.skill.name"] == "shout"
        assert found["flink_skills.call_id"] == attributes(ran)["flink_skills.call_id"]


async def test_a_span_has_the_arguments_that_ran_and_those_of_the_model(begin: Begin) -> None:
    process = await begin([calls(call("execute_shell_command", Cmd="echo a")), "done"], "full")
    await process.turn()
    span = attributes(process.one("execute_tool execute_shell_command"))
    assert json.loads(span["gen_ai.tool.call.arguments"]) == {"command": "echo a", "timeout": 300.0}
    assert json.loads(span["flink_skills.tool.requested_arguments"]) == {"Cmd": "echo a"}


@pytest.mark.parametrize("content", ["none", "metadata", "full"])
async def test_what_spans_hold(begin: Begin, content: str) -> None:
    process = await begin(answers(), content, redact=lambda text: text.replace("pl4nted", "***"))
    await process.turn()
    everything = json.dumps([json.loads(span.to_json()) for span in process.spans])
    assert "pl4nted" not in everything
    weigh, root = attributes(process.one("execute_tool weigh")), attributes(process.one("invoke_agent desk"))
    sizes = [weigh[f"flink_skills.tool.{part}.size"] for part in ("arguments", "result")]
    assert sizes == [len('{"text": "pl4nted"}'), 1]
    chats = [attributes(span) for span in process.spans if span.name.startswith("chat ")]
    [last] = [span for span in chats if span["flink_skills.step"] == "chat#0/m3"]
    messages = {"gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions"}
    digests = {name for name in weigh if name.endswith(".digest")}
    if content == "none":
        assert not messages & (last.keys() | root.keys()) and not digests
        assert "You work at a desk" not in everything and "1 and 1" not in everything and "scripts" not in everything
    if content == "metadata":
        assert weigh["flink_skills.tool.arguments.names"] == ("text",)
        assert digests == {"flink_skills.tool.arguments.digest", "flink_skills.tool.result.digest"}
        assert not messages & (last.keys() | root.keys())
        assert "You work at a desk" not in everything and "1 and 1" not in everything and "scripts/" not in everything
    if content == "full":
        assert json.loads(weigh["gen_ai.tool.call.arguments"]) == {"text": "***"}
        assert weigh["gen_ai.tool.call.result"] == "7"
        assert json.loads(last["gen_ai.system_instructions"])[0]["content"].startswith("You work at a desk.")
        said = json.loads(last["gen_ai.input.messages"])
        assert said[0] == {"role": "user", "parts": [{"type": "text", "content": "event"}]}
        assert said[1]["parts"][0]["name"] == "load_skill"
        assert said[-1]["parts"][0] == {"type": "tool_call_response", "id": "call-2", "response": "7"}
        [answer] = json.loads(last["gen_ai.output.messages"])
        assert answer == {"role": "assistant", "parts": [{"type": "text", "content": "done"}], "finish_reason": "stop"}
        assert json.loads(root["gen_ai.input.messages"])[0]["parts"][0]["content"] == "event"
        assert json.loads(root["gen_ai.output.messages"]) == [answer]
        assert root["gen_ai.conversation.id"] == '"k"'
        command = attributes(process.one("command sh"))
        assert command["process.command_line"] == "sh scripts/shout.sh; exit 3"
        assert command["flink_skills.command.stdout"] == "ABC"


async def test_content_is_bounded_and_always_valid_text(begin: Begin) -> None:
    def endless(request: ModelRequest) -> Any:
        done = sum(isinstance(message, ToolMessage) for message in request.messages)
        if done < 6:
            return calls(call("weigh", text="x" * (40_000 + done) + "\udc80"), prefix=f"c{done}")
        return "done"

    process = await begin(endless, "full")
    await process.turn()
    for span in process.spans:
        for value in attributes(span).values():
            assert len(str(value)) < 140_000
            str(value).encode()
    last = [attributes(span) for span in process.spans if span.name == "chat m"][-1]
    left_out = last["flink_skills.request.messages_left_out"]
    assert len(json.loads(last["gen_ai.input.messages"])) + left_out == last["flink_skills.request.messages"] == 13


async def test_what_fails_says_so(begin: Begin) -> None:
    process = await begin([calls(call("weigh", wrong="x")), ModelError("no such model m0del")])
    outcome = await process.turn()
    assert outcome.status == TurnStatus.FAILED
    root, weigh = process.one("invoke_agent desk"), process.one("execute_tool weigh")
    failed = [span for span in process.spans if span.name == "chat m"][-1]
    for span, error in ((root, "ModelError"), (failed, "ModelError"), (weigh, "tool_error")):
        assert span.status.status_code == StatusCode.ERROR
        assert span.status.description is None
        assert attributes(span)["error.type"] == error
    assert "m0del" not in root.to_json()

    process = await begin([ModelError("no such model m0del")], "full")
    await process.turn()
    assert process.one("invoke_agent desk").status.description == "no such model m0del"


async def test_a_tool_that_a_model_makes_up_is_not_a_name(begin: Begin) -> None:
    process = await begin([calls(call("4111 1111 1111 1111", x=1)), "done"])
    await process.turn()
    assert attributes(process.one("execute_tool unknown"))["gen_ai.tool.name"] == "unknown"


async def test_spans_of_a_tool_itself_hang_below_it(begin: Begin) -> None:
    _USERS.clear()
    process = await begin([calls(call("weigh", text="abc")), "done"])
    before = trace.get_current_span()
    await process.turn()
    [mine] = _USERS.get_finished_spans()
    weigh = process.one("execute_tool weigh")
    assert mine.parent is not None
    assert (mine.parent.trace_id, mine.parent.span_id) == (weigh.context.trace_id, weigh.context.span_id)
    assert trace.get_current_span() is before


async def test_a_sampler_that_takes_nothing(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    process = await begin(answers())
    assert (await process.turn()).status == TurnStatus.DONE
    assert process.spans == ()


async def test_a_sampler_decides_the_same_for_all_attempts(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    taken = set()
    for _ in range(3):
        process = await begin(["done"])
        await process.turn()
        taken.add(bool(process.spans))
    assert len(taken) == 1


async def test_a_turn_over_the_number_per_second_has_no_spans_and_its_code_none(begin: Begin) -> None:
    _USERS.clear()
    process = await begin([calls(call("weigh", text="abc")), "done"], sampler=FixedSampler(1))
    before = trace.get_current_span()
    assert (await process.turn()).status == TurnStatus.DONE
    assert process.spans == _USERS.get_finished_spans() == ()
    assert trace.get_current_span() is before


async def test_a_turn_says_of_how_many_it_was_chosen(begin: Begin) -> None:
    sampler = FixedSampler(1)
    sampler.fixed = 0.25
    process = await begin(["done"], sampler=sampler)
    await process.turn()
    assert attributes(process.one("invoke_agent desk"))["flink_skills.trace.share"] == 0.25


async def test_every_resumed_turn_has_the_same_trace_and_root(begin: Begin) -> None:
    first = await begin(answers())
    await first.turn()
    journal, ran = list(first.journal), first.spans
    assert len(journal) == 10
    for steps in range(len(journal) + 1):
        # What the model has not been asked yet, in the order in which it is.
        later = await begin(lambda request: "done" if request.system.startswith("You work") else "two")
        await later.turn(journal[:steps], crashes=1)
        root = later.one("invoke_agent desk")
        assert root.context.span_id == first.one("invoke_agent desk").context.span_id
        assert root.context.trace_id == first.one("invoke_agent desk").context.trace_id
        assert attributes(root)["flink_skills.turn.attempt"] == 2
        assert attributes(root)["flink_skills.turn.resumed_steps"] == steps
        # A step that really ran twice has two spans.
        both = {span.context.span_id for span in later.spans} & {span.context.span_id for span in ran}
        assert {span.name for span in ran if span.context.span_id in both} <= {
            "invoke_agent desk",
            "invoke_agent adder",
        }


def waiting(at: Callable[[ModelRequest], bool], reached: asyncio.Event, of: list[Any]) -> Any:
    """A script that never answers the request ``at``."""
    given = iter(of)

    async def answer(request: ModelRequest) -> Any:
        if at(request):
            reached.set()
            await asyncio.Event().wait()
        return next(given)

    return answer


def in_adder(request: ModelRequest) -> bool:
    """The second request of the agent that is a tool."""
    return not request.system.startswith("You work") and len(request.messages) > 1


ASKS_ADDER = [calls(call("adder", request="1 and 1")), calls(call("load_skill", name="count"), prefix="a")]


async def test_halves_of_an_interrupted_turn_meet(begin: Begin) -> None:
    reached = asyncio.Event()
    first = await begin(waiting(in_adder, reached, list(ASKS_ADDER)))
    task = asyncio.create_task(first.turn())
    await asyncio.wait_for(reached.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # The agents have not ended: who goes on with the turn ends them.
    assert not [span for span in first.spans if span.name.startswith("invoke_agent")]

    second = await begin(["two", "done"])
    outcome = await second.turn(first.journal, crashes=1)
    assert outcome.status == TurnStatus.DONE
    spans = [*first.spans, *second.spans]
    assert [span.name for span in spans if span.parent is None] == ["invoke_agent desk"]
    assert len({span.context.span_id for span in spans}) == len(spans)
    # Each parent is there, and what the called agent did before and after is in one place.
    tree = [(span.name, parent_of(span, spans)) for span in spans]
    assert tree.count(("chat m", "invoke_agent adder")) == 3
    assert ("execute_tool load_skill", "invoke_agent adder") in tree
    cut, again = (span for span in spans if span.name == "execute_tool adder")
    assert attributes(cut)["error.type"] == "cancelled" and again.status.is_unset


async def test_an_agent_that_ends_with_its_turn_is_not_left_out(begin: Begin) -> None:
    first = await begin(waiting(in_adder, asyncio.Event(), list(ASKS_ADDER)), **{"skills.turn.timeout": "300 ms"})
    outcome = await first.turn()
    assert outcome.status == TurnStatus.FAILED
    assert attributes(first.one("invoke_agent desk"))["error.type"] == "LimitError"
    adder = first.one("invoke_agent adder")
    assert attributes(adder)["error.type"] == "cancelled"
    assert adder.end_time <= first.one("invoke_agent desk").end_time
    for span in first.spans:
        parent_of(span, first.spans)
