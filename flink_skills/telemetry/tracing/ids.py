"""IDs of traces and spans, which join the spans of all processes that work on a turn.

* The trace ID is the turn ID, which is the same on every attempt.
* The span ID of a turn is a digest of the turn ID. The span ID of a sub-agent is a digest of the turn ID and the step.
  A process that crashes does not export the spans of its running activities, but the spans that ended name them as
  parents. The process that resumes the turn exports these parents with the same IDs, which completes the tree.
* Every other span represents work of one process. Its ID has a random part, so a step that ran before and after a
  failure has two spans.
"""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import secrets
from collections.abc import Iterator

from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator

__all__ = ["PresetIds", "agent_span_id", "new_run", "own_span_id", "trace_id"]


def trace_id(turn_id: str) -> int:
    """Return the trace ID of a turn.

    >>> f"{trace_id('4bf92f3577b34da6a3ce929d0e0e4736'):032x}"
    '4bf92f3577b34da6a3ce929d0e0e4736'
    """
    return int(turn_id[:32], 16) or 1


def agent_span_id(turn_id: str, step: str, repeated: int = 0) -> int:
    """Return the span ID of an agent.

    Args:
        turn_id: ID of the turn.
        step: ID of the step that called the sub-agent. Empty for the agent of the turn.
        repeated: Number of earlier runs in this attempt: a turn restarts if the agent's code has changed.
    """
    return _digest("agent", turn_id, step, str(repeated))


def own_span_id(turn_id: str, kind: str, step: str, run: str) -> int:
    """Return the span ID of work of this process. ``run`` must be unique for each execution."""
    return _digest(kind, turn_id, step, run)


def _digest(*fields: str) -> int:
    text = "\0".join(fields).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") or 1


class PresetIds(IdGenerator):
    """Generator that returns preset IDs inside :meth:`preset`, and random IDs outside it."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self._next: contextvars.ContextVar[tuple[int, int] | None] = contextvars.ContextVar("next_ids", default=None)

    @contextlib.contextmanager
    def preset(self, trace: int, span: int) -> Iterator[None]:
        """Set the IDs of the spans that start inside the context."""
        token = self._next.set((trace, span))
        try:
            yield
        finally:
            self._next.reset(token)

    def generate_trace_id(self) -> int:
        ids = self._next.get()
        return self._random.generate_trace_id() if ids is None else ids[0]

    def generate_span_id(self) -> int:
        ids = self._next.get()
        return self._random.generate_span_id() if ids is None else ids[1]

    def is_trace_id_random(self) -> bool:
        """Return True: turn IDs are digests and as evenly distributed as random IDs."""
        return True


def new_run() -> str:
    """Return a random ID of this process's work on turns."""
    return secrets.token_hex(8)
