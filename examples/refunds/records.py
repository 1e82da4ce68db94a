"""Records of the bridge: questions, answers and errors from files or Kafka topics, and new answers to them."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

__all__ = ["ANSWERS", "ERRORS", "MAX_LINE", "QUESTIONS", "DecidedError", "Files", "KafkaTopics", "Line", "Records"]

#: Tables that the bridge reads.
QUESTIONS, ANSWERS, ERRORS = "questions", "answers", "errors"
#: Maximum size of a record, in bytes.
MAX_LINE = 1024 * 1024
#: Bytes before the position in a file that identify it: a file with others there is a new one.
_ANCHOR = 256
#: Messages that are read from Kafka at a time.
_BATCH = 500


class DecidedError(ValueError):
    """A decision that the question already has. The message is for the person who answers."""


@dataclass(frozen=True)
class Line:
    """A record that was found, or with ``problem`` the reason why it cannot be read.

    ``place`` names the file and its line, or the topic, partition and offset. ``at`` is the time of the file or of the
    message, in milliseconds since 1970.
    """

    table: str
    place: str
    data: bytes
    at: int
    problem: str = ""


class Records(Protocol):
    """Source of questions, answers and errors, and sink of answers."""

    def read(self) -> Iterator[Line]:
        """Yield the records that were not read before. A record that cannot be read is a line with a problem."""

    def unread(self) -> list[Line]:
        """Return what the last read could not finish: unfinished last lines, and files that cannot be opened."""

    def write(self, answer: Mapping[str, Any], number: int) -> Line:
        """Store an answer, and return its record.

        Args:
            answer: The row of the answer.
            number: The number of earlier answers to the same wait.

        Raises:
            DecidedError: The wait has an answer with this number.
            OSError: The answer cannot be stored.
        """


@dataclass
class _Position:
    """The position in a file, which can grow, and can be replaced.

    ``huge`` is the number of bytes of an unfinished line that is too long. ``has_open_end`` is True after a complete
    last record without a line feed.
    """

    status: tuple[int, ...] = ()
    offset: int = 0
    number: int = 0
    anchor: bytes = b""
    huge: int = 0
    has_open_end: bool = False


class Files:
    """Directories of JSON lines, as Flink's file system connector writes and reads them.

    Args:
        questions: The directory of the table of questions.
        answers: The directory of the table of answers. It is created.
        errors: The directory of the table of errors. None: rejected answers are not shown.
    """

    def __init__(self, questions: Path, answers: Path, errors: Path | None = None) -> None:
        self._answers = answers
        tables = {QUESTIONS: questions, ANSWERS: answers, ERRORS: errors}
        self._folders = {table: folder for table, folder in tables.items() if folder is not None}
        self._positions: dict[Path, _Position] = {}
        self._unread: dict[Path, Line] = {}
        answers.mkdir(parents=True, exist_ok=True)

    def read(self) -> Iterator[Line]:
        existing: set[Path] = set()
        for table, folder in self._folders.items():
            files = sorted(_visible(folder), key=lambda file: (file[1].st_mtime_ns, file[0]))
            existing.update(path for path, _ in files)
            for path, status in files:
                position = self._positions.setdefault(path, _Position())
                of_file = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
                if of_file == position.status:
                    continue
                self._unread.pop(path, None)
                try:
                    yield from self._new_lines(table, path, position)
                    position.status = of_file
                except FileNotFoundError:
                    # The file was removed after the listing. The bridge keeps its questions.
                    existing.discard(path)
                except OSError as error:
                    at = status.st_mtime_ns // 1_000_000
                    problem = f"the file cannot be read: {error.strerror}"
                    self._unread[path] = Line(table, self._place(table, path), b"", at, problem)
        for path in self._positions.keys() - existing:
            del self._positions[path]
            self._unread.pop(path, None)

    def unread(self) -> list[Line]:
        return list(self._unread.values())

    def write(self, answer: Mapping[str, Any], number: int) -> Line:
        # Two bridges, or two threads, cannot create the same name, so a wait has one answer with a number.
        wait = hashlib.sha256(json.dumps(answer["wait_id"]).encode()).hexdigest()[:32]
        data = json.dumps(answer).encode() + b"\n"
        # Flink reads a file when its name appears, so the name appears with the complete file.
        hidden, path = self._answers / f".{uuid.uuid4().hex}", self._answers / f"{wait}-{number}.json"
        try:
            with hidden.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(hidden, path)
        except FileExistsError:
            raise DecidedError("another person has decided meanwhile: read the list of questions again") from None
        finally:
            hidden.unlink(missing_ok=True)
        return Line(ANSWERS, self._place(ANSWERS, path, 1), data, time.time_ns() // 1_000_000)

    def _place(self, table: str, path: Path, number: int = 0) -> str:
        name = f"{table}: {path.relative_to(self._folders[table])}"
        return f"{name}, line {number}" if number else name

    def _new_lines(self, table: str, path: Path, position: _Position) -> Iterator[Line]:
        with path.open("rb") as file:
            at = os.fstat(file.fileno()).st_mtime_ns // 1_000_000
            file.seek(position.offset - len(position.anchor))
            if file.read(len(position.anchor)) != position.anchor:
                # The file was replaced, or truncated.
                vars(position).update(vars(_Position()))
                file.seek(0)
            # A binary file is split at \n only. In JSON the other line separators of str.splitlines() are text.
            while piece := file.readline(MAX_LINE + 1):
                is_complete = piece.endswith(b"\n")
                place = self._place(table, path, position.number + 1)
                if not is_complete and len(piece) > MAX_LINE:
                    self._advance(position, piece)
                    position.huge += len(piece)
                    self._unread[path] = Line(table, place, b"", at, f"the line has more than {MAX_LINE} bytes")
                    continue
                if not is_complete and (position.huge or not _is_object(piece)):
                    self._unread[path] = Line(table, place, piece, at, "the line has no end yet, and is read again")
                    return
                self._unread.pop(path, None)
                self._advance(position, piece)
                size, position.huge = position.huge + len(piece), 0
                if position.has_open_end and piece == b"\n":
                    position.has_open_end = False
                    continue
                position.has_open_end = not is_complete
                position.number += 1
                if size > MAX_LINE:
                    problem = f"the line has {size} bytes, and the page shows records of at most {MAX_LINE}"
                    yield Line(table, place, b"", at, problem)
                elif piece.strip():
                    yield Line(table, place, piece, at)

    def _advance(self, position: _Position, piece: bytes) -> None:
        position.offset += len(piece)
        position.anchor = (position.anchor + piece[-_ANCHOR:])[-_ANCHOR:]


def _visible(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the files that are complete. Flink hides files and directories in progress with a dot or an underscore."""
    for parent, folders, names in os.walk(folder, onerror=_raise_unless_missing):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in names:
            path = Path(parent, name)
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            if not name.startswith((".", "_")) and stat.S_ISREG(status.st_mode):
                yield path, status


