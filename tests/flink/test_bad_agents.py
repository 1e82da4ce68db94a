"""Agents that block, leak, fork and kill their worker: it costs their own turns, and no others."""

from __future__ import annotations

import pytest

from flink_skills import AgentsExecutionEnvironment
from tests.flink.running import collect, flink_environment
from tests.worker.bad_agents import Unruly

pytestmark = pytest.mark.flink

CRASHES = "crashed its worker process 2 times"


def test_turns_that_kill_their_worker_are_error_records_and_all_others_have_their_answer() -> None:
    options = {
        "skills.worker.processes": "2",
        "collect-sink.batch-size.max": "64 mb",
        "skills.worker.max-crashes": "2",
        "skills.worker.max-block": "3 s",
        "skills.worker.max-silence": "8 s",
        "skills.worker.max-memory": "600 mb",
    }
    env = flink_environment(options, parallelism=2)
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    events = [(what, number) for number in range(8) for what in ("well",)]
    events += [("sleep", 0), ("stop", 0), ("os_exit", 0), ("leak", 0), ("fork", 0), ("unpicklable", 0), ("large", 0)]
    given = env.from_collection(events)
    output = agents_env.from_datastream(given, lambda event: event).apply(Unruly())
    records = collect(output.to_datastream(), output.to_datastream(tag="errors"))

    errors = {record["event"][0]: record for record in records if isinstance(record, dict)}
    assert set(errors) == {"sleep", "stop", "os_exit", "leak", "unpicklable"}
    assert all(CRASHES in errors[what]["error"] for what in ("sleep", "stop", "os_exit", "leak"))
    assert len(records) == len(events)
    answers = [record for record in records if isinstance(record, str)]
    assert sorted(answer[:10] for answer in answers) == sorted(["well"] * 8 + ["parent", "x" * 10])
