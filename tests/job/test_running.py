"""Whole jobs of files in a mini cluster: columns of all types, errors, changes, several keys."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import flink_skills.cli
from flink_skills.flink import JobFailedError
from flink_skills.job import run_job_file
from flink_skills.testing import Reply, Rule, ScriptedModelServer
from tests.job.files import rows

pytestmark = pytest.mark.flink

AGENT = """
from decimal import Decimal

from flink_skills import Agent


class Clerk(Agent):
    async def on_event(self, event, ctx):
        if event["id"] == 2:
            raise ValueError("no such order")
        if event["id"] == 3:
            return {"total": "many", "made": "2026-01-01"}
        total = event["price"] * 2
        ctx.emit({"total": total, "made": event["ts"], "content": event["content"], "note": {"n": [ctx.turn]}})
        return {"total": 1.005, "made": None, "nested": {"a": 1, "b": ["x"]}, "tags": {"x": "7"}, "note": "second"}
"""

JOB = """\
name: orders
flink: {parallelism.default: 1}
options: {skills.worker.processes: 1}
agent: clerk_of_a_job:Clerk
tables: |
  CREATE TABLE orders (
    id INT, customer STRING, `day` DATE, price DECIMAL(10, 2), content BYTES, ts TIMESTAMP(3), labels ARRAY<STRING>,
    WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
  ) WITH ('connector' = 'filesystem', 'path' = '${job:dir}/orders.json', 'format' = 'json');
  CREATE TABLE totals (
    id INT NOT NULL, total DECIMAL(10, 2), made TIMESTAMP(6), seen TIMESTAMP_LTZ(3), content BYTES,
    nested ROW<a BIGINT, b ARRAY<STRING>>, tags MAP<STRING, INT>, note STRING, customer STRING, call_id STRING,
    doubled AS total * 2
  ) WITH ('connector' = 'filesystem', 'path' = '${job:dir}/totals', 'format' = 'json');
  CREATE TABLE failures (id INT, error STRING, event STRING)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/failures', 'format' = 'json');
input: {table: orders, key: [customer, day]}
output: {table: totals, columns: {id: event.id, seen: timestamp, customer: key.0}}
errors: {table: failures}
"""


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "customer": "ann",
        "day": "2026-02-03",
        "price": 1.25,
        "content": "/wA=",
        "ts": f"2026-02-03 10:00:0{number}",
        "labels": ["a", None],
    }


@pytest.mark.both_versions
@pytest.mark.each_python
def test_columns_of_all_types_failed_turns_and_outputs_that_do_not_fit(tmp_path: Path) -> None:
    (tmp_path / "clerk_of_a_job.py").write_text(AGENT)
    (tmp_path / "orders.json").write_text("".join(json.dumps(order(number)) + "\n" for number in (1, 2, 3)))
    (tmp_path / "job.yaml").write_text(JOB)
    told: list[str] = []
    summary: list[str] = []
    # An output that does not fit its table is lost as that of a failed turn is.
    failed_turns = run_job_file(tmp_path / "job.yaml", local=True, warn=told.append, summarize=summary.append)
    assert failed_turns == 2
    (line,) = summary
    assert line.startswith("3 turns, 2 failed (1 MisfitError, 1 ValueError); the log is ")

    first, second = rows(tmp_path / "totals")
    assert len(first["call_id"]) == 32
    assert first == {
        "id": 1,
        "total": 2.5,
        "made": "2026-02-03 10:00:01",
        "seen": "2026-02-03 10:00:01Z",
        "content": "/wA=",
        "nested": None,
        "tags": None,
        "note": '{"n": [1]}',
        "customer": "ann",
        "call_id": first["call_id"],
    }
    assert second == {
        **first,
        "total": 1.01,
        "made": None,
        # The output has no such field, and the event has.
        "content": "/wA=",
        "nested": {"a": 1, "b": ["x"]},
        # A text of digits is a number.
        "tags": {"x": 7},
        "note": "second",
    }
    failed, misfit = rows(tmp_path / "failures")
    assert (failed["id"], failed["error"]) == (2, "ValueError: no such order")
    assert json.loads(failed["event"])["customer"] == "ann"
    assert (misfit["id"], misfit["error"]) == (
        3,
        "MisfitError: column 'total' of totals (DECIMAL(10, 2)): expected a number, got 'many'",
    )
    assert any("checkpoints are disabled" in warning for warning in told)


def test_an_updating_query_gives_what_holds_after_each_change_and_events_are_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "orders.json").write_text("".join(json.dumps(order(number)) + "\n" for number in (1, 2)))
    head, _, _ = JOB.partition("agent:")
    head = head.replace("default: 1", "default: 1, table.local-time-zone: Asia/Tokyo")
    tables = JOB.partition("tables: |\n")[2].partition("input:")[0]
    (tmp_path / "job.yaml").write_text(
        f"{head}agent: {{name: reader, model: offline}}\ntables: |\n{tables}"
        "  CREATE TABLE seen (orders BIGINT, customer STRING, answer STRING)\n"
        "  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/seen', 'format' = 'json');\n"
        "  CREATE TABLE audit (kind STRING, who STRING, turn INT, `at` TIMESTAMP_LTZ(3), agent STRING,\n"
        "  status STRING)\n"
        "  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/audit', 'format' = 'json');\n"
        "input: {query: 'SELECT customer, COUNT(*) AS orders FROM orders GROUP BY customer', key: customer}\n"
        "output: {table: seen}\nevents: {table: audit, columns: {who: key}}\n"
    )
    run_job_file(tmp_path / "job.yaml", local=True, warn=lambda warning: None)
    assert [(row["customer"], row["orders"]) for row in rows(tmp_path / "seen")] == [("ann", 1), ("ann", 2)]
    turns = [row for row in rows(tmp_path / "audit") if row["kind"] == "turn"]
    assert [(row["who"], row["turn"]) for row in turns] == [("ann", 1), ("ann", 2)]
    # The command reads the same table with its connector and its names of columns.
    monkeypatch.setattr(sys, "argv", ["flink-skills", "turns", str(tmp_path / "job.yaml"), "--format", "json"])
    capsys.readouterr()
    assert flink_skills.cli.main() == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(turn["key"], turn["turn"], turn["agent"], turn["outcome"]) for turn in shown] == [
        ("ann", 1, "reader", "ok"),
        ("ann", 2, "reader", "ok"),
    ]
    assert all(0 <= time.time() - turn["at"] / 1000 < 600 for turn in shown)


def test_a_job_that_fails_says_why_without_what_a_reference_stands_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS", f"{tmp_path}/nowhere-to-be-found")
    text = JOB.replace("${job:dir}/orders.json", "${env:ORDERS}").replace("clerk_of_a_job:Clerk", "{model: offline}")
    text = text.replace("id: event.id,", "id: event.id, total: null, nested: null, tags: null, note: output,")
    text = text.replace("columns: {", "columns: {made: null, content: null, ")
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(JobFailedError) as caught:
        run_job_file(tmp_path / "job.yaml", local=True, warn=lambda warning: None)
    assert "${env:ORDERS}" in str(caught.value)
    assert "nowhere-to-be-found" not in str(caught.value)


ROUTED = """\
name: routed
flink: {parallelism.default: 1}
options: {skills.worker.processes: 1, skills.model.max-retries: 1, skills.model.retry-backoff: 1 ms}
agent:
  route: {field: customer.tier, models: {gold: large}, default: small}
  chat_model_setups:
    small: {clazz: "openai-compatible:tiny", base_url: URL_1}
    large: {clazz: "openai-compatible:huge", base_url: URL_0, fallback: [small]}
