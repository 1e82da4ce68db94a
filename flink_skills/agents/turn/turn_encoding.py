"""The form in which the outputs of a turn leave it, and their maximum size."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flink_skills.agents.state.error_text import error_text
from flink_skills.errors import LimitError, TurnError

__all__ = ["Emitted", "Encoding"]

#: Pairs of side-output tag (empty: main output) and value.
Emitted = Sequence[tuple[str, Any]]

_log = logging.getLogger("flink_skills.turn")


@dataclass(frozen=True)
class Encoding:
    """Encodes outputs with ``encode``; without it, outputs leave as they are.

    ``most`` is the maximum size of the outputs of a turn in bytes.
    """

    encode: Callable[[Any], Any] | None
    most: int

    def all(self, outputs: Emitted) -> Emitted:
        """Encode outputs. Raises what ``encode`` raises."""
        encode = self.encode
        return outputs if encode is None else [(tag, encode(value)) for tag, value in outputs]

    def bounded(self, outputs: Emitted) -> Emitted:
        """Encode outputs. Raises :class:`LimitError` for more than a turn may emit."""
        encoded = self.all(outputs)
        # Outputs that stay in this process are not bytes. They have no limit.
        size = sum(len(value) for _, value in encoded if isinstance(value, bytes))
        if size > self.most:
            raise LimitError(
                f"the outputs of the turn have {size:,} bytes, more than skills.turn.max-size = {self.most:,}: emit "
                "less, and keep large data in artifacts"
            )
        return encoded

    def of_turn(self, outputs: Emitted) -> Emitted:
        """Encode what the agent's code emitted. Raises :class:`TurnError` and :class:`LimitError`."""
        try:
            return self.bounded(outputs)
        except LimitError:
            raise
        except BaseException as error:  # outputs are the user's objects
            raise TurnError(f"an output cannot be pickled ({error_text(error)}): emit plain data") from error

    def of_events(self, events: Emitted) -> Emitted:
        """Encode events of a turn, without those that fit no row of their table."""
        found: list[tuple[str, Any]] = []
        for event in events:
            try:
                found += self.all([event])
            except Exception:
                _log.exception("an event of the turn cannot be written and is omitted")
        return found
