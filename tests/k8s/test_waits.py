"""Approvals without code under the operator, through losses of pods and a suspension."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from tests.k8s.deployment import DATA
from tests.k8s.kubectl import Kubectl, wait_until
from tests.k8s.orders import FILES, JOB_MANAGER, TASK_MANAGER, Orders

pytestmark = pytest.mark.k8s

COUNT = 12
TABLES = f"""
CREATE TABLE decisions (order_id STRING, wait_id STRING, approved BOOLEAN, reason STRING, arguments STRING, `by` STRING)
WITH ({FILES.format(path=f"{DATA}/decisions")});
CREATE TABLE questions (wait_id STRING, order_id STRING, status STRING, tool STRING, arguments STRING, `by` STRING)
WITH ({FILES.format(path=f"{DATA}/questions")});
CREATE TABLE replies (order_id STRING, answer STRING) WITH ({FILES.format(path=f"{DATA}/answers")});
"""
SECTIONS = {
    "input": {"table": "orders", "key": "order_id"},
    "answers": {"table": "decisions"},
    "waits": {"table": "questions", "columns": {"order_id": "key"}},
    "output": {"table": "replies"},
}


def order(number: int) -> dict[str, str]:
    return {"order_id": f"O-{number}", "customer": "ann", "promised": "2026-03-02", "delivered": "2026-03-03"}


def questions(orders: Orders, status: str) -> list[dict[str, Any]]:
    return [row for row in orders.rows("questions") if row["status"] == status]


def decide(orders: Orders, name: str, decided: Sequence[dict[str, Any]], **decision: Any) -> None:
    """Answer the questions as a page does."""
    orders.send(
        "decisions", name, [{"order_id": row["order_id"], "wait_id": row["wait_id"], **decision} for row in decided]
    )


@pytest.fixture(scope="module")
def orders(operator: None, namespace: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Orders:
    found = Orders(namespace, tmp_path_factory.mktemp("orders"))
    job = yaml.safe_load(found.job.read_text(encoding="utf-8"))
    job["tables"] += TABLES
    found.job.write_text(yaml.safe_dump({**job, **SECTIONS}), encoding="utf-8")
    agent = yaml.safe_load(found.agent.read_text(encoding="utf-8"))
    del agent["output_type"]
    agent["approve"] = {"tools": ["execute_shell_command"], "by": "answers", "timeout": "2 d"}
    found.agent.write_text(yaml.safe_dump(agent), encoding="utf-8")
    found.in_desk(f"cd {DATA} && mkdir -p orders decisions questions answers")
    found.deploy()
    return found


def test_people_decide_after_losses_of_pods_and_a_suspension(orders: Orders) -> None:
    orders.send("orders", "first", [order(number) for number in range(COUNT)])
    wait_until(lambda: len(questions(orders, "open")) == COUNT, 240, "the questions")
    assert not orders.rows("answers")
    # The turns wait in the state only.
    for selector in (TASK_MANAGER, JOB_MANAGER):
        orders.kubectl.kill(selector)
        orders.kubectl.pod(selector)

    asked = sorted(questions(orders, "open"), key=lambda row: int(row["order_id"].split("-")[1]))
    arguments = {**json.loads(asked[2]["arguments"]), "stdin": json.dumps({**order(2), "delivered": "2026-03-09"})}
    decide(orders, "yes", asked[:1], approved=True, by="ann")
    decide(orders, "no", asked[1:2], approved=False, reason="sold by hand", by="bob")
    decide(orders, "changed", asked[2:3], approved=True, arguments=json.dumps(arguments), by="eve")
    answers = orders.answers(["O-0", "O-1", "O-2"])
    assert "1 day late" in answers["O-0"]
    assert "sold by hand" in answers["O-1"]
    assert "7 days late" in answers["O-2"]

    orders.deploy("suspended")
    checkpoints = orders.in_desk(f"ls -td {DATA}/checkpoints/*/chk-*").split()
    listed = orders.kubectl.execute("desk", "flink-skills", "waits", f"file://{checkpoints[0]}", "--format", "json")
    waiting = [json.loads(line) for line in listed.splitlines()]
    assert sorted(wait["wait_id"] for wait in waiting) == sorted(row["wait_id"] for row in asked[3:])
    # People answer while no pod of the job exists.
    decide(orders, "later", asked[3:], approved=True, by="ann")
    orders.deploy()
    answers = orders.answers([row["order_id"] for row in asked])
    assert all("1 day late" in answers[row["order_id"]] for row in asked[3:])
    assert Counter(row["order_id"] for row in orders.rows("answers")) == Counter(row["order_id"] for row in asked)
    ids = Counter(row["wait_id"] for row in asked)
    wait_until(lambda: len(questions(orders, "answered")) >= COUNT, 120, "the records of the answers")
    for status in ("open", "answered"):
        assert Counter(row["wait_id"] for row in questions(orders, status)) == ids
