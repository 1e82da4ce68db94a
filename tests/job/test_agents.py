"""Jobs with several agents: who feeds whom, what is wrong with it, and whole jobs in a mini cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flink_skills.job import run_job_file

AGENTS = """
from flink_skills import Agent


class Router(Agent):
    async def on_event(self, event, ctx):
        if event["text"] == "fail":
            raise ValueError("cannot route")
        return {"team": "billing" if "bill" in event["text"] else "desk", "turn": ctx.turn}


class Reviewer(Agent):
    session = "key"

    async def on_event(self, event, ctx):
        seen = ctx.state.setdefault("seen", [])
        seen.append(event.id)
        return {"review": f"{event['team']} {event['text']}", "seen": list(seen)}
"""

JOB = """\
name: support
flink: {parallelism.default: 2}
options: {skills.worker.processes: 1}
tables: |
  CREATE TABLE tickets (
    id INT, customer STRING, text STRING, price DECIMAL(10, 2), ts TIMESTAMP(3),
    WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
  ) WITH ('connector' = 'filesystem', 'path' = '${job:dir}/tickets.json', 'format' = 'json');
  CREATE TABLE reviews (id INT, team STRING, review STRING, seen ARRAY<INT>, price DECIMAL(10, 2), ts TIMESTAMP(3))
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/reviews', 'format' = 'json');
  CREATE TABLE routed (id INT, team STRING, turn INT)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/routed', 'format' = 'json');
  CREATE TABLE failures (agent STRING, id INT, error STRING)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/failures', 'format' = 'json');
agents:
  router:
    agent: agents_of_a_job:Router
    input: {table: tickets, key: customer}
    output: {table: routed, agent: reviewer}
  reviewer:
    agent: agents_of_a_job:Reviewer
    input: {agent: router, key: team}
    output: {table: reviews}
errors: {table: failures}
"""


def ticket(number: int, customer: str, text: str) -> dict[str, Any]:
    return {"id": number, "customer": customer, "text": text, "price": 1.25, "ts": f"2026-02-03 10:00:0{number}"}


def rows(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.name.startswith((".", "_"))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]


@pytest.mark.flink
@pytest.mark.both_versions
def test_outputs_of_an_agent_are_the_events_of_another_one(tmp_path: Path) -> None:
    (tmp_path / "agents_of_a_job.py").write_text(AGENTS)
    tickets = [
        ticket(1, "ann", "the bill"),
        ticket(2, "ann", "fail"),
        ticket(3, "bob", "a bill"),
        ticket(4, "bob", "x"),
    ]
    (tmp_path / "tickets.json").write_text("".join(json.dumps(of) + "\n" for of in tickets))
    (tmp_path / "job.yaml").write_text(JOB)
    run_job_file(tmp_path / "job.yaml", local=True, tell=lambda warning: None)

    assert sorted((row["id"], row["team"], row["turn"]) for row in rows(tmp_path / "routed")) == [
        (1, "billing", 1),
        (3, "billing", 1),
        (4, "desk", 2),
    ]
    reviews = {row["id"]: row for row in rows(tmp_path / "reviews")}
    assert sorted(reviews) == [1, 3, 4]
    # Columns of the table reach the agent behind with their types.
    assert reviews[1]["price"] == 1.25
    assert reviews[1]["ts"] == "2026-02-03 10:00:01"
    assert reviews[3]["review"] == "billing a bill"
    # The key of the reviewer is a field of the router's output: both bills are of one key.
    assert max((reviews[1]["seen"], reviews[3]["seen"]), key=len) in ([1, 3], [3, 1])
    assert reviews[4]["seen"] == [4]
    assert rows(tmp_path / "failures") == [{"agent": "router", "id": 2, "error": "ValueError: cannot route"}]
