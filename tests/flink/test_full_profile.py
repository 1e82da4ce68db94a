"""The whole tool surface inside a job: skill state, files, artifacts, processes, pools, tools of skills, agents."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from flink_skills import (
    AgentsExecutionEnvironment,
    load_agent_yaml,
)
from flink_skills.testing import Call, ScriptedModelServer
from tests.flink.desk_model import (
    DESK,
    LIBRARIAN,
    NOTES,
    Asked,
    DeskModel,
    Step,
    call,
    desk_cases,
    read_again,
    session_of,
    value_of,
    write_desk_skills,
)
from tests.flink.running import collect, flink_environment, nodes
from tests.kit.flink_rest import wait_until
from tests.kit.passable import passable_folder

pytestmark = pytest.mark.flink

MODULE = Path(__file__).with_name("front_desk.py")
CLERK = "You are the clerk."

# By which the process that is left running is known among those of this machine.
MARK = f"asks-{uuid.uuid4().hex}"
CLERK_CASES: dict[str, dict[str, list[Step]]] = {
    CLERK: {
        "arrival": [
            [call("skill_load", skill="ledger"), call("skill_load", skill="atlas")],
            [call("find_city", street="Elm Street")],
        ]
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


@dataclass
class Job:
    """The job of this module: what it said, and what its models were asked."""

    model: DeskModel
    plan: dict[str, Any]
    described: dict[str, str]
    records: list[Any]
    artifacts: Path
    session: str

    def answer(self, agent: str, case: str) -> str:
        """The answer of an agent."""
        (found,) = [
            record["answer"] if agent == DESK else record
            for record in self.records
            if (record["case"] == case if isinstance(record, dict) else False) == (agent == DESK)
        ]
        return str(found)

    def results(self, agent: str, case: str) -> list[str]:
        """What the tools said in a turn."""
        return self.model.of(agent, case)[-1].results


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """One job for all tests of this module: a mini cluster costs ten times what its turns do."""
    left = asyncio.Event()
    session = ""

    async def before(asked: Asked) -> None:
        nonlocal session
        if asked.agent == DESK and asked.case == "stranger" and asked.step == 0:
            # The stranger comes when the other key has its artifact and its process.
            await asyncio.wait_for(left.wait(), 60)
        if asked.agent == DESK and asked.case == "return":
            session = session or session_of(asked.told)
            left.set()

    def intrude(asked: Asked) -> list[Call]:
        return [call("skill_write_stdin", session_id=session, chars="Eve", submit=True)]

    cases = desk_cases(MARK)
    cases[DESK]["stranger"] = [
        [call("weigh", text="1"), call("double", number=1)],
        [call("skill_load", skill="ledger")],
        read_again,
        intrude,
    ]
    model = DeskModel({**cases, **CLERK_CASES}, before)
    with passable_folder() as folder, client_module(MODULE) as front_desk, ScriptedModelServer(model) as server:
        desk, books = write_desk_skills(folder)
        artifacts = folder / "artifacts"
        env = flink_environment({"skills.artifacts.dir": artifacts.as_uri(), "skills.store.dir": str(folder / "store")})
        env.add_python_file(str(MODULE))
        agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
        agents_env.add_skills_from_paths(str(desk))
        arrival = {"k": "a", "case": "arrival", "files": [NOTES]}
        given = env.from_collection([arrival, {"k": "b", "case": "stranger"}, {"k": "a", "case": "return"}])
        events = agents_env.from_datastream(given, lambda event: event["k"])
        yaml = folder / "clerk.yaml"
        yaml.write_text(CLERK_YAML.format(url=server.url))
        outputs = events.apply(front_desk.FrontDesk(server.url, str(books))), events.apply(load_agent_yaml(yaml))
        plan = json.loads(agents_env.get_execution_plan())
        described = {node["type"]: node["contents"] for node in nodes(agents_env)}
        records = collect(*(output.to_datastream(tag=tag) for output in outputs for tag in ("", "errors")))
        assert [record["error"] for record in records if isinstance(record, dict) and "error" in record] == []
        yield Job(model, plan, described, records, artifacts, session)


@contextlib.contextmanager
def client_module(file: Path) -> Iterator[ModuleType]:
    """A module as the client alone has it: workers get it if it is shipped."""
    with pytest.MonkeyPatch.context() as patch:
        with patch.context() as only_now:
            only_now.syspath_prepend(file.parent)
            module = importlib.import_module(file.stem)
        patch.setitem(sys.modules, file.stem, module)
        yield module


@pytest.mark.row("J12")
def test_the_plan_says_the_tools_of_each_model_and_the_agents_that_are_tools(job: Job) -> None:
    desk, clerk = job.plan["agents"]
    assert desk["models"]["scripted"]["skill_tools"] == "full"
    assert clerk["models"]["scripted"]["skill_tools"] == ["skill_load", "skill_select_tools"]
    librarian = desk["agents"]["look_up"]
    assert librarian["agent"] == "librarian"
    assert librarian["models"]["scripted"]["effective_skills"] == ["atlas", "law", "ledger"]
    assert desk["models"]["scripted"]["effective_skills"] == ["atlas", "ledger"]
    assert "agent tool look_up: (agent librarian" in job.described["agent front-desk"]


@pytest.mark.row("I1", "I2", "I3")
def test_skills_docs_files_and_tools_of_all_kinds_in_a_turn(job: Job) -> None:
    asked = job.model.of(DESK, "arrival")
    dynamic = {"weigh", "total", "find_city", "of_turn", "double", "whose"}
    assert [request.tools & dynamic for request in asked[:3]] == [set(), set(), dynamic]
    assert {"ring", "look_up", "skill_list", "load_skill_resource"} <= asked[0].tools
    for text, since in (("Body of the ledger.", 2), ("Guide to the ledger.", 2), ("Other things about", 3)):
        assert [text in request.system for request in asked] == [at >= since for at in range(len(asked))]

    listed, loaded, selected, ran, *called = job.results(DESK, "arrival")
    assert json.loads(listed) == ["atlas", "ledger"]
    assert loaded.startswith("loaded: ledger, with guide.md")
    assert value_of(selected)["selected_docs"] == ["guide.md", "other.txt"]
    assert value_of(ran)["output_files"][0]["content"] == "SOME NOTES\n"
    assert called[:3] == ["5", "6", "Elm Street is in Springfield"]
    assert called[3] == "turn 1 of a"
    assert called[4].startswith("42")
    assert called[5:7] == ["sandbox", "ding"]
    assert value_of(called[8])["interaction"]["hint"] == "Who are you?"
    (saved,) = value_of(ran)["artifact_files"]
    files = [path for path in job.artifacts.rglob("loud.txt") if path.is_file()]
    assert [(path.read_text(), path.parent.name) for path in files] == [("SOME NOTES\n", saved["version"])]


@pytest.mark.row("D13", "J12")
def test_an_agent_as_a_tool_has_skills_of_its_own(job: Job) -> None:
    assert job.results(DESK, "arrival")[-2].startswith("done: ")
    assert "Body of the law." in job.results(DESK, "arrival")[-2]
    assert "law" not in job.model.of(DESK, "arrival")[0].system
    first, second = job.model.of(LIBRARIAN, "law for: arrival")
    assert first.tools == {"load_skill", "unload_skill", "load_skill_resource", "execute_shell_command"}
    assert "Body of the law." in second.results[0]


@pytest.mark.row("I6")
def test_the_next_event_of_a_key_goes_on_with_what_there_is(job: Job) -> None:
    asked = job.model.of(DESK, "return")
    # Loaded in the turn before, with its docs and tools.
    assert "Other things about the ledger." in asked[0].system
    assert {"weigh", "total", "double"} <= asked[0].tools
    wrote, ran = job.results(DESK, "return")
    assert value_of(wrote)["output"] == "Hello, Ada.\n"
    assert value_of(wrote)["session_id"] == job.session
    assert value_of(ran)["stdout"] == "SOME NOTES\n"
    assert job.answer(DESK, "return") == f"done: {ran}"


def test_another_key_has_nothing_of_it(job: Job) -> None:
    asked = job.model.of(DESK, "stranger")
    assert "Body of the ledger." not in asked[0].system
    unloaded, unbrought, _, artifact, process = job.results(DESK, "stranger")
    assert "Tool 'weigh' not found. Is the skill loaded? Skill ledger has it" in unloaded
    assert "Tool 'double' not found. Is the skill loaded?" in unbrought
    assert "there is no artifact 'out/loud.txt'" in artifact
    assert f"unknown session_id '{job.session}'" in process


@pytest.mark.row("D10", "I1")
def test_an_agent_in_yaml_has_a_pool_and_settings_of_its_model(job: Job) -> None:
    asked = job.model.of(CLERK, "arrival")
    assert asked[0].tools == {"skill_load", "skill_select_tools"}
    # At most one skill: of the two that were loaded at once, the second one stays.
    assert asked[1].tools == {"skill_load", "skill_select_tools", "find_city"}
    assert "Body of the atlas." in asked[1].system
    assert "Body of the ledger." not in asked[1].system
    assert asked[2].results[-1] == "Elm Street is in Springfield"
    # Its skills are for a turn.
    later = [request for case in ("stranger", "return") for request in job.model.of(CLERK, case)]
    assert [request.tools for request in later] == [{"skill_load", "skill_select_tools"}] * 2
    assert sum(isinstance(record, str) for record in job.records) == 3


def test_what_runs_in_the_background_ends_with_the_job(job: Job) -> None:
    def left() -> list[int]:
        return [process.pid for process in psutil.process_iter(["cmdline"]) if MARK in (process.info["cmdline"] or [])]

    wait_until(lambda: not left(), 10, "the process of the last turn to end")
