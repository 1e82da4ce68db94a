"""What a turn tells those who observe it: each thing that happens, once, in its place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from flink_skills import SkillConfig
from flink_skills.agents import OpenAgent, Turn, TurnOutcome, TurnStart, TurnStatus, compile_plan, open_plan
from flink_skills.manager import SkillScope
from flink_skills.telemetry import Activity, Observer, PointEvent, Telemetry, TurnScope
from flink_skills.testing import call, calls
from tests.agents.desk import Desk
from tests.kit.models import Script

pytestmark = pytest.mark.usefixtures("proved_once")


class Listener(Observer):
    def __init__(self) -> None:
        self.ended_ones: list[Activity] = []
        # The skills that are loaded when a request begins.
        self.loaded: list[list[str]] = []
        self.events: list[PointEvent] = []
        self.steps: list[str | None] = []

    def started(self, activity: Activity) -> None:
        if activity.kind == "chat":
            self.loaded.append(activity.attributes["skills"])

    def ended(self, activity: Activity) -> None:
        self.ended_ones.append(activity)

    def emitted(self, event: PointEvent) -> None:
        self.events.append(event)

    def outputs(self, scope: TurnScope, step: str | None) -> list[tuple[str, Any]]:
        self.steps.append(step)
        return [("events", step)]

    def of(self, kind: str) -> list[Activity]:
        return [activity for activity in self.ended_ones if activity.kind == kind]


class Run:
    """One turn, its journal, and what left with each step."""

    def __init__(self, runtime: OpenAgent) -> None:
        self.runtime = runtime
        self.journal: list[bytes] = []
        self.left: list[tuple[str, Any]] = []

    async def turn(self, journal: list[bytes] | None = None, crashes: int = 0) -> TurnOutcome:
        self.journal = list(journal or [])

        def append(entry: bytes, reset: bool, outputs: Any) -> None:
            self.journal.append(entry)
            self.left += outputs

        start = TurnStart('"k"', 2, b"event", "event", timestamp=17, journal=tuple(self.journal), crashes=crashes)
        return await Turn(self.runtime, start, append).run()


Open = Callable[..., Awaitable[tuple[Run, Listener]]]


@pytest.fixture
async def opened(tmp_path: Path, skill_folder: Path, script: Script) -> AsyncIterator[Open]:
    runtimes: list[OpenAgent] = []

    async def make(answers: Any, **options: Any) -> tuple[Run, Listener]:
        script(answers)
        config = SkillConfig({"skills.store.dir": str(tmp_path / "store"), "skills.model.max-retries": 0, **options})
        plan = compile_plan(Desk, job_scopes=[SkillScope(level="job", paths=(str(skill_folder),))], config=config)
        listener = Listener()
        runtime = await open_plan(plan, scratch_dir=str(tmp_path / "scratch"), telemetry=Telemetry([listener]))
        runtimes.append(runtime)
        return Run(runtime), listener

    yield make
    for runtime in runtimes:
        await runtime.close()


def _answers() -> list[Any]:
    return [
        calls(call("load_skill", name="shout"), call("weigh", text="abc")),
        calls(call("adder", request="1 and 1")),
        "two",
        calls(call("execute_shell_command", command="sh scripts/shout.sh", stdin="abc")),
        calls(call("weigh", wrong="x")),
        "done",
    ]


async def test_a_turn_and_all_that_is_in_it(opened: Open) -> None:
    run, listener = await opened(_answers())
    outcome = await run.turn()
    assert outcome.status == TurnStatus.DONE

    [turn] = listener.of("turn")
    assert (turn.scope.agent, turn.scope.key, turn.scope.turn, turn.scope.attempt) == ("desk", '"k"', 2, 1)
    assert len(turn.scope.turn_id) == 32 and turn.scope.timestamp == 17 and turn.error == ""
    assert turn.attributes["skills"] == ["shout"] and turn.attributes["requests"] == 6
    assert turn.attributes["replayed"] == 0
    assert listener.loaded == [[], ["shout"], [], ["shout"], ["shout"], ["shout"]]

    assert [activity.step for activity in listener.of("chat")] == [
        "chat#0/m0",
        "chat#0/m1",
        "chat#0/t1.0/chat#0/m0",
        "chat#0/m2",
        "chat#0/m3",
        "chat#0/m4",
    ]
    by_step = {activity.step: activity for activity in listener.of("chat")}
    assert by_step["chat#0/m0"].attributes["skills"] == []
    assert by_step["chat#0/m1"].attributes["skills"] == ["shout"]
    assert by_step["chat#0/t1.0/chat#0/m0"].attributes["skills"] == []
    assert by_step["chat#0/m4"].attributes["response"].text == "done"
    assert by_step["chat#0/m0"].attributes["setup"].provider == "scripted"

    tools = {activity.step: activity for activity in listener.of("tool")}
    assert [tools[step].name for step in sorted(tools)] == [
        "load_skill",
        "weigh",
        "adder",
        "execute_shell_command",
        "weigh",
    ]
    assert tools["chat#0/t3.0"].attributes["is_error"] is True and tools["chat#0/t3.0"].error == ""
    assert tools["chat#0/t0.1"].attributes["content"] == "3"

    [agent] = listener.of("agent")
    assert agent.name == "adder" and agent.parent is tools["chat#0/t1.0"]
    assert by_step["chat#0/t1.0/chat#0/m0"].parent is agent

    [command] = listener.of("command")
    assert command.name == "sh" and command.parent is tools["chat#0/t2.0"] and command.error == ""
    assert command.attributes["skill"] == "shout" and command.attributes["result"].stdout.strip() == b"ABC"
    assert command.attributes["call_id"] == tools["chat#0/t2.0"].attributes["call_id"]

    [step] = listener.of("step")
    assert step.name == "look" and step.step == "step:look#0"

    [used] = [event for event in listener.events if event.kind == "skill" and event.attributes["action"] == "activate"]
    assert used.kind == "skill" and used.activity is tools["chat#0/t0.0"]
    assert used.attributes["skill"] == "shout" and len(used.attributes["digest"]) > 12


async def test_what_leaves_with_a_step_leaves_with_its_entry(opened: Open) -> None:
    run, listener = await opened(_answers())
    outcome = await run.turn()
    assert [step for _, step in run.left] == [step for step in listener.steps if step is not None]
    assert len(run.left) == len(run.journal)
    assert outcome.outputs[-1] == ("events", None)
    assert outcome.outputs[0] == ("", "done")


async def test_what_a_journal_has_does_not_happen_again(opened: Open) -> None:
    run, first = await opened(_answers())
    await run.turn()
    all_entries = list(run.journal)
    run, second = await opened(["done"])
    outcome = await run.turn(all_entries, crashes=1)
    assert outcome.status == TurnStatus.DONE
    assert [activity.kind for activity in second.ended_ones] == ["turn"]
    [turn] = second.of("turn")
    assert (turn.scope.attempt, turn.scope.resumed) == (2, len(all_entries))
    # Those of the agent that was called are replayed as one.
    assert turn.attributes["replayed"] == len(all_entries) - 1
    assert turn.scope.turn_id == first.of("turn")[0].scope.turn_id


async def test_a_turn_that_fails_says_why(opened: Open) -> None:
    def broken(request: Any) -> Any:
        raise ValueError("no model today")

    run, listener = await opened(broken)
    outcome = await run.turn()
    assert outcome.status == TurnStatus.FAILED and outcome.error == "ValueError"
    [turn], [chat] = listener.of("turn"), listener.of("chat")
    assert turn.error == chat.error == "ValueError" and turn.attributes["message"] == "ValueError: no model today"


async def test_a_command_that_fails_says_how(opened: Open) -> None:
    run, listener = await opened([calls(call("execute_shell_command", command="exit 3")), "done"])
    await run.turn()
    [command], [called] = listener.of("command"), listener.of("tool")
    assert command.error == "exit 3" and called.error == ""
