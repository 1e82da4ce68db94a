"""Options and attributes that nothing would read are errors where they are set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, AgentsConfiguration, AgentsExecutionEnvironment, ConfigError, load_agent_yaml


class Judge(Agent):
    name = "judge"
    model = "offline"


def env() -> AgentsExecutionEnvironment:
    return AgentsExecutionEnvironment.get_execution_environment()


@pytest.mark.parametrize(
    ("made", "name", "value", "problem"),
    [
        (env, "parallelism", 2, "AgentsExecutionEnvironment.parallelism cannot be set: set options"),
        (env, "skills", ["/opt/skills"], "AgentsExecutionEnvironment.skills cannot be set"),
        (env, "get_config", {}, "AgentsExecutionEnvironment.get_config cannot be set"),
        (AgentsConfiguration, "turn_timeout", "1 s", r"set an option with set\('skills.turn.timeout', …\)"),
        (AgentsConfiguration, "anything", 1, "AgentsConfiguration.anything cannot be set"),
    ],
)
def test_an_attribute_that_nothing_reads_cannot_be_set(made: Any, name: str, value: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        setattr(made(), name, value)


def test_a_misspelled_method_comes_with_near_names() -> None:
    with pytest.raises(AttributeError, match="did you mean 'add_skills_from_paths'"):
        env().add_skill_from_paths(["/opt/skills"])  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="AgentsConfiguration has no attribute 'sett': did you mean 'set'"):
        env().get_config().sett("skills.turn.timeout", "1 s")  # type: ignore[attr-defined]


def test_an_environment_of_a_user_has_attributes() -> None:
    class Own(AgentsExecutionEnvironment):
        def __init__(self) -> None:
            super().__init__()
            self.more = 1

    assert Own().more == 1


def test_an_attribute_of_an_agent_of_yaml_cannot_be_set(tmp_path: Path) -> None:
    file = tmp_path / "judge.yaml"
    file.write_text("name: judge\nmodel: offline\n", encoding="utf-8")
    agent = load_agent_yaml(file)
    for name, value in (("instructions", "Be brief."), ("output_type", int), ("anything", 1)):
        with pytest.raises(ConfigError, match=f"agent judge: {name} cannot be set, because .* its YAML: write it"):
            setattr(agent, name, value)
    assert env().from_list(["x"]).apply(agent).to_list() == ["No skill fits this event."]


def test_options_after_apply_are_errors() -> None:
    agents_env = env()
    agents_env.from_list(["x"]).apply(Judge)
    for late in (
        lambda: agents_env.get_config().set("skills.turn.timeout", "1 s"),
        lambda: agents_env.add_skills_from_paths(["/opt/skills"]),
        lambda: agents_env.add_skills_from_urls(["https://skills.example/a.zip"]),
        lambda: agents_env.add_skills_from_resources(["skills"]),
        lambda: agents_env.add_skills([]),
        lambda: agents_env.add_resource("tone", "Be brief."),
    ):
        with pytest.raises(ConfigError, match="agent judge is compiled already and would not have it"):
            late()
