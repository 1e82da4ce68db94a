"""Skills made in code, in workers."""

from __future__ import annotations

import pytest
from pyflink.common import Types

from flink_skills import AgentsExecutionEnvironment, AgentSkill
from tests.flink.agents import Guarded
from tests.flink.running import collect, flink_environment

pytestmark = pytest.mark.flink


def test_skills_made_in_code_reach_workers() -> None:
    env = flink_environment()
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    agents_env.add_skills([AgentSkill("greet", "Says hello."), AgentSkill("part", "Says goodbye.")])
    stream = env.from_collection(["x"], Types.STRING())
    applied = agents_env.from_datastream(stream, lambda event: event).apply(Guarded(""))
    assert collect(applied.to_datastream()) == [["greet", "part"]]
