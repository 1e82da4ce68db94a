"""People who answer the questions of a run, and what is wrong with the questions."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

from confluent_kafka import Producer

from tests.faults.background import Background
from tests.faults.topics import Reader, Row

__all__ = ["QUESTIONS", "TRICKS", "People", "is_about_answer", "unreported", "wrong_questions"]

#: Waits of each order: the approval of its tool call, and one in the code of the agent.
QUESTIONS = 2


#: Answers in addition to the right one. A question has one of these entries, by its id. Each answer is an error record
#: that names the wait. "wrong" precedes the right answer, and "named" has the name of the wait in place of its id.
TRICKS = ("doubled", "late", "wrong", "named", "", "", "", "")


class People(Background):
    """Answer each committed question, after :meth:`release`. Some questions get more answers, see :data:`TRICKS`.

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
        #: The answers that are error records, by the ids of their waits.
        self.tricks: dict[str, str] = {}
        self._producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True, "linger.ms": 20})

    def release(self) -> None:
        """Begin to answer."""
        self._released.set()

    def open(self) -> int:
        """Return the number of turns that wait for people."""
        found = Counter(row.value["status"] == "open" for row in self._questions.rows())
        return found[True] - found[False]

    def run(self) -> None:
        answered: dict[str, dict[str, Any]] = {}
        while not self._ended.wait(0.1):
            if not self._released.is_set():
                continue
            for row in self._questions.rows():
                wait, status = row.value["wait_id"], row.value["status"]
                if status == "open" and wait not in answered:
                    answered[wait] = row.value
                    self._answer(row.value)
                elif status == "answered" and wait in answered and _trick(wait) == "late" and wait not in self.tricks:
                    self._send(answered[wait], {"approved": False, "reason": "too late"})
                    self.tricks[wait] = "late"
            self._producer.flush(30)

    def _answer(self, question: dict[str, Any]) -> None:
        is_approval = question["kind"] == "approval"
        right = {"approved": True, "reason": "fine"} if is_approval else json.loads(question["payload"])
        trick = _trick(question["wait_id"])
        if trick == "wrong":
            self._send(question, {"approved": "perhaps"} if is_approval else {"order": [1]})
        elif trick == "named" and is_approval:
            self._send({**question, "wait_id": "approval"}, {"approved": False})
        self._send(question, right)
        if trick == "doubled":
            self._send(question, {**right, "reason": "again"})
        if trick in ("wrong", "doubled"):
            self.tricks[question["wait_id"]] = trick

    def _send(self, question: dict[str, Any], answer: dict[str, Any]) -> None:
        value = {"customer": question["key"], "wait_id": question["wait_id"], "answer": json.dumps(answer)}
        self._producer.produce(self._topic, json.dumps(value), question["key"])
        self._producer.poll(0)


def _trick(wait: str) -> str:
    return TRICKS[crc32(wait.encode()) % len(TRICKS)]


def is_about_answer(failure: Row) -> bool:
    """Return True if an error record is about an answer. Its turn has not ended."""
    return "answer to wait" in failure.value["error"]


def unreported(tricks: dict[str, str], failures: Iterable[Row]) -> list[str]:
    """Return a line for each answer that was not used and has no error record."""
    errors = "\n".join(row.value["error"] for row in failures if is_about_answer(row))
    missing = {wait: trick for wait, trick in tricks.items() if wait not in errors}
    return [f"the {trick} answer to wait {wait} has no error record" for wait, trick in missing.items()]


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
