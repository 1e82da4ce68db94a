"""The whole tool surface inside a job: skill state, files, artifacts, processes, pools, tools of skills, agents."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from flink_skills import AgentsExecutionEnvironment, load_agent_yaml
from flink_skills.testing import ScriptedModelServer
from tests.flink.desk_model import Asked, DeskModel, call, session_of, value_of, write_desk_skills
from tests.flink.running import collect, flink_environment, nodes

pytestmark = pytest.mark.flink

MODULE = Path(__file__).with_name("front_desk.py")
DESK, LIBRARIAN, CLERK = "You are the front desk.", "You look things up.", "You are the clerk."

LOUD = "tr a-z A-Z < work/inputs/notes.txt > $OUTPUT_DIR/loud.txt"
AGAIN = {"from": "artifact://out/loud.txt", "to": "work/inputs/again.txt"}


@pytest.fixture
def front_desk(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as the client has it; workers get it only if it is shipped."""
    with monkeypatch.context() as only_now:
        only_now.syspath_prepend(MODULE.parent)
        module = importlib.import_module("front_desk")
    monkeypatch.setitem(sys.modules, "front_desk", module)
    return module


CASES = {
    DESK: {
        "arrival": [
            [call("skill_list")],
            [call("skill_load", skill="ledger", docs=["guide.md"])],
            [call("skill_select_docs", skill="ledger", docs=["other.txt"], mode="add")],
            [call("skill_run", skill="ledger", command=LOUD, output_files=["out/*.txt"], save_as_artifacts=True)],
            [
                call("weigh", text="12345"),
                call("total", numbers=[1, 2, 3]),
                call("find_city", street="Elm Street"),
                call("of_turn"),
                call("double", number=21),
                call("whose"),
                call("ring"),
            ],
            [call("look_up", request="the law")],
            [call("skill_exec", skill="ledger", command="sh scripts/ask.sh")],
        ],
        "return": [
            lambda results: [call("skill_write_stdin", session_id=session_of(results), chars="Ada", submit=True)],
            [call("skill_run", skill="ledger", command="cat work/inputs/again.txt", inputs=[AGAIN])],
        ],
        "stranger": [
            [call("weigh", text="1")],
            [call("skill_load", skill="ledger")],
            [call("skill_run", skill="ledger", command="cat work/inputs/again.txt", inputs=[AGAIN])],
        ],
    },
    LIBRARIAN: {"*": [[call("skill_load", skill="law")]]},
    CLERK: {
        "arrival": [
            [call("skill_load", skill="ledger"), call("skill_load", skill="atlas")],
            [call("find_city", street="Elm Street")],
        ],
        "*": [],
    },
}

CLERK_YAML = """
name: clerk
instructions: You are the clerk.
chat_model_connections:
  server: {{clazz: openai-compatible.connection, base_url: "{url}"}}
chat_model_setups:
  scripted:
    clazz: openai-compatible.setup
    connection: server
    model: scripted
    skill_tools: [skill_load, skill_select_tools]
    skill_lifetime: turn
    max_loaded_skills: 1
tool_pool: ["front_desk:total", find_city]
"""


@pytest.mark.row("C8", "D4", "D9", "D13", "F10", "F11", "F14", "G1", "G2", "I1", "I3", "J3", "J12", "K1")
def test_every_tool_of_the_full_profile_in_one_job(
    serve: Callable[..., ScriptedModelServer], tmp_path: Path, front_desk: ModuleType
) -> None:
    left = asyncio.Event()
    sessions: list[str] = []

    async def before(asked: Asked) -> None:
        # The stranger comes when the other key has its artifact and its process.
        if (asked.agent, asked.case) == (DESK, "stranger") and asked.step == 0:
            await asyncio.wait_for(left.wait(), 60)
        if (asked.agent, asked.case) == (DESK, "return"):
            sessions.append(session_of(asked.results or [m.get("content") or "" for m in asked.body["messages"]]))
            left.set()

    def stranger(results: list[str]) -> list[Any]:
        return [call("skill_write_stdin", session_id=sessions[0], chars="Eve", submit=True)]

    cases = {**CASES, DESK: {**CASES[DESK], "stranger": [*CASES[DESK]["stranger"], stranger]}}
    model = DeskModel(cases, before)
    server = serve(model)
    desk, books = write_desk_skills(tmp_path)
    artifacts = tmp_path / "artifacts"
    env = flink_environment(
        {"skills.artifacts.dir": artifacts.as_uri(), "skills.store.dir": str(tmp_path / "store"), "skills.turn.timeout": "90 s"}
    )
    env.add_python_file(str(MODULE))
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    agents_env.add_skills_from_paths(str(desk))
    notes = [{"name": "notes.txt", "text": "some notes\n"}]
    events = env.from_collection(
        [{"k": "a", "case": "arrival", "files": notes}, {"k": "b", "case": "stranger"}, {"k": "a", "case": "return"}]
    )
    given = agents_env.from_datastream(events, lambda event: event["k"])
    yaml = tmp_path / "clerk.yaml"
    yaml.write_text(CLERK_YAML.format(url=server.url))
    outputs = given.apply(front_desk.FrontDesk(server.url, str(books))), given.apply(load_agent_yaml(yaml))

    plan = json.loads(agents_env.get_execution_plan())
    of_desk, of_clerk = plan["agents"]
    assert of_desk["models"]["scripted"]["skill_tools"] == "full"
    assert of_desk["agents"]["look_up"]["agent"] == "librarian"
    assert of_desk["agents"]["look_up"]["models"]["scripted"]["effective_skills"] == ["atlas", "law", "ledger"]
    assert of_clerk["models"]["scripted"]["skill_tools"] == ["skill_load", "skill_select_tools"]
    described = {node["type"]: node["contents"] for node in nodes(agents_env)}
    assert "agent tool look_up: (agent librarian" in described["agent front-desk"]

    records = collect(*(output.to_datastream(tag=tag) for output in outputs for tag in ("", "errors")))
    assert [record for record in records if isinstance(record, dict) and record.get("error")] == []
    answers = {record["case"]: record["answer"] for record in records if isinstance(record, dict)}

    for asked in model.asked:
        print(asked.agent, asked.case, asked.step, sorted(asked.tools), asked.results)
    print(answers)
