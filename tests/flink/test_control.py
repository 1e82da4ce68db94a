"""Control records in a mini cluster: agents that are paused, refused and resumed, and erased keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyflink.common import Types
from pyflink.datastream import DataStream

from flink_skills import Agent, AgentContext, AgentsExecutionEnvironment, tool
from flink_skills.tools import Tool, ToolContext, ToolResult, ToolSpec
from tests.flink.running import collect, environments, take_savepoint
from tests.flink.stoppable import DEADLINE, Gated, Place, Stoppable
from tests.kit.flink_rest import wait_until

pytestmark = pytest.mark.flink

COLUMNS = ("action", "agent", "skill", "tool", "key", "reason", "by")


class Control:
    """The files of a control stream."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._files = 0

    def send(self, **record: str) -> None:
        """Send a record."""
        self._files += 1
        hidden = self.folder / ".new"
        hidden.write_text(json.dumps(record) + "\n")
        hidden.rename(self.folder / str(self._files))

    def build(self, *agents: Agent) -> Callable[[AgentsExecutionEnvironment, Any], DataStream]:
        """Return the job of agents with the same input and control records. Control events are among its results."""

        def build(env: AgentsExecutionEnvironment, keyed: Any) -> DataStream:
            t_env = env.table_environment()
            columns = ", ".join(f"`{name}` STRING" for name in COLUMNS)
            t_env.execute_sql(
                f"CREATE TABLE records ({columns}) WITH ('connector' = 'filesystem', 'path' = '{self.folder}', "
                "'source.monitor-interval' = '50 ms', 'format' = 'json')"
            )
            found = []
            for agent in agents:
                output = keyed.apply(agent).control(t_env.from_path("records"))
                events = output.to_event_stream().filter(lambda event: event.kind in ("control", "forget"))
                found += [
                    output.to_datastream(Types.STRING()),
                    events.map(_line, Types.STRING()),
                    output.to_datastream(tag="errors").map(_error, Types.STRING()),
                ]
            return found[0].union(*found[1:])

        return build


def _line(event: Any) -> str:
    if event.kind == "forget":
        return f"{event.agent}: forgot {event.status}"
    return f"{event.agent}: {event.action} {event.name}"


def _error(record: Any) -> str:
    return f"error of {record['agent']}, {record['event'] and record['event']['id']}: {record['error']}"


class Quick(Agent):
    """Answers immediately."""

    name = "quick"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return f"quick {event['id']}"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def control(tmp_path: Path) -> Control:
    return Control(tmp_path / "control")


@pytest.fixture
def start(place: Place) -> Iterator[Callable[..., Stoppable]]:
    jobs: list[Stoppable] = []

    def begin(build: Any, **more: Any) -> Stoppable:
        jobs.append(Stoppable(place, build, **more))
        return jobs[-1]

    yield begin
    for job in jobs:
        job.close()


def wait_for(place: Place, *lines: str) -> None:
    """Wait until these lines are among the results."""
    wait_until(lambda: set(lines) <= set(place.left()), DEADLINE, f"{lines} among the results")


@pytest.mark.row("K17")
@pytest.mark.both_versions
def test_a_paused_agent_keeps_its_events_over_a_restore_and_the_others_continue(
    place: Place, control: Control, start: Callable[..., Stoppable]
) -> None:
    place.gate.touch()
    place.send("a1")
    job = start(control.build(Gated(place), Quick()), parallelism=2)
    wait_for(place, "a1 turn 1 seen a1", "quick a1")
    control.send(action="pause", agent="gated", reason="it pays twice", by="ann")
    wait_for(place, "gated: pause gated")
    place.send("a2", "b1")
    wait_for(place, "quick a2", "quick b1")
    savepoint = job.stop()
    assert [line for line in place.done() if line[1] != "a1"] == []
    job = start(control.build(Gated(place), Quick()), parallelism=1, savepoint=savepoint)
    place.send("a3")
    wait_for(place, "quick a3")
    control.send(action="resume", agent="gated")
    wait_for(place, "gated: resume gated", "b1 turn 1 seen b1")
    wait_for(place, "a2 turn 2 seen a1 a2", "a3 turn 3 seen a1 a2 a3")
    assert not any(line.startswith("quick: ") or "error" in line for line in place.left())


def test_a_refused_agent_writes_its_events_to_the_errors_with_the_reason(
    place: Place, control: Control, start: Callable[..., Stoppable]
) -> None:
    place.gate.touch()
    place.send("a1")
    start(control.build(Gated(place), Quick()), options={"skills.turn.on-error": "fail"})
    wait_for(place, "a1 turn 1 seen a1", "quick a1")
    control.send(action="refuse", agent="gated", reason="it pays twice")
    wait_for(place, "gated: refuse gated")
    place.send("a2", "b1")
    reason = "RefusedError: a control record refuses the events of agent gated: it pays twice"
    wait_for(place, f"error of gated, a2: {reason}", f"error of gated, b1: {reason}", "quick a2", "quick b1")
    control.send(action="resume", agent="gated")
    wait_for(place, "gated: resume gated")
    place.send("a3")
    wait_for(place, "a3 turn 3 seen a1 a3")


#: A number, because events have one.
SECRET = "7301927"
WAITS, ERASES = f"{SECRET}1", "5"


