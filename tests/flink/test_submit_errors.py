"""What is wrong with a job and can be known before it runs is one clear error of ours at ``apply``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyflink.common import Types
from pyflink.table import EnvironmentSettings, StreamTableEnvironment

from flink_skills import (
    Agent,
    AgentsExecutionEnvironment,
    ConfigError,
    PlanError,
    Prompt,
    ResourceDescriptor,
    ResourceName,
    SkillOptions,
    SkillsError,
    SourceError,
    UnknownNameError,
    chat_model_setup,
    prompt,
    tool,
)
from tests.flink.agents import Echo
from tests.flink.running import agents_environment, environments, flink_environment
from tests.flink.skill_files import write_skill

pytestmark = pytest.mark.flink


class Declared(Agent):
    """An agent with the setup that a case asks for."""

    name = "declared"

    def __init__(self, **setup: Any) -> None:
        self.setup = {"clazz": ResourceName.ChatModel.OFFLINE_SETUP, **setup}

    @chat_model_setup
    def chatter(self) -> ResourceDescriptor:
        return ResourceDescriptor(**self.setup)

    @tool
    def price(self, article: str) -> float:
        """Price of an article."""
        return 1.0


class Templated(Agent):
    name = "templated"
    model = "offline"

    def __init__(self, user: str) -> None:
        self.user = user

    @prompt
    def main(self) -> Prompt:
        return Prompt(user=self.user)


class Unsendable(Agent):
    name = "unsendable"
    model = "offline"

    def __init__(self) -> None:
        self.lock = threading.Lock()


def nothing(agents_env: AgentsExecutionEnvironment, folder: Path) -> None:
    """The job needs no preparation."""


def own_folder(agents_env: AgentsExecutionEnvironment, folder: Path) -> None:
    agents_env.add_skills_from_paths([str(folder)])


@dataclass(frozen=True)
class Mistake:
    label: str
    agent: Callable[[], Any]
    error: type[SkillsError]
    message: str
    prepare: Callable[[AgentsExecutionEnvironment, Path], object] = nothing


MISTAKES = [
    Mistake(
        "unknown skill name",
        lambda: Declared(skill_names=["log-triag"]),
        UnknownNameError,
        "skill 'log-triag' in skill_names of chat model 'chatter' of agent declared: did you mean 'log-triage'",
        own_folder,
    ),
    Mistake("unknown tool", lambda: Declared(tools=["prise"]), UnknownNameError, "tool 'prise'.*did you mean 'price'"),
    Mistake(
        "relative path of the job",
        lambda: Echo,
        ConfigError,
        r"skill path 'my/skills' \(job level\) is relative.*write '/.*/my/skills'",
        lambda env, folder: env.add_skills_from_paths(["my/skills"]),
    ),
    Mistake(
        "missing folder",
        lambda: Echo,
        SourceError,
        "skill source .*/nowhere: does not exist",
        lambda env, folder: env.add_skills_from_paths([f"{folder}/nowhere"]),
    ),
    Mistake(
        "plain http without leave",
        lambda: Echo,
        SkillsError,
        "allow-http",
        lambda env, folder: env.add_skills_from_urls(["http://127.0.0.1:1/skills.zip"]),
    ),
    Mistake(
        "an unreachable URL",
        lambda: Echo,
        SourceError,
        "127.0.0.1:1/skills.zip",
        lambda env, folder: (
            env.get_config()
            .set(SkillOptions.SOURCE_ALLOW_HTTP, True)
            .set(SkillOptions.SOURCE_ALLOW_PRIVATE, True)
            .set(SkillOptions.SOURCE_TIMEOUT, "2 s"),
            env.add_skills_from_urls(["http://127.0.0.1:1/skills.zip"]),
        ),
    ),
    Mistake("a lock in an attribute", Unsendable, PlanError, "unsendable cannot be sent to the workers"),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.label)
def test_mistakes_are_errors_at_apply(mistake: Mistake, tmp_path: Path) -> None:
    write_skill(tmp_path, "log-triage")
    env, agents_env = environments()
    mistake.prepare(agents_env, tmp_path)
    events = env.from_collection([("a", 1)], Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.INT()]))
    given = agents_env.from_datastream(events, "k")
    agent = mistake.agent()
    before = env._j_stream_execution_environment.getTransformations().size()
    with pytest.raises(mistake.error, match=f"(?s){mistake.message}") as caught:
        given.apply(agent)
    assert len(str(caught.value)) < 600
    after = env._j_stream_execution_environment.getTransformations().size()
    assert after == before, "something of the agent is in the job"


def test_a_broken_skill_is_skipped_and_named_and_strict_refuses_it(tmp_path: Path) -> None:
    write_skill(tmp_path, "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "SKILL.md").write_text("---\nname: [\n---\n")
    env, agents_env = environments()
    agents_env.add_skills_from_paths(str(tmp_path))
    events = env.from_collection([("a", 1)], Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.INT()]))
    given = agents_env.from_datastream(events, "k")
    given.apply(Declared(skill_names=["good"]))
    with pytest.raises(UnknownNameError, match=r"unknown skill 'bad'.*there are: good"):
        given.apply(Declared(skill_names=["bad"]))
    strict = agents_environment().add_skills_from_paths(str(tmp_path))
    strict.get_config().set(SkillOptions.STRICT, True)
    with pytest.raises(SkillsError, match="bad"):
        strict.from_datastream(events, "k").apply(Declared(skill_names=["good"]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"skills.turn.timeout": "soon"}, "skills.turn.timeout: cannot use 'soon'"),
        ({"skills.turn.timout": "1 s"}, "unknown option 'skills.turn.timout'.*did you mean 'skills.turn.timeout'"),
        ({"skills.turn.on-error": "ignore"}, "write one of emit, fail"),
    ],
)
def test_wrong_options_of_flinks_configuration(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=f"in Flink's configuration: .*{message}"):
        agents_environment(options)


@pytest.mark.parametrize(("mode", "of"), [("BATCH", "stream"), ("BATCH", "table"), ("AUTOMATIC", "stream")])
def test_batch_mode_is_rejected_by_name(mode: str, of: str) -> None:
    flink, env = environments({"execution.runtime-mode": mode})
    if of == "table":
        table = env.table_environment().from_elements([("a", 1)], ["k", "v"])
        events = env.from_table(table, "k")
    else:
        events = env.from_datastream(flink.from_collection([("a", 1)]), lambda event: event[0])
    with pytest.raises(ConfigError, match=rf"agent echo: execution\.runtime-mode is {mode}, .* STREAMING"):
        events.apply(Echo("echo"))


def test_a_table_environment_in_batch_mode_is_rejected_by_name() -> None:
    flink = flink_environment()
    t_env = StreamTableEnvironment.create(flink, EnvironmentSettings.in_batch_mode())
    env = AgentsExecutionEnvironment.get_execution_environment(t_env=t_env)
    table = t_env.from_elements([("a", 1)], ["k", "v"])
    with pytest.raises(ConfigError, match=r"execution\.runtime-mode is BATCH"):
        env.from_table(table, "k").apply(Echo("echo"))


def test_columns_of_a_table_and_fields_of_rows_are_what_placeholders_may_name() -> None:
    agents_env = agents_environment()
    table = agents_env.table_environment().from_elements([("a", 1)], ["k", "v"])
    env = agents_env._env
    assert env is not None
    rows = env.from_collection([("a", 1)], Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.INT()]))
    for given in (
        agents_env.from_table(table, "k"),
        agents_env.from_table(table, lambda row: row["k"]),
        agents_env.from_datastream(rows, lambda row: row[0]),
        agents_env.from_datastream(rows.key_by(lambda row: row[0])),
    ):
        given.apply(Templated("{k} {v} {event} ${HOME} {{x}}"))
        with pytest.raises(UnknownNameError, match=r"unknown field 'vv'.* did you mean '\{v\}'"):
            given.apply(Templated("{vv}"))
    pickled = agents_env.from_datastream(env.from_collection([{"vv": 1}]), "vv")
    pickled.apply(Templated("{vv} {other}"))


def test_options_of_flink_count_until_the_first_apply_and_are_errors_after_it() -> None:
    agents_env = agents_environment()
    t_env = agents_env.table_environment()
    t_env.get_config().set("skills.turn.timeout", "7 s")
    assert agents_env.get_config().get(SkillOptions.TURN_TIMEOUT) == 7
    t_env.get_config().set("skills.turn.timeout", "8 s")
    given = agents_env.from_table(t_env.from_elements([("a", 1)], ["k", "v"]), "k")
    output = given.apply(Echo)
    assert '"skills.turn.timeout": 8' in agents_env.get_execution_plan()
    t_env.get_config().set("skills.turn.timeout", "9 s")
    for late in (
        lambda: given.apply(Echo("second")),
        lambda: output.to_table({"key": "STRING"}),
        output.to_datastream,
        agents_env.execute,
    ):
        with pytest.raises(ConfigError, match=r"skills\.turn\.timeout in Flink's configuration: agent .* is compiled"):
            late()
    t_env.get_config().set("skills.turn.timeout", "8 s")
    output.to_datastream()
