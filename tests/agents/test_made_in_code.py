"""Skills made in code: of a job and of an agent, with the plan to the workers, and to models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flink_skills import (
    Agent,
    AgentPlan,
    AgentsExecutionEnvironment,
    AgentSkill,
    ResourceDescriptor,
    ResourceName,
    chat_model_setup,
    skills,
)
from flink_skills.agents import compile_plan
from flink_skills.errors import ConfigError, PlanError, SkillLockError, UnknownNameError
from flink_skills.manager import SkillLock, SkillScope
from flink_skills.skill import load_folder
from flink_skills.testing import call, calls
from tests.kit.models import Script
from tests.kit.skills import write_skill

GREET = AgentSkill("greet", "Says hello.", "Run it.", {"hello.sh": "#!/bin/sh\necho hello from $SKILL_NAME\n"})
SECRET = AgentSkill("secret", "Not for every model.", "Secret text.")
LARGE = AgentSkill("large", "Is large.", resources={"a.txt": "x" * (1 << 20)})


class Desk(Agent):
    name = "desk"

    @chat_model_setup
    @staticmethod
    def model() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="scripted:m", skill_names=["greet"])

    @skills
    @staticmethod
    def own() -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, skills=[GREET])


def agent_with(**arguments: Any) -> type[Agent]:
    class Declares(Agent):
        name = "declares"
        model = "offline"

        @skills
        @staticmethod
        def own() -> ResourceDescriptor:
            return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, **arguments)

    return Declares


@pytest.fixture
def environment(tmp_path: Path) -> AgentsExecutionEnvironment:
    made = AgentsExecutionEnvironment.get_execution_environment()
    for key, value in {
        "skills.store.dir": str(tmp_path / "store"),
        "skills.shell.backend": "hygiene",
        "skills.shell.min-isolation": "HYGIENE",
    }.items():
        made.get_config().set(key, value)
    return made


def test_skills_travel_with_the_plan_and_are_described_by_name(script: Script) -> None:
    plan = compile_plan(Desk, job_scopes=[SkillScope("job", skills=[SECRET])])
    sealed, secrets = plan.seal()
    again = AgentPlan.from_json(json.loads(json.dumps(sealed.to_json()))).unseal(secrets)
    assert again.scopes == plan.scopes
    assert [skill.digest for scope in again.scopes for skill in scope.skills] == [SECRET.digest, GREET.digest]
    described = json.dumps(plan.describe())
    assert [source["skills"] for source in plan.describe()["sources"]] == [["secret"], ["greet"]]
    assert "Secret text." not in described


def test_a_model_gets_the_skills_that_it_may_have_and_runs_them(
    script: Script, environment: AgentsExecutionEnvironment
) -> None:
    answers = [
        calls(call("load_skill", name="secret")),
        calls(call("load_skill", name="greet")),
        calls(call("execute_shell_command", command="./hello.sh")),
        "done",
    ]
    model = script(answers)
    assert environment.add_skills([SECRET]).from_list(["x"]).apply(Desk).to_list() == ["done"]
    told = str(model.requests[-1])
    assert "There is no skill 'secret'" in told
    assert "hello from greet" in told
    assert "Secret text." not in told


def test_names_and_locks_hold(tmp_path: Path, environment: AgentsExecutionEnvironment, script: Script) -> None:
    lock = tmp_path / "skills.lock"
    lock.write_text(SkillLock.of([GREET.model_copy(update={"instructions": "Other."})]).to_text())
    environment.get_config().set("skills.lock", str(lock))
    with pytest.raises(SkillLockError, match="greet"):
        environment.from_list(["x"]).apply(Desk)
    other = AgentsExecutionEnvironment.get_execution_environment()
    other.get_config().set("skills.store.dir", str(tmp_path / "store"))
    with pytest.raises(UnknownNameError, match="gret"):
        other.from_list(["x"]).apply(agent_with(skills=[GREET], skill_names=["gret"]))


def test_skills_that_are_too_large_to_travel() -> None:
    environment = AgentsExecutionEnvironment.get_execution_environment()
    with pytest.raises(ConfigError, match=r"add_skills: the skills created in code have \d+ bytes as JSON \(large 10"):
        environment.add_skills([GREET, LARGE])
    with pytest.raises(PlanError, match=r"large \d+.*Put them into a folder or an archive"):
        compile_plan(agent_with(skills=[LARGE]))
    half = AgentSkill("half", "Is half of it.", resources={"a.txt": "x" * (1 << 19)})
    environment.add_skills([half])
    with pytest.raises(ConfigError, match="agent declares: the skills created in code"):
        environment.from_list(["x"]).apply(agent_with(skills=[half]))


def test_a_binary_file_does_not_travel(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "b")
    (folder / "logo.png").write_bytes(b"\xff\x00")
    skill = load_folder(str(folder)).skill
    assert skill is not None
    with pytest.raises(ConfigError, match=r"add_skills: skill 'b': 'logo\.png' is not UTF-8 text"):
        AgentsExecutionEnvironment.get_execution_environment().add_skills([skill])


@pytest.mark.parametrize("value", [GREET, "greet", ["greet"]])
def test_other_values_than_lists_of_skills_are_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="Give"):
        AgentsExecutionEnvironment.get_execution_environment().add_skills(value)
    with pytest.raises(PlanError, match="Give"):
        compile_plan(agent_with(skills=value))


def test_no_skill_and_no_source() -> None:
    with pytest.raises(PlanError, match="names no source; give paths=, resources=, urls= or skills="):
        compile_plan(agent_with(skills=[]))