def _raise_unless_missing(error: OSError) -> None:
    # The directory of a table appears with its first record.
    if not isinstance(error, FileNotFoundError):
        raise error


def _is_object(data: bytes) -> bool:
    """Return True if the bytes are a JSON object. Only a complete one is."""
    try:
        return isinstance(json.loads(data), dict)
    except (ValueError, RecursionError):
        return False


class KafkaTopics:
    """Topics of JSON records. Only committed records are read.

    Args:
        broker: The address of a broker.
        questions: The topic of the table of questions. It is read from its beginning.
        answers: The topic of the table of answers. It is read from its beginning.
        errors: The topic of the table of errors. None: rejected answers are not shown.

    Raises:
        ImportError: The package confluent-kafka is not installed.
    """

    def __init__(self, broker: str, questions: str, answers: str, errors: str | None = None) -> None:
        from confluent_kafka import Consumer, Producer

        self._tables = {questions: QUESTIONS, answers: ANSWERS}
        if errors:
            self._tables[errors] = ERRORS
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
        self._consumer.subscribe(list(self._tables))

    def read(self) -> Iterator[Line]:
        failure = None
        is_behind = True
        while is_behind:
            messages = self._consumer.consume(_BATCH, 0.1)
            # A question in one batch can have its end in the next.
            is_behind = len(messages) == _BATCH
            for message in messages:
                error = message.error()
                if error is not None:
                    failure = error
                    continue
                place = f"topic {message.topic()}, partition {message.partition()}, offset {message.offset()}"
                data = message.value() or b""
                problem = ""
                if len(data) > MAX_LINE:
                    problem = f"the record has {len(data)} bytes, and the page shows records of at most {MAX_LINE}"
                elif not data:
                    problem = "the record has no value"
                yield Line(
                    self._tables[str(message.topic())], place, b"" if problem else data, message.timestamp()[1], problem
                )
            if failure is not None:
                raise OSError(f"cannot read the topics {', '.join(self._tables)}: {failure}")

    def unread(self) -> list[Line]:
        return []

    def write(self, answer: Mapping[str, Any], number: int) -> Line:
        failures: list[str] = []
        data = json.dumps(answer).encode()
        self._producer.produce(
            self._answers,
            data,
            answer["key"],
            on_delivery=lambda error, _: failures.append(str(error)) if error is not None else None,
        )
        if self._producer.flush(10) or failures:
            raise OSError(f"cannot write to the topic of answers: {failures or 'no response within 10 s'}")
        return Line(ANSWERS, f"topic {self._answers}", data, time.time_ns() // 1_000_000)
