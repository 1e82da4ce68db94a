"""The events of turns: what they say, what they leave out, and which step they leave with.

Examines the internals of agents.observers on purpose.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, AgentContext, AgentEvent, ModelError, SkillConfig
from flink_skills.agents import OpenAgent, Turn, TurnOutcome, TurnStart, TurnStatus, compile_plan, open_plan
from flink_skills.agents.open.plan_opening import telemetry_of
from flink_skills.manager import SkillScope
from flink_skills.models import AssistantMessage, ModelRequest, ModelResponse, Usage, Verbatim
from flink_skills.telemetry import (
    EVENT_COLUMNS,
    EVENT_KINDS,
    EVENTS_TAG,
    MAX_NAME_LENGTH,
    MAX_NAMES,
    MAX_TEXT_LENGTH,
    PackedEvent,
)
from flink_skills.testing import call, calls
from tests.agents.desk import Desk
from tests.kit.local import local_environment
from tests.kit.models import Script

pytestmark = pytest.mark.usefixtures("proved_once")

HYGIENE = {"skills.shell.backend": "hygiene", "skills.shell.min-isolation": "HYGIENE"}
SECRET = 'pl4nted "value"'
ANSWERS = [
    calls(call("load_skill", name="shout"), call("weigh", text="abc")),
    calls(call("adder", request="1 and 1")),
    "two",
    calls(call("load_skill_resource", name="shout", path="notes.md")),
    calls(call("execute_shell_command", command="sh scripts/shout.sh; exit 3", stdin="abc")),
    calls(call("weigh", wrong="x")),
    "done",
]


def by_request(request: ModelRequest) -> Any:
    """The same answers, whatever was asked before."""
    if request.messages[0].content == "1 and 1":
        return "two"
    answers = [answer for answer in ANSWERS if answer != "two"]
    return answers[sum(isinstance(message, AssistantMessage) for message in request.messages)]


def _decoded(value: Any) -> Any:
    return pickle.loads(value)


class Desktop:
    """Runs turns as the worker does: what leaves, and with which entry of the journal."""

    def __init__(self, runtime: OpenAgent, outside: list[AgentEvent]) -> None:
        self.runtime, self.outside = runtime, outside
        self.journal: list[bytes] = []
        self.by_step: list[list[AgentEvent]] = []
        self.at_end: list[AgentEvent] = []

    async def turn(self, event: Any = "event", journal: tuple[bytes, ...] = (), **start: Any) -> TurnOutcome:
        self.journal, self.by_step = list(journal), []

        def append(entry: bytes, reset: bool, outputs: Any) -> None:
            self.journal.append(entry)
            assert all(tag == EVENTS_TAG for tag, _ in outputs)
            self.by_step.append([_decoded(value) for _, value in outputs])

        given = TurnStart('"k"', 2, b"event", event, journal=journal, **start)
        outcome = await Turn(self.runtime, given, append, encode=pickle.dumps).run()
        self.at_end = [_decoded(value) for tag, value in outcome.outputs if tag == EVENTS_TAG]
        return outcome

    @property
    def events(self) -> list[AgentEvent]:
        return [event for step in [*self.by_step, self.at_end] for event in step]

    def of(self, kind: str) -> list[AgentEvent]:
        return [event for event in self.events if event.kind == kind]


Opens = Callable[..., Any]


@pytest.fixture
def folder() -> Iterator[str]:
    """A folder that other users can pass through, which those of pytest are not: commands may run as one."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o711)
        yield name


@pytest.fixture
async def opened(folder: str, skill_folder: Path, script: Script) -> AsyncIterator[Opens]:
    runtimes: list[OpenAgent] = []

    async def make(
        answers: Any, agent: type[Agent] = Desk, *, redact: Any = None, quiet: bool = False, **options: Any
    ) -> Desktop:
        script(answers)
        config = SkillConfig({"skills.store.dir": f"{folder}/store", **HYGIENE, **options})
        plan = compile_plan(agent, job_scopes=[SkillScope("job", paths=(str(skill_folder),))], config=config)
        outside: list[AgentEvent] = []
        telemetry = telemetry_of(
            plan,
            config,
            events=True,
            on_event=lambda event: outside.append(event.unpacked()),
            redact=redact or (lambda text: runtimes[-1].without_hidden(text) if runtimes else text),
        )
        runtime = await open_plan(plan, scratch_dir=f"{folder}/scratch", telemetry=telemetry, quiet=quiet)
        runtimes.append(runtime)
        return Desktop(runtime, outside)

    yield make
    for runtime in runtimes:
        await runtime.close()


