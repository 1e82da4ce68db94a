"""Orders into a topic at a steady rate, and what was committed out of others."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.faults.background import Background

__all__ = ["Feed", "Reader", "Row", "orders"]


def orders(run: str, turns: int, keys: int) -> list[tuple[str, str]]:
    """Orders as id and customer. The id ends with the order's place among those of its customer, from 1."""
    customers = [f"{run}-c{number % keys}" for number in range(turns)]
    return [(f"{customer}-{number // keys + 1}", customer) for number, customer in enumerate(customers)]


class Feed(Background):
    """Writes orders to a topic, at most ``rate`` in a second, while the ``with`` block lasts. ``sent`` counts.

    With ``seconds`` it ends after them, also where orders are left. ``limit`` is how many it may have sent so far:
    who raises it as outputs come keeps the backlog small. None: no limit.
    """

    def __init__(
        self, broker: str, topic: str, orders: Sequence[tuple[str, str]], rate: float, seconds: float | None = None
    ) -> None:
        super().__init__("feed")
        self.sent = 0
        self.limit: int | None = None
        self._topic = topic
        self._orders = orders
        self._rate = rate
        self._seconds = seconds
        self._producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True, "linger.ms": 20})

    def run(self) -> None:
        try:
            self._send()
        finally:
            self._producer.flush(30)

    def _send(self) -> None:
        due = time.monotonic()
        end = math.inf if self._seconds is None else due + self._seconds
        for order, customer in self._orders:
            while (now := time.monotonic()) < due or (self.limit is not None and self.sent >= self.limit):
                self._producer.poll(0)
                if now >= end or self._ended.wait(min(1, max(0.02, due - now))):
                    return
            # What was not sent in time is not made good in one burst.
            due = max(due, now - 1) + 1 / self._rate
            value = json.dumps({"id": order, "customer": customer})
            self._producer.produce(self._topic, value, customer)
            self._producer.poll(0)
            self.sent += 1


@dataclass(frozen=True)
class Row:
    """A committed row of a topic."""

    partition: int
    offset: int
    value: dict[str, Any]


class Reader(Background):
    """Reads a topic from its beginning, committed rows alone, while the ``with`` block lasts."""

    def __init__(self, broker: str, topic: str, partitions: int = 4) -> None:
        super().__init__(f"reader of {topic}")
        self._lock = threading.Lock()
        self._rows: list[Row] = []
        self._problem: str | None = None
        self._topic = topic
        self._read_to = dict.fromkeys(range(partitions), 0)
        config = {"bootstrap.servers": broker, "group.id": f"{topic}-reader", "enable.auto.commit": False}
        self._consumer = Consumer(
            {**config, "isolation.level": "read_committed", "enable.partition.eof": True, "fetch.wait.max.ms": 100}
        )
        # Knows of rows that are not committed yet.
        self._other = Consumer({**config, "isolation.level": "read_uncommitted"})
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

    def end(self) -> None:
        super().end()
        self._consumer.close()
        self._other.close()

    def run(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(500, 0.2):
                error, partition, offset = message.error(), message.partition(), message.offset()
                assert partition is not None and offset is not None
                if error is None:
                    with self._lock:
                        self._rows.append(Row(partition, offset, json.loads(message.value() or b"null")))
                elif error.code() == KafkaError._PARTITION_EOF:
                    # Also past the marks of transactions, which are no rows.
                    self._read_to[partition] = offset
                else:
                    self._problem = str(error)
                    return

    def rows(self) -> list[Row]:
        """What was read so far; in the order of writing, in each partition. Raises when reading has failed."""
        if self._problem is not None:
            raise RuntimeError(f"{self._topic} cannot be read: {self._problem}")
        with self._lock:
            return list(self._rows)

    def at_end(self) -> bool:
        """Whether all that was ever written to the topic has been read, or was part of an aborted transaction."""
        return all(read_to >= end for read_to, end in self.places().values())

    def places(self) -> dict[int, tuple[int, int]]:
        """By partition: up to where it has been read, and where it ends. Between are open transactions."""
        ends = {
            partition: self._other.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=10)[1]
            for partition in self._read_to
        }
        return {partition: (read_to, ends[partition]) for partition, read_to in self._read_to.items()}
