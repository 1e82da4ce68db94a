"""Reads what agents know of their keys out of a savepoint or checkpoint, with Flink's State Processor API."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pyflink.datastream import DataStream

from flink_skills.agents.plan.plan import operator_of
from flink_skills.agents.state.journal import Journal
from flink_skills.agents.state.waits import OpenWait
from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.flink.bridge import add_bridge, flink_environment, start_java
from flink_skills.flink.flink_failures import flink_errors, hides_cause, job_failure

# Flink hides a cause only if the task fails while an event is on its way to it.
_MAX_READS = 5


@dataclass(frozen=True)
class StoredWait:
    """A wait in a savepoint.

    Attributes:
        id: The id of the wait.
        status: ``OPEN``, ``EARLY`` for an answer before its question, or ``DONE`` for an ended wait.
        event: The event's number, which is one less than the turn's.
        answered: True if the turn has not consumed its answer.
    """

    id: str
    status: str
    event: int
    answered: bool


@dataclass(frozen=True)
class KeyState:
    """State of one key in a savepoint, as bytes.

    ``key`` is the canonical key, and ``turns`` is the number of ended turns. ``pending`` are the events whose turns
    have not ended, and ``journal`` are the finished steps of the first one. The bytes of ``session`` and ``journal``
    are those of :mod:`flink_skills.agents.state.session` and :mod:`flink_skills.agents.state.journal`. ``waits`` are
    the waits of all turns, and ``journals`` the steps of waiting turns that other turns have overtaken.
    """

    key: str
    turns: int
    pending: tuple[bytes, ...]
    journal: tuple[bytes, ...]
    session: tuple[bytes, ...]
    waits: tuple[StoredWait, ...] = ()
    journals: tuple[tuple[bytes, ...], ...] = ()

    def open_waits(self) -> list[tuple[int, OpenWait]]:
        """Return the waits without an answer, each with the number of its turn."""
        journals = (self.journal, *self.journals)
        asked = {wait.id: wait for entries in journals for wait in Journal(entries).open_waits.values()}
        return [
            (stored.event + 1, asked[stored.id])
            for stored in self.waits
            if stored.status == "OPEN" and not stored.answered and stored.id in asked
        ]

    @property
    def early_answers(self) -> int:
        """The number of answers without a question."""
        return sum(stored.status == "EARLY" for stored in self.waits)


class Savepoint:
    """A savepoint, or a retained checkpoint.

    Args:
        location: Its folder, as Flink prints it, or the ``_metadata`` in it: a path or a URL of a file system that this
            Flink knows.
        flink: Options of Flink, such as those of an object store.

    Raises:
        ConfigError: there is no savepoint, or this Flink cannot read it.
    """

    def __init__(self, location: str, flink: Mapping[str, str] | None = None) -> None:
        self.location = (
            location if "://" in location or location.startswith("file:") else Path(location).resolve().as_uri()
        )
        start_java()
        self._env = flink_environment({"rest.port": "0", "parallelism.default": "1", **(flink or {})})
        self._bridge = add_bridge(self._env)
        with flink_errors(ConfigError, f"{self.location}: "):
            uids = [str(uid) for uid in self._bridge.operatorsIn(self.location)]
        self.agents: dict[str, str] = {name: uid for uid in uids if (name := operator_of(uid)) is not None}

    def keys(self, agent: str, key: str | None = None) -> Iterator[KeyState]:
        """Yield the keys of an agent in any order, or only the canonical key ``key``.

        Raises :class:`UnknownNameError` for an agent that the savepoint does not have.
        """
        if agent not in self.agents:
            raise UnknownNameError("agent", agent, self.agents, place=self.location)
        uid = self.agents[agent]
        # The format of state depends on a time to live and on the backend. Savepoints do not contain the former, and
        # not all contain the latter.
        problems = []
        with flink_errors(ConfigError, f"{self.location}: "):
            backends = [str(backend) for backend in self._bridge.backendsFor(self.location)]
        for backend, expiring in itertools.product(backends, (False, True)):
            for _ in range(_MAX_READS):
                try:
                    yield from self._read(uid, key, expiring, backend)
                    return
                except _OtherFormatError as error:
                    problems.append(error)
                    if not error.hidden:
                        break
        raise ConfigError(f"{self.location}: {problems[-1]}")

    def _read(self, uid: str, key: str | None, expiring: bool, backend: str) -> Iterator[KeyState]:
        first = True
        try:
            stream = DataStream(
                self._bridge.keysIn(
                    self._env._j_stream_execution_environment, self.location, uid, key, expiring, backend
                )
            )
            with closing(stream.execute_and_collect()) as rows:
                for row in rows:
                    first = False
                    yield KeyState(
                        row["key"],
                        row["turns"],
                        tuple(row["pending"]),
                        tuple(row["journal"]),
                        tuple(row["session"]),
                        tuple(
                            StoredWait(wait["id"], wait["status"], wait["turn"], wait["answered"])
                            for wait in row["waits"]
                        ),
                        tuple(map(tuple, row["journals"])),
                    )
        except Exception as error:
            message = job_failure(error)
            if message is None:
                raise
            if first:
                raise _OtherFormatError(message, hidden=hides_cause(error)) from error
            raise ConfigError(message) from error


class _OtherFormatError(ConfigError):
    """The state cannot be read in this form.

    Attributes:
        hidden: True if Flink reported a consequence instead of the cause.
    """

    def __init__(self, message: str, *, hidden: bool) -> None:
        super().__init__(message)
        self.hidden = hidden