tables: |
  CREATE TABLE cases (id STRING, customer ROW<tier STRING>)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/cases.json', 'format' = 'json');
  CREATE TABLE answers (id STRING, answer STRING)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/answers', 'format' = 'json');
  CREATE TABLE events (kind STRING, model STRING, model_id STRING, status STRING, `key` STRING)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/events', 'format' = 'json');
input: {table: cases, key: id}
output: {table: answers, columns: {id: event.id, answer: output}}
events: {table: events}
"""


def test_a_column_chooses_the_model_and_a_server_that_is_down_is_replaced(tmp_path: Path) -> None:
    tiers = ["gold", "silver", "gold", None, "gold", "gold"]
    cases = [{"id": f"case {number}", "customer": {"tier": tier}} for number, tier in enumerate(tiers)]
    (tmp_path / "cases.json").write_text("".join(json.dumps(case) + "\n" for case in cases))
    with (
        ScriptedModelServer([Rule(Reply(status=503))]) as down,
        ScriptedModelServer([Rule(Reply("from the other server"))]) as spare,
    ):
        (tmp_path / "job.yaml").write_text(ROUTED.replace("URL_0", down.url).replace("URL_1", spare.url))
        assert run_job_file(tmp_path / "job.yaml", local=True, warn=lambda line: None) == 0
        assert {row["answer"] for row in rows(tmp_path / "answers")} == {"from the other server"}
        assert len(rows(tmp_path / "answers")) == spare.stats()["requests"] == len(cases)
        assert {request["model"] for request in down.requests} == {"huge"}
    told = [event for event in rows(tmp_path / "events") if event["kind"] in ("chat", "fallback")]
    answered = {event["key"]: (event["model"], event["model_id"]) for event in told if event["status"] == "ok"}
    assert answered == {case["id"]: ("small", "openai-compatible:tiny") for case in cases}
    gold = {case["id"] for case in cases if case["customer"]["tier"] == "gold"}
    # Each of them was the first model's, whether it was asked or its circuit was open.
    assert {event["key"] for event in told if event["kind"] == "fallback" and event["model"] == "large"} == gold
    assert {event["key"] for event in told if event["kind"] == "chat" and event["status"] == "error"} <= gold
