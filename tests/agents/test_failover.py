"""A failover after each step of a conversation: it ends as it does without one."""

from __future__ import annotations

import base64
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, ResourceDescriptor, agent_tool, chat_model_setup, tool
from flink_skills.agents import Session, TurnOutcome, TurnStatus, decode, message_to_json
from flink_skills.errors import ModelError
from flink_skills.models import ModelRequest, ToolMessage
from flink_skills.testing import call, calls
from tests.kit.agents import OpenAgent
from tests.kit.models import Script

SKILL = """---
name: {name}
description: About {name}.
---
Body of {name}.

Tools:
- weigh
"""

LOOKS = """
def double(number: int) -> int:
    "Twice a number."
    return 2 * number
"""


class Helper(Agent):
    """Looks things up."""

    model = "scripted:m"
    instructions = "You help."


class Worker(Agent):
    session = "key"
    instructions = "You work."

    @chat_model_setup
    @staticmethod
    def model_of_all() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="scripted:m", skill_tools="full", skill_lifetime="session")

    @tool(dynamic=True)
    def weigh(self, text: str) -> int:
        """Weighs a text."""
        return len(text)

    @agent_tool
    def ask(self) -> Agent:
        return Helper()

    async def on_event(self, event: Any, ctx: Any) -> Any:
        answer = await ctx.chat(event["text"])
        ctx.state["turns"] = ctx.state.get("turns", 0) + 1
        ctx.state["called"] = await ctx.step("note", lambda text: text.upper(), answer)
        return answer


# What the model of the worker answers, by the number of results that the turn has so far.
STEPS: list[Any] = [
    [call("skill_load", skill="ants", docs=["guide.md"]), call("skill_load", skill="bees")],
    [call("weigh", text="12345"), call("double", number=21)],
    [
        call(
            "skill_run",
            skill="ants",
            command="cat work/inputs/notes.txt > $OUTPUT_DIR/copy.txt; echo 1 > $OUTPUT_DIR/one.txt",
            output_files=["out/*.txt"],
            save_as_artifacts=True,
        ),
        call("ask", request="and bees?"),
    ],
    [call("skill_select_docs", skill="bees", include_all_docs=True), call("skill_unload", skill="ants")],
    [
        call(
            "skill_run",
            skill="bees",
            command="cat work/inputs/again.txt",
            inputs=[{"from": "artifact://out/copy.txt", "to": "work/inputs/again.txt", "pin": True}],
        )
    ],
]


def answer(request: ModelRequest) -> Any:
    last = 0
    for at, message in enumerate(request.messages):
        if type(message).__name__ == "UserMessage":
            last = at
    done = [message for message in request.messages[last:] if isinstance(message, ToolMessage)]
    if request.system.startswith("You help."):
        return "bees it is" if done else calls(call("load_skill", name="bees"), prefix="h")
    count = 0
    for number, step in enumerate(STEPS):
        if count == len(done):
            return calls(*step, prefix=f"s{number}-{len(request.messages)}")
        count += len(step)
    return "all done"


EVENT = {"text": "go", "files": [{"name": "notes.txt", "data": base64.b64encode(b"some notes").decode()}]}


def written(skills: Path) -> Path:
    """Write two skills, one with tools, and return their folder."""
    for name in ("ants", "bees"):
        (skills / name).mkdir(parents=True)
        (skills / name / "SKILL.md").write_text(SKILL.format(name=name))
        (skills / name / "guide.md").write_text(f"Guide to {name}.\n")
    (skills / "ants" / "tools.py").write_text(LOOKS)
    return skills


def plain(outcome: TurnOutcome) -> Any:
    """Everything that a turn leaves, as data, but for the time that a repeated command takes."""
    session = outcome.session
    conversation = session.conversation()
    messages = {model: [message_to_json(message) for message in of] for model, of in conversation.messages.items()}
    found = (
        outcome.status,
        outcome.outputs,
        outcome.change.op,
        messages,
        conversation.skill_states,
        session.state,
    )
    return json.loads(re.sub(r'\\"duration_ms\\": ?[0-9.]+', "", json.dumps(found)))


def step_ids(journal: list[bytes]) -> list[str]:
    return sorted(decode(entry)["id"] for entry in journal)


