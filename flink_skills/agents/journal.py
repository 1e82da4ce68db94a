"""The journal of a turn: every finished step, so that a restarted turn does not repeat it.

Of steps that must not be repeated it also has that they began: one without a result was lost with its worker.

A step is known by an id that follows from the program alone (``chat#0/m1``: second model request of the
first chat), never from the order in which parallel steps happen to finish. With its result the journal keeps what was
asked, and after which step of the agent's code: so it finds out that the code is another one.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from flink_skills.agents.codec import decode, encode
from flink_skills.errors import LimitError
from flink_skills.tools.base import TurnInterruptedError

__all__ = ["NOTHING_ASKED", "Asked", "Journal", "JournalMismatchError", "fingerprint"]

# Its entry is the first one of the journal of a turn that was started anew. No step has such an id.
_ANEW = "anew"


class Asked(NamedTuple):
    """What a step asks for, and where it stands in the agent's code.

    ``what`` is a fingerprint, empty where nothing can be compared. ``after`` is the call of the agent's code before it
    (``chat#0``; ``!chat#0`` where that raised, ``chat#0/`` for what it calls itself), empty for the first one and None
    for a step that is a part of such a call.
    ``line`` is the part of the code in which calls can only come one after another; None for those that may run at the
    same time as others.
    """

    what: str = ""
    after: str | None = None
    line: str | None = None


NOTHING_ASKED = Asked()


class JournalMismatchError(TurnInterruptedError):
    """A step does not fit the journal: the agent's code has changed. The message says what was found and expected.

    Caught by the turn, which then starts anew with an empty journal.
    """

    def __init__(self, step: str, message: str) -> None:
        super().__init__(message)
        self.step = step


class Journal:
    """The finished steps of one turn.

    Args:
        entries: The entries that earlier attempts at the turn wrote.
        most: Maximum size of the journal in bytes. 0 means no limit.

    Attributes:
        anew: Number of restarts of the turn with an empty journal.
        replayed: Number of results that this attempt read from the journal.
    """

    __slots__ = (
        "_asked",
        "_before",
        "_begun",
        "_entries",
        "_following",
        "_most",
        "_size",
        "anew",
        "replayed",
    )

    def __init__(self, entries: Iterable[bytes], most: int = 0) -> None:
        self._most = most
        self._size = 0
        self._entries: dict[str, Mapping[str, Any]] = {}
        # What finished steps asked for, those of this attempt as well.
        self._asked: dict[str, str] = {}
        # What calls of the agent's code came after which.
        self._following: dict[tuple[str, str], str] = {}
        # Of steps that were done before the turn was started anew: what they asked for, and how often it was by then.
        self._before: dict[str, tuple[str, int]] = {}
        self._begun: set[str] = set()
        self.anew = 0
        self.replayed = 0
        for data in entries:
            self._size += len(data)
            entry = decode(data)
            if entry["id"] == _ANEW:
                self.anew = entry["r"]["n"]
                self._before = {step: (what, anew) for step, what, anew in entry["r"]["done"]}
                continue
            if "r" not in entry:
                self._begun.add(entry["id"])
                continue
            self._entries[entry["id"]] = entry
            self._asked[entry["id"]] = entry["fp"]
            if "l" in entry:
                self._following[entry["l"], entry["p"]] = entry["id"]

    def __len__(self) -> int:
        """How many steps have finished."""
        return len(self._asked)

    def find(self, step: str, asked: Asked = NOTHING_ASKED) -> Any | None:
        """The journalled result of ``step`` in a list of one, or None when it has not finished yet.

        Raises :class:`JournalMismatchError` when the step asks for something else than its entry says, stands at
        another place, or takes the place of a finished one. Entries of an earlier release may not say it all; what is
        not known is not compared.
        """
        entry = self._entries.get(step)
        if entry is None:
            if asked.line is not None and asked.after is not None:
                done = self._following.get((asked.line, asked.after))
                if done is not None:
                    raise JournalMismatchError(
                        step, f"step {step} is not in the journal, which has {_call(done)} instead"
                    )
            return None
        if asked.what and entry["fp"] and entry["fp"] != asked.what:
            raise JournalMismatchError(step, f"step {step} requests something else than in the journal")
        if asked.after is not None and "p" in entry and entry["p"] != asked.after:
            raise JournalMismatchError(
                step, f"step {step} comes {_after(asked.after)}, and in the journal it comes {_after(entry['p'])}"
            )
        self.replayed += 1
        return [entry["r"]]

    def begin(self, step: str) -> bytes | None:
        """Return the entry for the start of ``step``, None if an earlier attempt started it and was lost."""
        if step in self._begun:
            return None
        self._begun.add(step)
        return encode({"id": step})

    def end(self, line: str, after: str) -> None:
        """The code of ``line`` has ended, and ``after`` was its last call.

        Raises :class:`JournalMismatchError` when the journal has a finished step that comes next there. Steps that run
        at the same time as others belong to no line: which of them are asked for may hang on how long they take.
        """
        done = self._following.get((line, after))
        if done is not None:
            step = _call(done)
            raise JournalMismatchError(
                step, f"step {step} comes {_after(after)} in the journal, and the code ends there without it"
            )

    def peek(self, step: str) -> Any | None:
        """The journalled result of ``step``, None when it has not finished yet; nothing counts as replayed."""
        entry = self._entries.get(step)
        return entry["r"] if entry is not None else None

    def add(self, step: str, result: Any, asked: Asked = NOTHING_ASKED) -> bytes:
        """Add the JSON-like result of a finished step. Return its entry.

        Raises :class:`LimitError` if the journal would be larger than its maximum size.
        """
        entry = {"id": step, "fp": asked.what, "r": result}
        if asked.after is not None:
            entry["p"] = asked.after
            if asked.line is not None:
                entry["l"] = asked.line
        data = encode(entry)
        if self._most and self._size + len(data) > self._most:
            raise LimitError(
                f"step {step} returned {len(data):,} bytes, and with it the journal of the turn has more than "
                f"skills.turn.max-size = {self._most:,}: return less, and keep large data in a file or an artifact"
            )
        self._size += len(data)
        self._asked[step] = asked.what
        return data

    def emptied(self) -> bytes:
        """The only entry of the journal of this turn when it starts anew."""
        done = {**self._before, **{step: (what, self.call_number(step, what)) for step, what in self._asked.items()}}
        known = [[step, what, anew] for step, (what, anew) in done.items()]
        return encode({"id": _ANEW, "fp": "", "r": {"n": self.anew + 1, "done": known}})

    def call_number(self, step: str, what: str) -> int:
        """Tells calls of ``step`` apart that ask for different things because the turn was started anew in between.

        0 for all of a turn that never was. A step that asks for just what it did before has its number of then, so that
        whoever did it already can recognise it.
        """
        if not self.anew:
            return 0
        before = self._before.get(step)
        return before[1] if before is not None and what and before[0] == what else self.anew


def fingerprint(*values: Any) -> str:
    """A short digest of values, the same in every process. Of objects that are no data their types count alone; empty
    where nothing can be compared."""
    try:
        text = _canonical(values)
    except (TypeError, ValueError, RecursionError):
        return ""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _data(value: Any) -> Any:
    """What of an object is the same in another process."""
    if isinstance(value, BaseModel):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {of.name: getattr(value, of.name) for of in dataclasses.fields(value)}
    if isinstance(value, (dt.date, dt.time, decimal.Decimal, uuid.UUID)):
        return str(value)
    # Not its text, which may be an address in memory; and members of sets have no order.
    return type(value).__qualname__


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_data).encode


def _call(step: str) -> str:
    """The call of the agent's code that a journalled first step of it belongs to: ``chat#0`` of ``chat#0/m0``."""
    head, _, last = step.rpartition("/")
    return head if last == "m0" else step


def _after(call: str) -> str:
    if not call:
        return "first"
    if call[-1] == "/":
        return f"first within {call[:-1]}"
    return f"after {call}" if call[0] != "!" else f"after {call[1:]}, which failed"