def detail(event: AgentEvent) -> dict[str, Any]:
    found = json.loads(event.detail) if event.detail else {}
    assert isinstance(found, dict)
    return found


async def test_a_turn_and_all_that_is_in_it(opened: Opens) -> None:
    desk = await opened(ANSWERS)
    assert (await desk.turn()).status == TurnStatus.DONE

    assert Counter(event.kind for event in desk.events) == {
        "turn": 1,
        "chat": 7,
        "tool": 6,
        "command": 1,
        "step": 1,
        "agent": 1,
        "skill": 2,
    }
    for event in desk.events:
        assert list(event) == [column.name for column in EVENT_COLUMNS]
        assert (event.version, event.agent, event.key, event.turn, event.attempt) == (1, "desk", "k", 2, 1)
        for column in EVENT_COLUMNS:
            if column.kinds and event.kind not in column.kinds:
                assert event[column.name] is None, (event.kind, column.name)
    assert len({event.id for event in desk.events}) == len(desk.events)
    assert {event.turn_id for event in desk.events} == {event.id.partition("/")[0] for event in desk.events}

    # Each record leaves with the step that it belongs to, the turn's at the end.
    assert [{event.step for event in step} for step in desk.by_step] == [
        {event.step} for step in desk.by_step for event in step[:1]
    ]
    (turn,) = desk.at_end
    assert (turn.kind, turn.step, turn.name, turn.requests, turn.status) == ("turn", None, "desk", 7, "ok")
    assert detail(turn) == {"steps": 14, "outputs": 1, "skills": ["shout"]}

    loaded, read = desk.of("skill")
    assert (loaded.action, loaded.skill, loaded.tool, loaded.model) == ("activate", "shout", "load_skill", "model")
    assert (read.action, read.path, read.skill_digest) == ("read", "notes.md", loaded.skill_digest)
    assert len(loaded.skill_digest) == 64
    (command,) = desk.of("command")
    assert (command.name, command.tool, command.skill) == ("sh", "execute_shell_command", "shout")
    assert command.skill_digest == loaded.skill_digest
    assert (command.exit_code, command.status, command.error, command.isolation) == (3, "error", "exit 3", "HYGIENE")
    assert command.output_size == 3
    tools = desk.of("tool")
    assert [(event.name, event.status) for event in tools if event.name == "weigh"] == [
        ("weigh", "ok"),
        ("weigh", "error"),
    ]
    assert {event.call_id for event in tools} >= {loaded.call_id, read.call_id, command.call_id}
    (agent,) = desk.of("agent")
    inner = [event for event in desk.of("chat") if event.subagent]
    assert (agent.name, agent.tool, agent.status) == ("adder", "adder", "ok")
    assert [(event.subagent, event.parent_step) for event in inner] == [("adder", agent.step)]
    (step,) = desk.of("step")
    assert (step.name, step.step) == ("look", "step:look#0")
    assert all(event.model_id == "scripted:m" for event in desk.of("chat"))
    # The skills that are loaded when a request begins.
    assert [detail(event).get("skills") for event in desk.of("chat")] == [None, ["shout"], None, *[["shout"]] * 4]


@pytest.mark.parametrize("content", ["none", "full"])
async def test_reasoning_is_counted_and_not_told(opened: Opens, content: str) -> None:
    kept, usage = Verbatim("scripted", '{"signature": "c2lnbmF0dXJl"}'), Usage(10, 5, 1, 4, 2, 3)
    answers = [replace(calls(call("weigh", text="a")), usage=usage, verbatim=kept), ModelResponse("b", verbatim=kept)]
    desk = await opened(answers, **{"skills.events.content": content})
    await desk.turn()
    found = [(e.kind, e.cache_read_tokens, e.cache_write_tokens, e.reasoning_tokens) for e in desk.events]
    none = (None, None, None)
    assert found == [("step", *none), ("chat", 4, 2, 3), ("tool", *none), ("chat", 0, 0, 0), ("turn", 4, 2, 3)]
    assert "c2lnbmF0dXJl" not in str(desk.events)


