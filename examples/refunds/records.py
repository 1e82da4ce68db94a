"""Records of the bridge: questions from files or a Kafka topic, and answers to them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

__all__ = ["Files", "KafkaTopics", "Records"]


class Records(Protocol):
    """Source of questions, and sink of answers."""

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the records of questions that were not read before."""

    def write(self, answer: Mapping[str, Any]) -> None:
        """Write an answer. Return when it is stored."""


class Files:
    """Directories of JSON lines, as Flink's file system connector writes and reads them.

    Args:
        questions: The directory of the table of questions.
        answers: The directory of the table of answers. It is created.
    """

    def __init__(self, questions: Path, answers: Path) -> None:
        self._questions, self._answers = questions, answers
        self._read: set[Path] = set()
        answers.mkdir(parents=True, exist_ok=True)

    def read(self) -> Iterator[dict[str, Any]]:
        # Flink renames a file when it is complete. Until then its name starts with a dot.
        found = [file for file in self._questions.rglob("*") if file.is_file() and not file.name.startswith((".", "_"))]
        for file in sorted(set(found) - self._read, key=lambda file: file.stat().st_mtime_ns):
            self._read.add(file)
            for line in file.read_text(encoding="utf-8").splitlines():
                yield json.loads(line)

    def write(self, answer: Mapping[str, Any]) -> None:
        # Flink reads a file when its name appears, so the name appears with the complete file.
        hidden = self._answers / f".{uuid.uuid4().hex}"
        hidden.write_text(json.dumps(answer) + "\n", encoding="utf-8")
        hidden.rename(self._answers / f"{hidden.name[1:]}.json")


class KafkaTopics:
    """Topics of JSON records. Only committed questions are read.

    Args:
        broker: The address of a broker.
        questions: The topic of the table of questions. It is read from its beginning.
        answers: The topic of the table of answers.

    Raises:
        ImportError: The package confluent-kafka is not installed.
    """

    def __init__(self, broker: str, questions: str, answers: str) -> None:
        from confluent_kafka import Consumer, Producer

        self._answers = answers
        self._producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker,
                "group.id": f"bridge-{uuid.uuid4().hex}",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self._consumer.subscribe([questions])

    def read(self) -> Iterator[dict[str, Any]]:
        for message in self._consumer.consume(500, 0.1):
            error = message.error()
            if error is not None:
                raise OSError(f"cannot read the topic of questions: {error}")
            yield json.loads(message.value() or b"null")

    def write(self, answer: Mapping[str, Any]) -> None:
        failures: list[str] = []
        self._producer.produce(
            self._answers,
            json.dumps(answer),
            answer["key"],
            on_delivery=lambda error, _: failures.append(str(error)) if error is not None else None,
        )
        if self._producer.flush(10) or failures:
            raise OSError(f"cannot write to the topic of answers: {failures or 'no response within 10 s'}")
