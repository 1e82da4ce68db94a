"""Control records of a job file: checks, the explanation, and a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flink_skills.job import check_job, explain_job, run_job_file
from tests.job.files import rows

pytestmark = pytest.mark.flink

JOB = """\
name: two
flink: {parallelism.default: 1}
options: {skills.worker.processes: 1}
agents:
  desk:
    model: offline
    input: {table: orders, key: id}
    output: {table: results}
  till:
    model: offline
    input: {table: orders, key: id}
    output: {table: results}
tables: |
  CREATE TABLE orders (id STRING, text STRING)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/orders.json', 'format' = 'json');
  CREATE TABLE stops (action STRING, agent STRING, reason STRING, sent STRING)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/stops.json', 'format' = 'json');
  CREATE TABLE results (id STRING, answer STRING)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/results', 'format' = 'json');
  CREATE TABLE failures (id STRING, agent STRING, error STRING, event STRING)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/failures', 'format' = 'json');
  CREATE TABLE audit (`at` TIMESTAMP_LTZ(3), kind STRING, agent STRING, action STRING, name STRING, detail STRING)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/audit', 'format' = 'json');
errors: {table: failures}
events: {table: audit}
control: {table: stops}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "orders.json").write_text('{"id": "A-1", "text": "hello"}\n')
    records = [
        {"action": "pause", "agent": "desk", "reason": "x", "sent": "now"},
        {"action": "refuse", "agent": "desk", "reason": "incident 12", "sent": "now"},
        {"action": "pause", "agent": "tell", "reason": "x"},
    ]
    (tmp_path / "stops.json").write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path


def test_records_of_a_table_reach_all_agents_and_one_of_them_reports_an_unknown_name(folder: Path) -> None:
    assert run_job_file(folder / "job.yaml", local=True, warn=lambda text: None) == 0
    audit = [row for row in rows(folder / "audit") if row["kind"] == "control"]
    assert [(row["agent"], row["action"], row["name"]) for row in audit] == [
        ("desk", "pause", "desk"),
        ("desk", "refuse", "desk"),
    ]
    assert json.loads(audit[1]["detail"]) == {"target": "agent", "reason": "incident 12"}
    assert all(row["at"].endswith("Z") for row in audit)
    failures = rows(folder / "failures")
    (unknown,) = [row for row in failures if "tell" in row["error"]]
    assert (unknown["agent"], unknown["id"]) == ("desk", None)
    assert "no agent with this control stream is named 'tell'. Use one of [desk, till]" in unknown["error"]
    # The inputs have no order, so the event may arrive before the records.
    refused = [row["agent"] for row in failures if "incident 12" in row["error"]]
    assert refused in ([], ["desk"])
    assert len(rows(folder / "results")) == 2 - len(refused)


def test_the_check_and_the_explanation_show_the_records(folder: Path) -> None:
    report = check_job(folder / "job.yaml")
    assert [check.message for check in report.checks if check.status == "error"] == []
    assert "records of stops" in {check.message for check in report.checks if check.name == "control"}
    assert explain_job(folder / "job.yaml")["control"] == "stops"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("control: {table: stops}", "control: {table: stop}", "control.table: unknown table 'stop' in tables"),
        ("(action STRING", "(act STRING", "control.table: table stops has no column action: add it"),
        ("agent STRING, reason", "agnet STRING, reason", "has no column agent, skill, tool or key: add it"),
        ("control: {table: stops}", "control: {table: orders}", "'orders' is also an input, so each event would be"),
        ("control: {table: stops}", "control: {}", "control: give 'table', or 'query' with a SELECT"),
    ],
)
def test_the_check_finds_mistakes(folder: Path, old: str, new: str, message: str) -> None:
    (folder / "job.yaml").write_text(JOB.replace(old, new))
    errors = [check.message for check in check_job(folder / "job.yaml").checks if check.status == "error"]
    assert [error for error in errors if message in error] != [], errors
