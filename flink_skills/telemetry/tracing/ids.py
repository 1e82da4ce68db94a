"""The ids of traces and spans: what makes a turn one trace, whichever processes worked on it.

* The trace id is the turn id, which is the same on every attempt.
* The span of a turn has an id that follows from the turn id alone, and that of an agent which is called as a tool from
  the turn id and the step. A process that dies exports no span of what it was in the middle of, but what had ended
  there names this span as its parent; the process that goes on ends the span, and so the halves meet.
* All other spans stand for something that this process did. Their ids hold a random part, so that a step which really
  ran twice, before and after a failure, has two spans.
"""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import secrets
from collections.abc import Iterator

from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator

__all__ = ["GivenIds", "agent_span_id", "new_run", "own_span_id", "trace_id"]


def trace_id(turn_id: str) -> int:
    """The trace of a turn.

    >>> f"{trace_id('4bf92f3577b34da6a3ce929d0e0e4736'):032x}"
    '4bf92f3577b34da6a3ce929d0e0e4736'
    """
    return int(turn_id[:32], 16) or 1


def agent_span_id(turn_id: str, step: str, repeated: int = 0) -> int:
    """The span of an agent's work: of the turn's own one where ``step`` is empty, else of the one called in that step.

    ``repeated`` counts its earlier runs in this attempt: a turn may start anew where the agent's code has changed.
    """
    return _digest("agent", turn_id, step, str(repeated))


def own_span_id(turn_id: str, kind: str, step: str, run: str) -> int:
    """The span of something that this process does; ``run`` differs for all that really runs."""
    return _digest(kind, turn_id, step, run)


def _digest(*parts: str) -> int:
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") or 1


class GivenIds(IdGenerator):
    """Gives the next span the ids that it was told, random ones otherwise."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self._next: contextvars.ContextVar[tuple[int, int] | None] = contextvars.ContextVar("next_ids", default=None)

    @contextlib.contextmanager
    def given(self, trace: int, span: int) -> Iterator[None]:
        """The ids of what starts inside."""
        token = self._next.set((trace, span))
        try:
            yield
        finally:
            self._next.reset(token)

    def generate_trace_id(self) -> int:
        given = self._next.get()
        return self._random.generate_trace_id() if given is None else given[0]

    def generate_span_id(self) -> int:
        given = self._next.get()
        return self._random.generate_span_id() if given is None else given[1]

    def is_trace_id_random(self) -> bool:
        """Turn ids are digests, and as evenly spread as random ones."""
        return True


def new_run() -> str:
    """Stands for one process's work on turns."""
    return secrets.token_hex(8)
