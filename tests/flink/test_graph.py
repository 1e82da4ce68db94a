"""Several agents in a job, and what Flink's plan says about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyflink.common import Configuration, Encoder, Types
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink
from pyflink.java_gateway import get_gateway
from pyflink.table import StreamTableEnvironment
from pyflink.util.java_utils import get_j_env_configuration

from flink_skills import (
    Agent,
    AgentContext,
    AgentsExecutionEnvironment,
    ConfigError,
    ResourceDescriptor,
    ResourceName,
    SkillOptions,
    UnknownNameError,
    WaitTimeout,
    chat_model_setup,
    skills,
)
from flink_skills.flink import add_bridge
from tests.flink.agents import Echo, Tally
from tests.flink.running import collect, environments, flink_environment, nodes
from tests.flink.skill_files import write_skill

pytestmark = pytest.mark.flink

TYPE = Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.INT()])


class OnCall(Agent):
    """Two models that see different skills, with skills of its own."""

    name = "on-call"

    def __init__(self, folder: str) -> None:
        self.folder = folder

    @skills
    def own(self) -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, paths=[self.folder])

    @chat_model_setup
    @staticmethod
    def wide() -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.ChatModel.OFFLINE_SETUP)

    @chat_model_setup
    @staticmethod
    def narrow() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="openai:gpt-x", skill_names=["billing", "own-skill"])


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return flink_environment()


@pytest.mark.row("B15")
def test_the_plan_names_each_models_effective_skills(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    for name in ("billing", "triage"):
        write_skill(tmp_path / "job", name)
    write_skill(tmp_path / "agent", "own-skill")
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    agents_env.add_skills_from_paths(str(tmp_path / "job"))
    events = agents_env.from_datastream(env.from_collection([("a", 1)], TYPE), "k")
    events.apply(OnCall(str(tmp_path / "agent")))
    events.apply(Echo, name="second")

    plan = json.loads(agents_env.get_execution_plan())
    on_call, echo = plan["agents"]
    assert on_call["agent"] == "on-call"
    assert on_call["models"]["wide"]["effective_skills"] == ["billing", "own-skill", "triage"]
    assert on_call["models"]["narrow"]["effective_skills"] == ["billing", "own-skill"]
    assert on_call["models"]["narrow"]["model"] == "openai:gpt-x"
    assert echo["models"] == {}

    operators = {node["type"]: node["contents"] for node in nodes(agents_env)}
    described = operators["agent on-call"]
    assert "model wide (offline" in described
    assert "skills: billing, own-skill, triage" in described
    assert "model narrow (openai gpt-x) skills: billing, own-skill" in described
    assert "agent second" in operators


def test_the_plan_holds_no_secret(env: StreamExecutionEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)

    class Keyed(Agent):
        @chat_model_setup
        @staticmethod
        def m() -> ResourceDescriptor:
            return ResourceDescriptor(clazz="openai:gpt-x", api_key_env="OPENAI_API_KEY")

    agents_env.from_datastream(env.from_collection([("a", 1)], TYPE), "k").apply(Keyed)
    assert "sk-very-secret" not in agents_env.get_execution_plan()


@pytest.mark.both_versions
def test_two_agents_side_by_side_and_one_after_another(env: StreamExecutionEnvironment) -> None:
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    events = agents_env.from_datastream(env.from_collection([("a", 1), ("b", -1), ("a", 2)], TYPE), "k")
    tally = events.apply(Tally)
    first, again = events.apply(Echo("first")), events.apply(Echo("first"))
    after = agents_env.from_datastream(tally.to_datastream(), "key").apply(Echo("after"))
    mourner = agents_env.from_datastream(tally.to_datastream(tag="errors"), lambda e: e["key"]).apply(Echo("mourner"))
    names = [node["type"] for node in nodes(agents_env) if node["type"].startswith("agent ")]
    assert sorted(names) == ["agent after", "agent first", "agent first-2", "agent mourner", "agent tally"]

    records = collect(*(output.to_datastream() for output in (first, again, after, mourner)))
    seen = {(r["agent"], r["key"], r["turn"]): r["event"] for r in records}
    assert len(records) == 3 + 3 + 2 + 1
    assert sum(r["agent"] == "first" for r in records) == 6
    assert seen["first", "b", 1] == {"k": "b", "v": -1}
    assert [seen["after", "a", turn]["seen"] for turn in (1, 2)] == [[1], [1, 2]]
    assert "below zero" in seen["mourner", "b", 1]["error"]


def test_uids_follow_from_names_and_are_unique(
    env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    one = agents_env.from_datastream(env.from_collection([("a", 1)], TYPE), "k")
    other = agents_env.from_datastream(env.from_collection([("b", 1)], TYPE), "k")
    outputs = [one.apply(Echo("echo-2")), one.apply(Echo), other.apply(Echo, name="other")]
    assert not caplog.records
    # The same agent on two streams, without a name: told apart by a number, which the log says.
    outputs.append(other.apply(Echo))
    (record,) = caplog.records
    assert "several agents named echo: this one is named echo-3" in record.message
    assert "apply(…, name=…)" in record.message
    for output in outputs:
        output.to_datastream().print()
    graph = env._j_stream_execution_environment.getStreamGraph(False)
    uids = {graph.getStreamNode(of.getId()).getTransformationUID() for of in graph.getStreamNodes().toArray()}
    assert {uid for uid in uids if uid} == {"agent-echo", "agent-echo-2", "agent-echo-3", "agent-other"}


def test_execute_runs_the_job_with_its_sinks_and_checkpoints(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    env.enable_checkpointing(100)
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    events = agents_env.from_datastream(env.from_collection([("a", 1), ("b", 2)], TYPE), "k")
    texts = events.apply(Echo).to_datastream().map(lambda record: f"{record['key']} {record['turn']}", Types.STRING())
    texts.sink_to(FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build())
    result = agents_env.execute("the job's name")
    assert result.get_job_id() is not None
    lines = [line for part in (tmp_path / "out").rglob("part-*") for line in part.read_text().splitlines()]
    assert sorted(lines) == ["a 1", "b 1"]


def test_a_job_is_built_over_whatever_connection_the_gateway_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a Java thread with a class loader of its own, and Python opens another when it collects a Java object."""
    env = flink_environment()
    add_bridge(env)
    client = get_gateway()._gateway_client
    monkeypatch.setattr(client, "deque", type(client.deque)())
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    events = agents_env.from_datastream(env.from_collection([("a", 1)], TYPE), "k")
    assert len(collect(events.apply(Echo).to_datastream())) == 1


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
    env, agents_env = environments()
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
