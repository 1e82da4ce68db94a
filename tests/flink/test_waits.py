"""Turns that wait in a mini cluster: answers of a second stream, questions, and unused answers."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from pyflink.common import Types
from pyflink.table import StreamTableEnvironment
from pyflink.table.expressions import col

from flink_skills import Agent, AgentContext, AgentsExecutionEnvironment, ConfigError, WaitTimeout
from tests.flink.running import collect, environments, flink_environment, operators

pytestmark = pytest.mark.flink

ORDERS = [("A-1", 30), ("A-2", 80), ("A-3", 90)]
ANSWERS = [("A-1", True, "ann"), ("A-2", False, "bob"), ("A-9", True, "eve")]
NOBODY_ASKED = "0123456789abcdef" * 2


class Decision(BaseModel):
    """Decision of a person."""

    approved: bool
    by: str


class Refunds(Agent):
    """Asks a person about each order."""

    name = "refunds"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        await ctx.sleep(0.05)
        try:
            decision = await ctx.wait(
                "approval", {"cents": event["cents"]}, question="Refund?", timeout="30 s", answer_type=Decision
            )
        except WaitTimeout as error:
            return {"order": event["order"], "decision": str(error)}
        return {"order": event["order"], "decision": f"{decision.approved} by {decision.by}"}


def orders_and_answers(env: Any, ids: dict[str, str]) -> tuple[Any, Any]:
    """Return the orders, and answers to the waits with these ids by their order."""
    order = Types.ROW_NAMED(["order", "cents"], [Types.STRING(), Types.INT()])
    names = ["order", "wait_id", "approved", "by"]
    answer = Types.ROW_NAMED(names, [Types.STRING(), Types.STRING(), Types.BOOLEAN(), Types.STRING()])
    answers = [(order, ids.get(order, NOBODY_ASKED), approved, by) for order, approved, by in ANSWERS]
    return env.from_collection(ORDERS, order), env.from_collection(answers, answer)


def asked(output: Any) -> dict[str, str]:
    """Run a job without answers. Return the ids of its questions by their key, which are the same in each run."""
    found = collect(output.to_wait_stream())
    return {record["key"]: record["wait_id"] for record in found if record["status"] == "open"}


DECISIONS = [
    {"order": "A-1", "decision": "True by ann"},
    {"order": "A-2", "decision": "False by bob"},
    {"order": "A-3", "decision": "wait 'approval' received no answer before the inputs of the job ended"},
]


@pytest.mark.row("K13")
@pytest.mark.both_versions
@pytest.mark.parametrize("keys", ["java", "python"])
def test_answers_of_a_stream_resume_the_turns_of_their_key(keys: str) -> None:
    def job(ids: dict[str, str]) -> Any:
        env, agents_env = environments(parallelism=2)
        orders, answers = orders_and_answers(env, ids)
        if keys == "python":
            output = agents_env.from_datastream(orders, lambda event: event["order"]).apply(Refunds)
            output.answers(answers, lambda answer: answer["order"], wait_id=lambda answer: answer["wait_id"])
        else:
            output = agents_env.from_datastream(orders, "order").apply(Refunds).answers(answers, "order")
        return output

    output = job(asked(job({})))
    records = collect(
        output.to_datastream(),
        output.to_wait_stream().map(lambda record: ("wait", record)),
        output.to_datastream(tag="errors").map(lambda record: ("error", record)),
    )
    assert sorted((r for r in records if isinstance(r, dict)), key=lambda r: r["order"]) == DECISIONS
    waits = [r[1] for r in records if isinstance(r, tuple) and r[0] == "wait"]
    assert sorted((wait["key"], wait["status"], wait["by"]) for wait in waits) == [
        ("A-1", "answered", "ann"),
        ("A-1", "open", ""),
        ("A-2", "answered", "bob"),
        ("A-2", "open", ""),
        ("A-3", "input_ended", ""),
        ("A-3", "open", ""),
    ]
    assert {wait["question"] for wait in waits} == {"Refund?"}
    errors = [r[1] for r in records if isinstance(r, tuple) and r[0] == "error"]
    assert [error["key"] for error in errors] == ["A-9"]
    assert f"the answer to wait '{NOBODY_ASKED}' is not used. The inputs have ended" in errors[0]["error"]


class InTheInput(Refunds):
    """Reads answers from the stream of its events."""

    answer_field = "wait"


@pytest.mark.parametrize("keys", ["java", "python"])
def test_an_event_of_the_input_can_be_an_answer(keys: str) -> None:
    def job(wait_id: str) -> Any:
        env, agents_env = environments()
        names = ["order", "cents", "wait", "approved", "by"]
        types = [Types.STRING(), Types.INT(), Types.STRING(), Types.BOOLEAN(), Types.STRING()]
        events = [("A-1", 30, None, None, None), ("A-1", None, wait_id, True, "ann")]
        stream = env.from_collection(events, Types.ROW_NAMED(names, types))
        key: Any = "order" if keys == "java" else (lambda event: event["order"])
        return agents_env.from_datastream(stream, key).apply(InTheInput)

    assert collect(job(asked(job(NOBODY_ASKED))["A-1"]).to_datastream()) == DECISIONS[:1]


def test_questions_are_a_table_and_answers_can_come_from_one() -> None:
    def job(ids: dict[str, str]) -> Any:
        env = flink_environment()
        t_env = StreamTableEnvironment.create(env)
        agents_env = AgentsExecutionEnvironment.get_execution_environment(env, t_env)
        orders, answers = orders_and_answers(env, ids)
        output = agents_env.from_table(t_env.from_data_stream(orders), "order").apply(Refunds)
        return output.answers(t_env.from_data_stream(answers), "order")

    table = job(asked(job({}))).to_wait_table().select(col("status"), col("key"), col("payload"), col("answer"))
    with table.execute().collect() as rows:
        found = [tuple(row) for row in rows]
    given = '{"order": "A-1", "approved": true, "by": "ann"}'
    assert sorted(found)[0] == ("answered", "A-1", '{"cents": 30}', given)


def test_a_job_without_answers_has_the_same_operator_as_before() -> None:
    env, agents_env = environments()
    orders, answers = orders_and_answers(env, {})
    plain = agents_env.from_datastream(orders, "order").apply(Refunds, name="plain")
    answered = agents_env.from_datastream(orders, "order").apply(Refunds, name="answered").answers(answers, "order")
    plain.to_datastream().union(answered.to_datastream()).print()
    kinds = [name.rpartition(".")[2] for name in operators(env)]
    assert sorted(name for name in kinds if name in ("AgentOperator", "MultipleInputAgentOperator")) == [
        "AgentOperator",
        "MultipleInputAgentOperator",
    ]


def test_answers_are_added_once_and_before_the_outputs_are_read() -> None:
    env, agents_env = environments()
    orders, answers = orders_and_answers(env, {})
    output = agents_env.from_datastream(orders, "order").apply(Refunds).answers(answers, "order")
    with pytest.raises(ConfigError, match="called before"):
        output.answers(answers, "order")
    read = agents_env.from_datastream(orders, "order").apply(Refunds, name="read")
    read.to_datastream()
    with pytest.raises(ConfigError, match="directly after apply"):
        read.answers(answers, "order")
