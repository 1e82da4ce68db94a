"""The Python jobs of the page on Kafka, between topics of a real broker."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest
from confluent_kafka import Producer

from tests.docs.pages import ROOT, blocks_of
from tests.docs.walk import walk
from tests.faults.topics import Reader
from tests.kit.cluster import wait_until
from tests.kit.passable import passable_folder

pytestmark = pytest.mark.cluster

PAGE = ROOT / "docs/jobs.md"


def test_each_job_of_the_page_answers_every_order_once() -> None:
    from tests.docs.kafka_pages import broker_for

    (orders,) = (block.text for block in blocks_of(PAGE) if block.argument == "orders.jsonl")
    with passable_folder() as outer:
        folder = outer / "here"
        folder.mkdir()
        with broker_for(folder) as (broker, environment):
            broker.topics("orders", "answers", "greetings", partitions=1)
            producer = Producer({"bootstrap.servers": broker.address})
            for line in orders.splitlines():
                producer.produce("orders", line, json.loads(line)["customer"])
            assert producer.flush(30) == 0
            walk(PAGE, folder, {"kafka"}, environment)
            rows = {}
            for topic in ("answers", "greetings"):
                with Reader(broker.address, topic, partitions=1) as reader:
                    wait_until(reader.at_end, 60, f"the end of {topic}")
                    rows[topic] = [row.value for row in reader.rows()]
    turns = defaultdict(list)
    for row in rows["answers"]:
        turns[row["order"][0]].append((row["order"], row["turn"]))
    assert turns == {"A": [("A-1", 1), ("A-2", 2)], "B": [("B-1", 1)]}
    assert sorted(row["answer"] for row in rows["greetings"]) == [
        f"Order {name} is on its way." for name in ("A-1", "A-2", "B-1")
    ]