class Keep(Tool):
    """Stores a text in the workspace and in an artifact."""

    uses_workspace = True

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec("keep", "Store a text.", {"type": "object", "properties": {"text": {"type": "string"}}})

    async def call(self, arguments: Any, context: ToolContext) -> ToolResult:
        text, workspace = arguments["text"].encode(), await context.get_workspace()
        workspace.place("work/secret.txt", data=text, record={"from": "event", "resolved": "", "version": ""})
        assert context.artifacts is not None
        context.artifacts.save(context.owner, "secret.txt", text)
        return ToolResult("done")


class Remembers(Agent):
    """Stores a secret in each place that a key has, and waits for an answer."""

    name = "remembers"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        if event["id"][1:] == ERASES:
            ctx.forget()
            return f"{event['id']} turn {ctx.turn}"
        ctx.state["secret"] = event["id"]
        await ctx.call_tool("keep", text=event["id"])
        if event["id"][1:] == WAITS:
            await ctx.wait("vote", {"secret": event["id"]})
        return f"stored {event['id'][0]} turn {ctx.turn} with {len(ctx.state)}"

    @tool
    @staticmethod
    def keep() -> Tool:
        return Keep()


def holds(folder: Path) -> list[str]:
    """Return the files below a folder that contain the secret."""
    return [str(file) for file in folder.rglob("*") if file.is_file() and SECRET.encode() in file.read_bytes()]


@pytest.mark.row("K18")
@pytest.mark.parametrize("by", ["record", "code"])
def test_the_secret_of_an_erased_key_is_in_no_place_of_the_job(
    place: Place, control: Control, start: Callable[..., Stoppable], tmp_path: Path, by: str
) -> None:
    folders = [tmp_path / "artifacts", tmp_path / "workspaces"]
    folders[1].mkdir()
    options = {
        "skills.artifacts.dir": str(folders[0]),
        "skills.workspace.dir": str(folders[1]),
        "skills.shell.enabled": "true",
        "skills.shell.min-isolation": "hygiene",
        "skills.shell.backend": "hygiene",
        "skills.turn.when-waiting": "next",
    }
    place.send(f"a{SECRET}", "b1")
    job = start(control.build(Remembers()), options=options)
    wait_for(place, "stored a turn 1 with 1", "stored b turn 1 with 1")
    place.send(f"a{WAITS}", "b2")
    wait_for(place, "stored b turn 2 with 1")
    before = take_savepoint(job.client, tmp_path / "before").result()
    assert all(holds(folder) for folder in [*folders, Path(before.removeprefix("file:"))])
    if by == "record":
        control.send(action="forget", key="a", reason="request 12", by="ann")
        wait_for(place, "remembers: forget None")
    else:
        place.send(f"a{ERASES}")
        wait_for(place, f"a{ERASES} turn 3")
    wait_for(place, "remembers: forgot ok")
    assert [holds(folder) for folder in folders] == [[], []]
    savepoint = job.stop()
    assert holds(Path(savepoint.removeprefix("file:"))) == []
    start(control.build(Remembers()), options=options, savepoint=savepoint)
    place.send("a1", "b3")
    wait_for(place, "stored a turn 1 with 1", "stored b turn 3 with 1")


def test_records_without_an_effect_are_error_records_that_name_the_fix() -> None:
    env, agents_env = environments()
    event = Types.ROW_NAMED(["customer", "id"], [Types.STRING(), Types.STRING()])
    events = env.from_collection([("a", "a1")], event)
    records = [
        {"action": "puase", "agent": "quick", "reason": "x"},
        {"action": "pause", "agent": "quik", "reason": "x"},
        {"action": "pause", "agent": "quick"},
        {"action": "pause", "reason": "x"},
        {"action": "pause", "agnet": "quick", "reason": "x"},
        {"action": "resume", "agent": "quick"},
        {"action": "forget", "agent": "quick"},
        {"action": "forget", "key": "hazelnut", "tool": "x"},
        "pause quick",
    ]
    output = agents_env.from_datastream(events, "customer").apply(Quick).control(env.from_collection(records))
    errors = [record["error"] for record in collect(output.to_datastream(tag="errors"))]
    for part in (
        "its action 'puase' is unknown. Use one of [pause, resume, refuse, forget]",
        "no agent with this control stream is named 'quik'. Use one of [quick]",
        "the field 'reason' is missing",
        "it names no target. Set the field 'agent', 'skill' or 'tool'",
        "it has the unknown field 'agnet'",
        "agent 'quick' is neither paused nor refused",
        "the field 'key' is missing",
        "it erases a key, and names a skill or a tool",
        "it is not an object. Emit an object with the fields",
    ):
        assert [error for error in errors if part in error] != [], (part, errors)
    assert len(errors) == len(records)
    assert not any("hazelnut" in error for error in errors)


def test_an_agent_that_is_paused_at_the_end_of_the_inputs_refuses_its_events() -> None:
    env, agents_env = environments()
    event = Types.ROW_NAMED(["customer", "id"], [Types.STRING(), Types.STRING()])
    events = env.from_collection([("a", "a1"), ("b", "b1")], event)
    records = env.from_collection([{"action": "pause", "agent": "quick", "reason": "x"}])
    output = agents_env.from_datastream(events, "customer").apply(Quick).control(records)
    ends = collect(output.to_datastream(), output.to_datastream(tag="errors").map(_error))
    # Inputs have no order: the record may arrive behind an event.
    refused = "RefusedError: a control record refuses the events of agent quick: the inputs have ended while the agent"
    kinds = ["refused" if refused in end else end for end in sorted(ends)]
    assert kinds in (["refused", "refused"], ["refused", "quick a1"], ["refused", "quick b1"], ["quick a1", "quick b1"])
