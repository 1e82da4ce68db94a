"""The example with refunds between topics of a Kafka broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from examples.refunds.questions import Questions
from examples.refunds.records import KafkaTopics
from tests.faults.jars import connector
from tests.faults.servers import Broker
from tests.faults.topics import Reader
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 120


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "broker") as running:
        running.topics("orders", "decisions", "questions", "refunds", "failures", "audit")
        yield running


def environment(broker: Broker) -> dict[str, str]:
    return {**os.environ, "KAFKA": broker.address, "KAFKA_JAR": str(connector())}


@pytest.fixture
def job(broker: Broker) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "flink_skills.cli", "run", "examples/refunds/job-kafka.yaml"],
        cwd=ROOT,
        env=environment(broker),
        stdin=subprocess.DEVNULL,
    )
    yield process
    process.send_signal(signal.SIGINT)
    process.wait(DEADLINE)


def test_questions_and_answers_are_records_of_topics(broker: Broker, job: subprocess.Popen[bytes]) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for order, cents in (("A-1", 100), ("A-2", 9_000), ("A-3", 8_000)):
        event = {"order": order, "customer": "ann", "cents": cents, "reason": "broken"}
        producer.produce("orders", json.dumps(event), order)
    producer.flush(30)
    questions = Questions(KafkaTopics(broker.address, "questions", "decisions", "failures"))

    def asked() -> list[list[dict[str, Any]]]:
        assert job.poll() is None, "the job has ended"
        found: list[dict[str, Any]] = questions.all()["open"]
        return [found] if len(found) == 2 else []

    ((first, second),) = wait_until(asked, "two questions", within=DEADLINE)
    assert {first["key"], second["key"]} == {"A-2", "A-3"}
    for question in (first, second):
        questions.answer({"wait_id": question["wait_id"], "approved": question["key"] == "A-2", "by": "eve"})
    with Reader(broker.address, "refunds") as refunds:
        wait_until(lambda: len(refunds.rows()) == 3, "three results", within=DEADLINE)
        answers = {row.value["order"]: row.value["answer"] for row in refunds.rows()}
    assert answers["A-1"] == "paid 1.00 EUR for order A-1"
    assert answers["A-2"] == "paid 90.00 EUR for order A-2"
    assert "the call was not approved" in answers["A-3"]
    wait_until(lambda: len(questions.all()["ended"]) == 2, "the ends of the questions", within=DEADLINE)
    ended = {of["key"]: (of["status"], of["by"]) for of in questions.all()["ended"]}
    assert ended == {"A-2": ("answered", "eve"), "A-3": ("answered", "eve")}

    def shown() -> list[dict[str, Any]]:
        words = [
            sys.executable,
            "-m",
            "flink_skills.cli",
            "turns",
            "examples/refunds/job-kafka.yaml",
            "--format",
            "json",
        ]
        done = subprocess.run(words, cwd=ROOT, env=environment(broker), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        turns = [json.loads(line) for line in done.stdout.splitlines()]
        return turns if {turn["outcome"] for turn in turns} == {"ok"} and len(turns) == 3 else []

    turns = {turn["key"]: turn for turn in wait_until(shown, "three ended turns of the topic audit", within=DEADLINE)}
    (wait,) = [part for part in turns["A-2"]["parts"] if part["kind"] == "wait"]
    assert wait["facts"] == ["answered by eve"]
    assert turns["A-2"]["waited"] > 0 == turns["A-1"]["waited"]