async def test_a_restarted_turn_tells_of_each_journalled_step_once(opened: Opens) -> None:
    desk = await opened(by_request)
    await desk.turn()
    whole, journal, left = {event.id for event in desk.events}, tuple(desk.journal), list(desk.by_step)
    assert len(journal) == len(left) == 14
    for finished in range(len(journal) + 1):
        await desk.turn(journal=journal[:finished], crashes=1)
        assert {event.attempt for event in desk.events} == {2}
        told = [event for step in left[:finished] for event in step]
        assert Counter(event.id for event in [*told, *desk.events]) == dict.fromkeys(whole, 1)
    # The steps of the agent that was called are replayed as one.
    assert detail(desk.at_end[-1])["replayed"] == len(journal) - 1


class Changed(Desk):
    async def on_event(self, event: Any, ctx: Any) -> Any:
        await ctx.step("look", str.upper, "b")
        return await ctx.chat(event)


async def test_a_turn_that_starts_anew_says_so_once_and_tells_of_each_attempt(opened: Opens) -> None:
    desk = await opened(by_request)
    await desk.turn()
    done = [event for step in desk.by_step[:3] for event in step]
    changed = await opened(by_request, Changed)
    await changed.turn(journal=tuple(desk.journal[:3]))
    (restart,) = changed.of("restart")
    # It leaves when the journal is emptied, and not at the end of a turn that may be resumed before.
    assert changed.by_step[0] == [restart]
    assert (restart.status, restart.error, restart.turn) == ("error", "JournalMismatchError", 2)
    assert detail(restart) == {
        "step": "step:look#0",
        "problem": "step step:look#0 requests something else than in the journal",
        "steps": 3,
    }
    told = Counter(event.id for event in [*done, *changed.events])
    assert max(told.values()) == 1
    # Resumed once more it tells the same of what is not in its journal, and of the restart nothing.
    anew, left = changed.journal[3:], list(changed.by_step)
    await changed.turn(journal=tuple(anew[:4]), crashes=1)
    assert not changed.of("restart")
    again = [*done, *(event for step in left[:4] for event in step), *changed.events]
    assert Counter(event.id for event in again) == told


async def test_what_records_hold_at_each_level(opened: Opens) -> None:
    long = "loud " * MAX_TEXT_LENGTH
    answers = [
        calls(call("weigh", text=long)),
        calls(call("execute_shell_command", command="echo spoken; echo more >&2")),
        "the answer",
    ]
    none = await opened(answers)
    await none.turn("a question")
    text = json.dumps(none.events)
    for told in ("loud", "spoken", "a question", "the answer", "text", "sha256"):
        assert told not in text

    metadata = await opened(answers, **{"skills.events.content": "metadata"})
    await metadata.turn("a question")
    text = json.dumps([{**event, "path": None} for event in metadata.events])
    for told in ("loud", "spoken", "a question", "the answer"):
        assert told not in text
    (weigh, shell), (command,) = metadata.of("tool"), metadata.of("command")
    assert detail(weigh)["argument_names"] == ["text"]
    assert detail(shell)["argument_names"] == ["command", "timeout"]
    digest = hashlib.sha256(b"echo spoken; echo more >&2").hexdigest()
    assert detail(command)["command_sha256"] == digest
    assert detail(metadata.of("chat")[-1])["response_sha256"] == hashlib.sha256(b"the answer").hexdigest()

    full = await opened(answers, **{"skills.events.content": "full"})
    await full.turn("a question")
    (weigh, _), (command,) = full.of("tool"), full.of("command")
    assert detail(weigh)["arguments"].startswith('{"text":"loud loud ')
    assert detail(weigh)["arguments"].endswith("… (32779 more characters)")
    assert len(detail(weigh)["arguments"]) < MAX_TEXT_LENGTH + 50
    assert detail(command)["command"] == "echo spoken; echo more >&2"
    assert (detail(command)["stdout"], detail(command)["stderr"]) == ("spoken\n", "more\n")
    first, second, third = full.of("chat")
    # Each message of the conversation once, and not with every request.
    assert detail(first)["prompt"] == "a question"
    assert detail(second)["prompt"] == str(len(long))
    assert detail(third)["response"] == "the answer"
    assert detail(first)["system"]


