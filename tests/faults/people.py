"""People who answer the questions of a run, and what is wrong with the questions."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import Producer

from tests.faults.background import Background
from tests.faults.topics import Reader, Row

__all__ = ["QUESTIONS", "People", "wrong_questions"]

#: Waits of each order: the approval of its tool call, and one in the code of the agent.
QUESTIONS = 2


class People(Background):
    """Answer each committed question once, after :meth:`release`.

    Args:
        broker: The address of the broker.
        topic: The topic of the answers.
        questions: Reads the topic of the questions.
    """

    def __init__(self, broker: str, topic: str, questions: Reader) -> None:
        super().__init__("people")
        self._topic = topic
        self._questions = questions
        self._released = threading.Event()
        self._producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True, "linger.ms": 20})

    def release(self) -> None:
        """Begin to answer."""
        self._released.set()

    def open(self) -> int:
        """Return the number of turns that wait for people."""
        found = Counter(row.value["status"] == "open" for row in self._questions.rows())
        return found[True] - found[False]

    def run(self) -> None:
        answered = set[str]()
        while not self._ended.wait(0.1):
            if not self._released.is_set():
                continue
            for row in self._questions.rows():
                if row.value["status"] == "open" and row.value["wait_id"] not in answered:
                    answered.add(row.value["wait_id"])
                    self._producer.produce(self._topic, json.dumps(_answer(row.value)), row.value["key"])
                    self._producer.poll(0)
            self._producer.flush(30)


def _answer(question: dict[str, Any]) -> dict[str, str]:
    decision = {"approved": True, "reason": "fine"}
    given = decision if question["kind"] == "approval" else json.loads(question["payload"])
    return {"customer": question["key"], "wait_id": question["wait_id"], "answer": json.dumps(given)}


def wrong_questions(orders: Iterable[str], rows: Sequence[Row]) -> list[str]:
    """Return a line for each question that is missing, committed more than once, or without one answer."""
    status: dict[str, list[str]] = {}
    waits: dict[str, list[str]] = {order: [] for order in orders}
    wrong = []
    for row in rows:
        value = row.value
        status.setdefault(value["wait_id"], []).append(value["status"])
        if value["status"] != "open":
            continue
        asked = value["arguments"] if value["kind"] == "approval" else value["payload"]
        order = json.loads(asked)["order"]
        if order in waits:
            waits[order].append(value["wait_id"])
        else:
            wrong.append(f"question {value['wait_id']} is about order {order}, an unknown one")
    wrong += [f"question {wait} has the records {found}" for wait, found in status.items() if found != _ONCE]
    wrong += [f"order {order} has the questions {found}" for order, found in waits.items() if len(found) != QUESTIONS]
    return wrong


_ONCE = ["open", "answered"]
