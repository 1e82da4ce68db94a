"""``to_datastream``: main and side outputs, by tag and by Flink's own way, as objects and as rows."""

from __future__ import annotations

from typing import Any

import pytest
from pyflink.common import Types
from pyflink.datastream import OutputTag

from flink_skills import AgentsExecutionEnvironment
from tests.flink.agents import Tally
from tests.flink.running import collect, failure_of, flink_environment

pytestmark = pytest.mark.flink

EVENTS = [("a", 1), ("a", -2), ("a", 3), ("b", 4)]
TYPE = Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.INT()])


@pytest.mark.both_versions
def test_outputs_errors_and_a_side_output_by_tag_and_by_flink() -> None:
    env = flink_environment(parallelism=2)
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    output = agents_env.from_datastream(env.from_collection(EVENTS, TYPE), "k").apply(Tally)
    main = output.to_datastream()
    records = collect(
        main,
        output.to_datastream(tag="errors"),
        output.to_datastream(tag="audit"),
        main.get_side_output(OutputTag("errors", Types.PICKLED_BYTE_ARRAY())),
        main.get_side_output(OutputTag("audit")),
        output.to_datastream(tag="nobody emits to this"),
    )
    main_records = [record for record in records if "last" in record]
    assert sorted(main_records, key=lambda r: r["last"]) == [
        {"key": "a", "seen": [1], "last": 1},
        {"key": "a", "seen": [1, 3], "last": 3},  # the failed turn left no trace in the state
        {"key": "b", "seen": [4], "last": 4},
    ]
    errors = [record for record in records if "error" in record]
    assert len(errors) == 2
    assert errors[0] == errors[1]
    assert errors[0] == {
        "agent": "tally",
        "key": "a",
        "turn": 2,
        "output": None,
        "error": "ValueError: -2 is below zero",
        "skills": [],
        "tool_calls": [],
        "usage": {"input_tokens": 0, "output_tokens": 0, "requests": 0},
        "event": {"k": "a", "v": -2},
    }
    audits = [record for record in records if "audit" in record]
    assert len(audits) == 6
    assert {(record["audit"], record["seen"]) for record in audits} == {("a", 1), ("a", 2), ("b", 1)}


def test_rows_of_a_declared_type() -> None:
    env = flink_environment()
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    output = agents_env.from_datastream(env.from_collection(EVENTS, TYPE), "k").apply(Tally)
    rows = Types.ROW_NAMED(
        ["last", "key", "missing", "seen"],
        [Types.INT(), Types.STRING(), Types.LONG(), Types.OBJECT_ARRAY(Types.INT())],
    )
    typed = output.to_datastream(rows)
    assert typed.get_type() == rows
    audit = output.to_datastream(Types.ROW_NAMED(["seen", "audit"], [Types.INT(), Types.STRING()]), tag="audit")
    records: list[Any] = collect(
        typed.map(lambda row: ("main", tuple(row)), Types.PICKLED_BYTE_ARRAY()),
        audit.map(lambda row: ("audit", tuple(row)), Types.PICKLED_BYTE_ARRAY()),
    )
    assert sorted(of for kind, of in records if kind == "main") == [
        (1, "a", None, [1]),
        (3, "a", None, [1, 3]),
        (4, "b", None, [4]),
    ]
    assert sorted(of for kind, of in records if kind == "audit") == [(1, "a"), (1, "b"), (2, "a")]


def test_on_error_fail_fails_the_job_with_one_message() -> None:
    env = flink_environment({"skills.turn.on-error": "fail"})
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    output = agents_env.from_datastream(env.from_collection(EVENTS, TYPE), "k").apply(Tally)
    message = failure_of(output.to_datastream())
    assert message == 'agent tally, key "a", turn 2 failed: ValueError: -2 is below zero'