async def test_no_secret_is_in_a_record(opened: Opens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL4NTED", SECRET)
    class_of_key = {"skills.env.shout.API_TOKEN": "${env:PL4NTED}", "skills.events.content": "full"}
    answers = [
        calls(call("load_skill", name="shout")),
        calls(call("execute_shell_command", command=f"echo '{SECRET}'; echo \"$API_TOKEN\"", stdin=SECRET)),
        calls(call(SECRET, **{SECRET: SECRET})),
        calls(call("load_skill", name=SECRET)),
        calls(call("load_skill_resource", name="shout", path=SECRET)),
        SECRET,
    ]
    desk = await opened(answers, **class_of_key)
    await desk.turn(f"what is {SECRET}?")
    # As it is, and as JSON in JSON writes it.
    for event in desk.events:
        assert "pl4nted" not in json.dumps(event).replace("\\", ""), event
    (command,) = desk.of("command")
    assert detail(command)["command"].startswith("echo '[hidden]'; echo")
    assert [(event.status, event.path) for event in desk.of("skill")] == [("ok", None), ("error", "[hidden]")]


async def test_a_value_that_a_redactor_knows_is_hidden_before_it_is_cut(opened: Opens) -> None:
    text = "x" * (MAX_TEXT_LENGTH - 3) + "t0ps3cret"
    desk = await opened(
        ["done"], redact=lambda text: text.replace("t0ps3cret", "***"), **{"skills.events.content": "full"}
    )
    await desk.turn(text)
    (chat,) = desk.of("chat")
    assert "t0p" not in chat.detail
    assert detail(chat)["prompt"] == "x" * (MAX_TEXT_LENGTH - 3) + "***"


@pytest.mark.parametrize("content", ["none", "metadata"])
async def test_a_model_cannot_make_records_large(opened: Opens, content: str) -> None:
    arguments = {f"{number}{'a' * 5_000}": 1 for number in range(200)}
    long = [call("N" * 100_000, **arguments), call("load_skill_resource", name="count", path="p" * 100_000)]
    desk = await opened(
        [calls(*long, *(call(f"t{number}") for number in range(100))), "done"],
        **{"skills.events.content": content, "skills.turn.max-steps": "200"},
    )
    await desk.turn("x" * 100_000)
    assert len(desk.of("tool")) == 102
    assert max(len(event.name) for event in desk.of("tool")) == MAX_NAME_LENGTH
    for event in desk.events:
        assert len(json.dumps(event)) < 100 * MAX_NAME_LENGTH, event.kind
    first = desk.of("chat")[0]
    assert detail(first)["tool_calls"][-1] == f"… ({102 - MAX_NAMES} more)"


async def test_a_turn_that_fails_tells_of_the_step_that_it_failed_in(opened: Opens) -> None:
    desk = await opened(
        [ModelError("down, and pl4in text", retryable=True), ModelError("refused")],
        **{"skills.model.max-retries": 1, "skills.model.retry-backoff": "1 ms"},
    )
    outcome = await desk.turn()
    assert outcome.status == TurnStatus.FAILED
    assert [event.kind for event in desk.at_end] == ["retry", "chat", "turn"]
    retry, chat, turn = desk.at_end
    assert (retry.status, retry.model, retry.step) == ("error", "model", chat.step)
    assert detail(retry)["try"] == 1
    assert (chat.status, chat.error, chat.input_tokens) == ("error", "ModelError", None)
    assert (turn.status, turn.error, turn.id) == ("error", "ModelError", f"{turn.turn_id}/#0")
    assert "pl4in" not in json.dumps(desk.events)


class Unreadable(Agent):
    name = "unreadable"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return iter([1]) if event == "generator" else (x for x in "ab")


async def test_a_turn_says_what_became_of_it(opened: Opens) -> None:
    desk = await opened([], Unreadable)
    outcome = await desk.turn()  # a generator cannot be pickled
    assert outcome.status == TurnStatus.FAILED
    (turn,) = desk.at_end
    assert (turn.status, turn.error) == ("error", "TurnError")
    outcome = await desk.turn(problem="the event cannot be read")
    assert outcome.message == "the event cannot be read"
    (turn,) = desk.at_end
    assert (turn.status, turn.error) == ("error", "TurnError")


async def test_what_opening_and_a_refresh_find(opened: Opens, skill_folder: Path) -> None:
    skill = skill_folder / "shout" / "SKILL.md"
    skill.write_text(skill.read_text().replace("name: shout", "name: Shout"))
    desk = await opened([])
    # What an agent that is a tool opens is its own: it has skills of its own.
    assert [event.agent for event in desk.outside if event.kind == "open"] == ["adder", "desk"]
    opening, *found = (event for event in desk.outside if event.agent == "desk")
    assert (opening.kind, opening.agent, opening.isolation, opening.turn) == ("open", "desk", "HYGIENE", None)
    told = detail(opening)
    assert (told["skills"], told["sources"], told["failed_sources"]) == (2, [f"path {skill_folder}"], 0)
    assert {(event.kind, event.code, event.severity, event.skill) for event in found} == {
        ("diagnostic", "F05", "warning", "Shout"),
        ("diagnostic", "F07", "warning", "Shout"),
    }
    assert all(event.path == str(skill) and detail(event)["message"] for event in found)

    desk.outside.clear()
    (skill_folder / "count" / "SKILL.md").write_text("---\nname: counts\ndescription: Counts.\n---\n# counts\n")
    assert await desk.runtime.skills.refresh()
    refresh, *new = (event for event in desk.outside if event.agent == "desk")
    assert (refresh.kind, detail(refresh)) == (
        "refresh",
        {"generation": 2, "added": ["counts"], "removed": ["count"]},
    )
    # What was said before is not said again.
    assert [(event.kind, event.code) for event in new] == [("diagnostic", "F07")]
    desk.outside.clear()
    await desk.runtime.skills.refresh()
    assert desk.outside == []


async def test_one_worker_of_a_machine_tells_of_the_opening(opened: Opens) -> None:
    desk = await opened(["done"], quiet=True)
    await desk.runtime.skills.refresh()
    assert desk.outside == []
    await desk.turn()
    assert desk.of("turn"), "turns are told of by the worker that runs them"


class Emits(Agent):
    name = "emits"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        await ctx.step("s", lambda: 1)
        ctx.emit_to(event, 1)
        return event


def test_lists_run_once_for_outputs_and_events(script: Script) -> None:
    model = script(lambda request: "an answer")
    output = local_environment().from_list(["a", "b"]).apply(Desk)
    assert output.to_list() == ["an answer", "an answer"]
    events = output.to_event_list()
    assert len(model.requests) == 2
    assert [(event.kind, event.turn) for event in events if event.kind in ("step", "turn")] == [
        ("step", 1),
        ("turn", 1),
        ("step", 2),
        ("turn", 2),
    ]
    assert {event.key for event in events} == {None}
    assert Counter(event.kind for event in events)["open"] == 2


def test_nobody_else_writes_to_the_events() -> None:
    output = local_environment().from_list(["mine", "events"]).apply(Emits)
    (failure,) = output.to_list("errors")
    assert failure["error"].startswith("TurnError: emit_to('events')")
    assert output.to_list("mine") == [1]
    assert all(isinstance(event, AgentEvent) for event in output.to_list("events"))


def test_an_event_is_a_dict_with_attributes_that_can_be_pickled() -> None:
    event = AgentEvent({column.name: None for column in EVENT_COLUMNS} | {"kind": "turn", "at": 7})
    again = pickle.loads(pickle.dumps(event))
    assert again == event and isinstance(again, AgentEvent)
    assert (again.kind, again["at"]) == ("turn", 7)
    assert json.loads(json.dumps(again))["kind"] == "turn"
    with pytest.raises(AttributeError, match=r"no field 'kinds'\. Fields: version, id"):
        _ = again.kinds


def test_a_packed_event_is_pickled_as_the_event_that_it_is() -> None:
    texts = {"severity": "naïve 🙂 \ud800", "detail": None}
    values = tuple(texts.get(column.name, number) for number, column in enumerate(EVENT_COLUMNS))
    packed = PackedEvent(values)
    again = pickle.loads(packed.pickled())
    assert again == pickle.loads(pickle.dumps(packed)) == packed.unpacked()
    assert (type(again), again.version, again.severity, again.detail) == (AgentEvent, 0, texts["severity"], None)
    # Written by a release that had fewer columns.
    earlier = pickle.loads(PackedEvent(values[:-3]).pickled())
    assert list(earlier) == [column.name for column in EVENT_COLUMNS]
    assert (earlier.severity, earlier.reasoning_tokens) == (texts["severity"], None)


def test_the_shape_is_consistent() -> None:
    assert {kind for column in EVENT_COLUMNS for kind in column.kinds} <= set(EVENT_KINDS)
    assert len({column.name for column in EVENT_COLUMNS}) == len(EVENT_COLUMNS)
