"""The journal of a turn: every finished step, so that a restarted turn does not repeat it.

A step is known by an id that follows from the program alone (``chat#0/m1``: second model request of the
first chat), never from the order in which parallel steps happen to finish.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any

from flink_skills.agents.codec import decode, encode
from flink_skills.tools.base import TurnInterruptedError

__all__ = ["Journal", "JournalMismatchError", "fingerprint"]


class JournalMismatchError(TurnInterruptedError):
    """A step asks for something else than when it was journalled: the agent's code has changed.

    Caught by the turn, which then starts anew with an empty journal.
    """


class Journal:
    """Finished steps of one turn.

    ``append`` is called with the step and the bytes of each new entry, in the order of completion.
    """

    __slots__ = ("_append", "_entries", "replayed")

    def __init__(self, entries: Iterable[bytes], append: Callable[[str, bytes], None]) -> None:
        self._entries: dict[str, Any] = {}
        for data in entries:
            entry = decode(data)
            self._entries[entry["id"]] = entry
        self._append = append
        self.replayed = 0

    def find(self, step: str, expected: str = "") -> Any | None:
        """The journalled result of ``step`` in a list of one, or None when it has not finished yet.

        Raises :class:`JournalMismatchError` when ``expected``, the fingerprint of what the step asks for, differs
        from the journalled one (either may be empty: not known).
        """
        entry = self._entries.get(step)
        if entry is None:
            return None
        if expected and entry["fp"] and entry["fp"] != expected:
            raise JournalMismatchError(step)
        self.replayed += 1
        return [entry["r"]]

    def peek(self, step: str) -> Any | None:
        """The journalled result of ``step``, None when it has not finished yet; nothing counts as replayed."""
        entry = self._entries.get(step)
        return entry["r"] if entry is not None else None

    def add(self, step: str, result: Any, asked: str = "") -> None:
        """Keep the result (JSON-like) of a finished step."""
        self._append(step, encode({"id": step, "fp": asked, "r": result}))


def fingerprint(*values: Any) -> str:
    """A short digest of JSON-like values; empty where they are not JSON-like (then nothing is compared)."""
    try:
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError):
        return ""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