def saved(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.row("D6", "D14", "E7", "J12")
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.nightly)])
async def test_a_failover_after_any_step_changes_nothing(
    open_agent: OpenAgent, script: Script, tmp_path: Path, every: int
) -> None:
    skills = written(tmp_path / "with-tools")
    event = EVENT

    async def run(name: str, session: Session, journal: list[bytes], number: int, **start: Any) -> Any:
        artifacts = tmp_path / "artifacts" / name
        script(answer)
        # A worker that has never seen this key: no workspace, no process, nothing in memory.
        bench = await open_agent(Worker, skills, **{"skills.artifacts.dir": artifacts.as_uri()})
        outcome = await bench.turn(event, session=session, journal=journal, number=number, **start)
        assert outcome.status == TurnStatus.DONE, outcome
        await bench.runtime.close()
        return outcome, bench.journal, artifacts

    first, journal, artifacts = await run("straight", Session(), [], 1)
    after, whole, _ = await run("straight", first.session, [], 2)
    assert len(journal) == 19, "the steps of this test: 7 requests, 9 calls, 2 of the helper's and 1 of the agent's own"
    assert len(saved(artifacts)) > 2
    results = [m["t"] for m in plain(first)[3]["model_of_all"] if "t" in m]
    assert "some notes" in results[-1]
    assert results[3] == "42"

    expected, contents = plain(first), saved(artifacts)
    for steps in range(0, len(journal), every):
        if steps:
            # What was saved before the failover is still there, and so may be what was saved after the checkpoint.
            shutil.copytree(artifacts, tmp_path / "artifacts" / f"after-{steps}")
        outcome, again, place = await run(f"after-{steps}", Session(), journal[:steps], 1, crashes=1)
        assert plain(outcome) == expected, f"after {steps} steps"
        assert step_ids(again) == step_ids(journal), f"after {steps} steps"
        assert saved(place) == contents, f"after {steps} steps"
    # And in the second turn, which begins with what the first one left.
    for steps in range(0, len(whole), 2 * every):
        outcome, _, _ = await run("straight", first.session, whole[:steps], 2)
        assert plain(outcome) == plain(after), f"after {steps} steps of the second turn"


async def test_a_recorded_turn_runs_from_its_journal_without_skills_models_and_services(
    open_agent: OpenAgent, script: Script, tmp_path: Path
) -> None:
    artifacts = tmp_path / "artifacts"
    script(answer)
    bench = await open_agent(Worker, written(tmp_path / "with-tools"), **{"skills.artifacts.dir": artifacts.as_uri()})
    first = await bench.turn(EVENT)
    journal = bench.journal
    assert first.status == TurnStatus.DONE

    def unreachable(request: ModelRequest) -> Any:
        raise ModelError("the model cannot be reached")

    model = script(unreachable)
    replay = await open_agent(Worker, **{"skills.shell.enabled": False})
    outcome = await replay.turn(EVENT, journal=journal, crashes=1)
    assert plain(outcome) == plain(first)
    assert (model.requests, replay.journal) == ([], journal)


@pytest.mark.row("F11")
async def test_an_artifact_that_an_event_names_is_the_one_that_its_turn_began_with(
    open_agent: OpenAgent, script: Script, tmp_path: Path
) -> None:
    """Also where the turn itself saves a newer one, and is restarted after that."""

    class Saves(Agent):
        session = "key"
        name = "saves"

        @chat_model_setup
        @staticmethod
        def the_model() -> ResourceDescriptor:
            return ResourceDescriptor(clazz="scripted:m", skill_tools="full")

    (tmp_path / "made" / "maker").mkdir(parents=True)
    (tmp_path / "made" / "maker" / "SKILL.md").write_text("---\nname: maker\ndescription: Makes.\n---\nMake it.\n")

    def save(text: str) -> Any:
        return call(
            "skill_run",
            skill="maker",
            command=f"echo {text} > $OUTPUT_DIR/x.txt",
            output_files=["out/x.txt"],
            save_as_artifacts=True,
        )

    load = call("skill_load", skill="maker")
    show = call("skill_run", skill="maker", command="cat $WORK_DIR/inputs/x.txt")
    options = {"skills.artifacts.dir": str(tmp_path / "kept"), "skills.files.allowed": "artifact://out/"}
    event = {"n": 2, "files": [{"uri": "artifact://out/x.txt"}]}

    script([calls(load, save("first")), "done"])
    bench = await open_agent(Saves, tmp_path / "made", **options)
    first = await bench.turn({"n": 1})
    script([calls(load, save("second")), calls(show, prefix="b"), "done"])
    bench = await open_agent(Saves, tmp_path / "made", **options)
    straight = await bench.turn(event, number=2, session=first.session)
    journal = bench.journal
    for steps in range(len(journal) + 1):
        # The script goes on where the journal ends.
        done = sum(decode(entry)["id"].rpartition("/")[2].startswith("m") for entry in journal[:steps])
        script([calls(load, save("second")), calls(show, prefix="b"), "done"][done:])
        bench = await open_agent(Saves, tmp_path / "made", **options)
        again = await bench.turn(event, number=2, session=first.session, journal=journal[:steps])
        assert plain(again) == plain(straight), f"after {steps} steps"
    shown = plain(straight)[3]["the_model"][-2]["t"]
    assert '"stdout": "first\\n"' in shown
