"""The job graph of agents that wait, and waits that end at their deadline in a mini cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyflink.common import Configuration, Types
from pyflink.table import StreamTableEnvironment
from pyflink.util.java_utils import get_j_env_configuration

from flink_skills import (
    Agent,
    AgentContext,
    AgentsExecutionEnvironment,
    ConfigError,
    SkillOptions,
    UnknownNameError,
    WaitTimeout,
)
from tests.flink.running import flink_environment

pytestmark = pytest.mark.flink

ORDER = Types.ROW_NAMED(["order", "cents"], [Types.STRING(), Types.INT()])
ANSWER = Types.ROW_NAMED(["order", "wait_id"], [Types.STRING(), Types.STRING()])


class Impatient(Agent):
    """Waits for a person, for a short time."""

    name = "impatient"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        try:
            return await ctx.wait("approval", timeout=0.1)
        except WaitTimeout as error:
            return str(error)


class InTheInput(Impatient):
    """Reads answers in its events."""

    answer_field = "wait"


class Job:
    """A job with a stream of orders and one of answers."""

    def __init__(self) -> None:
        self.env = flink_environment()
        self.t_env = StreamTableEnvironment.create(self.env)
        self.agents = AgentsExecutionEnvironment.get_execution_environment(self.env, self.t_env)
        self.orders = self.env.from_collection([("A-1", 30)], ORDER)
        self.given = self.env.from_collection([("A-1", "approval")], ANSWER)

    def applied(self, agent: Any = Impatient) -> Any:
        return self.agents.from_datastream(self.orders, "order").apply(agent)

    def names(self) -> list[str]:
        """Return the names of the nodes of Flink's plan."""
        return [node["type"] for node in json.loads(self.agents.get_execution_plan())["flink"]["nodes"]]


@pytest.fixture
def job() -> Job:
    return Job()


def test_a_wait_ends_at_its_deadline(job: Job) -> None:
    # An input that does not end, because the end of all inputs ends a wait as well.
    job.t_env.execute_sql(
        "CREATE TABLE more (`order` STRING, wait_id STRING) WITH ('connector' = 'datagen', 'rows-per-second' = '1')"
    )
    outputs = job.applied().answers(job.t_env.from_path("more"), "order").to_datastream()
    with outputs.execute_and_collect() as records:
        assert next(records) == "wait 'approval' had no answer in time"


def test_an_agent_whose_outputs_are_not_read_is_in_the_graph_once(job: Job) -> None:
    job.applied().answers(job.given, "order")
    assert [name for name in job.names() if "impatient" in name] == ["agent impatient"]


def test_a_table_can_have_the_answers(job: Job) -> None:
    output = job.applied()
    assert output.answers(job.t_env.from_data_stream(job.given), "order") is output


def test_two_forms_of_the_url_of_the_bridge_are_one_class_loader() -> None:
    env = flink_environment()
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    output = agents_env.from_datastream(env.from_collection([("A-1", 5)], ORDER), "order").apply(Impatient)
    # PyFlink adds jars again in another form, for example for a table.
    configuration = Configuration(j_configuration=get_j_env_configuration(env._j_stream_execution_environment))
    jars = configuration.get_string("pipeline.jars", "")
    assert "file:///" in jars
    configuration.set_string("pipeline.jars", jars.replace("file:///", "file:/"))
    output.answers(env.from_collection([("A-1", "approval")], ANSWER), "order")


def test_the_table_of_questions_has_the_columns_of_the_records(job: Job) -> None:
    schema = str(job.applied().to_wait_table()._j_table.getResolvedSchema().toString())
    columns = {"wait_id": "STRING", "turn": "BIGINT", "payload": "STRING", "attempt": "INT", "answer": "STRING"}
    columns |= dict.fromkeys(["deadline", "since", "at"], "TIMESTAMP_LTZ(3)")
    assert all(f"`{name}` {of}" in schema for name, of in columns.items())


def test_a_type_for_questions_has_only_their_fields(job: Job) -> None:
    output = job.applied()
    output.to_datastream(Types.ROW_NAMED(["wait_id", "status"], [Types.STRING(), Types.STRING()]), tag="waits")
    with pytest.raises(UnknownNameError, match="records of waits"):
        output.to_datastream(Types.ROW_NAMED(["wait"], [Types.STRING()]), tag="waits")


def test_fields_that_the_rows_do_not_have_are_reported(job: Job) -> None:
    with pytest.raises(UnknownNameError, match="wait field"):
        job.applied().answers(job.given, "order", wait_id="wait")
    with pytest.raises(UnknownNameError, match="answer_field of agent impatient"):
        job.applied(InTheInput)


def test_answers_of_another_kind_are_rejected(job: Job) -> None:
    with pytest.raises(ConfigError, match="give a DataStream or a Table"):
        job.applied().answers([("A-1", "approval")], "order")


def test_a_job_without_an_input_for_answers_rejects_an_answer_field(job: Job) -> None:
    with pytest.raises(ConfigError, match="needs from_datastream or from_table"):
        job.agents.compile(InTheInput, local=True, events="json", outputs="record")


def test_the_operator_reads_the_settings_of_waits(job: Job) -> None:
    settings = {
        SkillOptions.TURN_WHEN_WAITING: "next",
        SkillOptions.WAITS_KEEP: "10 s",
        SkillOptions.WAITS_MAX_EARLY: 5,
        SkillOptions.WAITS_ON_DRAIN: "time-out",
    }
    for option, value in settings.items():
        job.agents.get_config().set(option, value)
    job.applied().answers(job.given, "order")
    assert "agent impatient" in job.names()
