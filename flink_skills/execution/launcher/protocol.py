"""What a worker and a supervisor say to each other over the control socket of a command.

Worker to supervisor: four bytes of length and an :class:`Order` as JSON. Supervisor to worker:
:data:`STARTING`, then, when the command has ended, a :class:`Report` as JSON and end of file. Without
``STARTING`` nothing has been run. End of file from the worker means: end the command now.
"""

from __future__ import annotations

import json
import struct
from typing import NamedTuple

__all__ = ["LENGTH", "STARTING", "Order", "Report"]

LENGTH = struct.Struct("!I")
STARTING = b"\n"  # white space to JSON, so it need not be taken off a report


class Order(NamedTuple):
    """A command to run. Times are seconds; ``rlimits`` maps names such as ``RLIMIT_CORE`` to values."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    timeout: float
    grace: float
    rlimits: dict[str, int]
    tasks: int

    def encode(self) -> bytes:
        # ASCII JSON carries the lone surrogates by which Python writes bytes that are no UTF-8.
        body = json.dumps(self._asdict()).encode("ascii")
        return LENGTH.pack(len(body)) + body

    @classmethod
    def decode(cls, body: bytes) -> Order:
        return cls(**json.loads(body))


class Report(NamedTuple):
    """How a command ended. ``error`` is set when it could not be started; the others are then empty."""

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    limit: str | None = None
    error: str | None = None

    def encode(self) -> bytes:
        return json.dumps(self._asdict()).encode("ascii")

    @classmethod
    def decode(cls, body: bytes) -> Report:
        return cls(**json.loads(body))
