"""The journal of a turn: every finished step, so that a restarted turn does not repeat it.

Of steps that must not be repeated it also has that they began: one without a result was lost with its worker.

A step is known by an id that follows from the program alone (``chat#0/m1``: second model request of the
first chat), never from the order in which parallel steps happen to finish. With its result the journal keeps what was
asked, and after which step of the agent's code: so it finds out that the code is another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from flink_skills.agents.state.codec import STATE_VERSION, WAIT_VERSION, decode, encode
from flink_skills.agents.state.waits import CANCELLED, INPUT_ENDED, OpenWait, WaitResult
from flink_skills.errors import LimitError
from flink_skills.tools.base import TurnInterruptedError

# Its entry is the first one of the journal of a turn that was started anew. No step has such an id.
_ANEW = "anew"

# The longest end of a wait without an answer.
_LONGEST_END = WaitResult(INPUT_ENDED, at=253_402_300_799_999)

# The id of open waits that ended because the code does not request them any more. No step has such an id.
_DROPPED = "dropped"


class Asked(NamedTuple):
    """The request of a step, and its position in the agent's code.

    ``what`` is a fingerprint. It is empty if nothing can be compared. ``after`` is the previous call in the agent's
    code: ``chat#0``, ``!chat#0`` if that raised, or ``chat#0/`` for a call within it. It is empty for the first call,
    and None for a step within a call. ``line`` identifies code in which calls can only come one after another. It is
    None for calls that may run at the same time as others.
    """

    what: str = ""
    after: str | None = None
    line: str | None = None


NOTHING_ASKED = Asked()


class KeptWait(NamedTuple):
    """A wait in the journal, and its result if it has ended."""

    wait: OpenWait
    result: WaitResult | None = None


class JournalMismatchError(TurnInterruptedError):
    """A step does not fit the journal, because the agent's code has changed.

    The message has the step that was expected and the step that was found. The turn then restarts with an empty
    journal.
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

    def __init__(self, entries: Iterable[bytes], most: int = 0) -> None:
        self._most = most
        # With the bytes that open waits reserve.
        self._size = 0
        # The bytes for the end of each open wait without an answer, by its step.
        self._reserved: dict[str, int] = {}
        self._entries: dict[str, Mapping[str, Any]] = {}
        # What finished steps asked for, those of this attempt as well.
        self._asked: dict[str, str] = {}
        # What calls of the agent's code came after which.
        self._following: dict[tuple[str, str], str] = {}
        # Of steps that were done before the turn was started anew: what they asked for, and how often it was by then.
        self._before: dict[str, tuple[str, int]] = {}
        self._begun: set[str] = set()
        # Waits of this attempt and earlier ones, by their step.
        self._waits: dict[str, KeptWait] = {}
        # Waits before the restart of the turn, which the code has not requested again.
        self._earlier_waits: dict[str, KeptWait] = {}
        # The number of waits that had ended before a step finished, by step. Steps before the first end are not in it.
        self._ended_before: dict[str, int] = {}
        #: The steps of the ended waits in the journal, in their order.
        self.ended_waits: list[str] = []
        self.anew = 0
        self.replayed = 0
        for data in entries:
            self._size += len(data)
            self._read(decode(data))

    def _read(self, entry: Mapping[str, Any]) -> None:
        """Read an entry of an earlier attempt."""
        step = entry["id"]
        if step == _ANEW:
            self.anew = entry["r"]["n"]
            self._before = {step: (what, anew) for step, what, anew in entry["r"]["done"]}
            for name, wait, result in entry["r"].get("waits", ()):
                ended = None if result is None else WaitResult.from_json(result)
                self._earlier_waits[name] = KeptWait(OpenWait.from_json(wait), ended)
            return
        if step == _DROPPED:
            self._drop(entry["r"]["w"], entry["r"]["at"])
            return
        if "w" in entry:
            self._earlier_waits.pop(step, None)
            self._waits[step] = KeptWait(OpenWait.from_json(entry["w"]))
            self._reserve(step, _end_size({name: of for name, of in entry.items() if name != "w"}))
        elif "r" not in entry:
            self._begun.add(step)
            return
        elif self.ended_waits:
            self._ended_before[step] = len(self.ended_waits)
        if "r" in entry and step in self._waits:
            self._waits[step] = self._waits[step]._replace(result=WaitResult.from_json(entry["r"]))
            self._release(step)
            self.ended_waits.append(step)
        self._entries[step] = entry
        self._asked[step] = entry["fp"]
        if "l" in entry:
            self._following[entry["l"], entry["p"]] = step

    def __len__(self) -> int:
        """Return the number of finished steps."""
        return len(self._asked)

    def find(self, step: str, asked: Asked = NOTHING_ASKED) -> Any | None:
        """Return the result of ``step`` in a list of one, None if it has not finished.

        Raises :class:`JournalMismatchError` if the step requests something else than its entry, has another position,
        or has the position of another finished step. Entries of an earlier release can lack these values, which are
        then not compared.
        """
        entry = self._entries.get(step)
        if entry is None:
            if self._following:
                self._check_absent(step, asked)
            return None
        self._check(step, entry, asked)
        self.replayed += 1
        return [entry["r"]]

    def find_wait(self, step: str, asked: Asked = NOTHING_ASKED) -> KeptWait | None:
        """Return the wait ``step``, None if it is not in the journal. Raises as :meth:`find` does."""
        found = self._waits.get(step)
        if found is None:
            self._check_absent(step, asked)
            earlier = self._earlier_waits.get(step)
            if earlier is None or earlier.wait.request.fingerprint() != asked.what:
                return None
            # The question was asked before the restart of the turn.
            return earlier
        entry = self._entries.get(step)
        # A tool that is called again requests the waits of this attempt again.
        self._check(step, {"fp": self._asked[step]} if entry is None else entry, asked)
        if found.result is not None and entry is not None:
            self.replayed += 1
        return found

    def asked_wait(self, step: str) -> OpenWait | None:
        """Return the wait ``step``, even from before the restart of the turn. None if no attempt requested it."""
        found = self._waits.get(step) or self._earlier_waits.get(step)
        return None if found is None else found.wait

    def has_wait(self, step: str) -> bool:
        """Return True if the wait ``step`` was opened since the restart of the turn."""
        return step in self._waits

    @property
    def open_waits(self) -> dict[str, OpenWait]:
        """The waits that have not ended, by their step, with those that the code has not requested again."""
        if not (self._waits or self._earlier_waits):
            return {}
        waits = {**self._earlier_waits, **self._waits}
        return {step: kept.wait for step, kept in waits.items() if kept.result is None}

    @property
    def unrequested_waits(self) -> dict[str, OpenWait]:
        """The open waits from before the restart of the turn that the code has not requested again, by their step."""
        return {step: kept.wait for step, kept in self._earlier_waits.items() if kept.result is None}

    def drop_wait(self, wait: OpenWait, at: int) -> bytes:
        """End an open wait that the code does not request any more. Return its entry.

        ``at`` is the time in milliseconds since 1970. If the code requests the wait later, it is cancelled.
        """
        self._drop(wait.id, at)
        data = encode({"id": _DROPPED, "fp": "", "r": {"w": wait.id, "at": at}}, WAIT_VERSION)
        self._size += len(data)
        return data

    def _drop(self, wait_id: str, at: int) -> None:
        result = WaitResult(CANCELLED, at=at)
        self._earlier_waits = {step: of for step, of in self._earlier_waits.items() if of.wait.id != wait_id}
        for step, of in self._waits.items():
            if of.wait.id == wait_id and of.result is None:
                self._waits[step] = of._replace(result=result)
                self._release(step)

    def _reserve(self, step: str, size: int) -> None:
        self._reserved[step] = size
        self._size += size

    def _release(self, step: str) -> None:
        self._size -= self._reserved.pop(step, 0)

    def is_within_finished(self, step: str) -> bool:
        """Return True if ``step`` is a part of a step whose result is in the journal. No code requests it again."""
        end = step.rfind("/")
        while end > 0:
            if "r" in self._entries.get(step[:end], ()):
                return True
            end = step.rfind("/", 0, end)
        return False

    def ended_waits_before(self, step: str) -> int:
        """Return the number of waits that had ended in the journal when ``step`` finished."""
        return self._ended_before.get(step, 0)

    def open_wait(self, step: str, wait: OpenWait, asked: Asked) -> bytes:
        """Add a wait that begins. Return its entry.

        Raises :class:`LimitError` as :meth:`add` does: the end without an answer, which no correction follows, must fit
        as well.
        """
        entry = _placed({"id": step, "fp": asked.what}, asked)
        end = _end_size(entry)
        data = self._fitting(f"wait {wait.request.name!r} has", entry | {"w": wait.to_json()}, WAIT_VERSION, end)
        self._asked[step] = asked.what
        self._reserve(step, end)
        self._earlier_waits.pop(step, None)
        self._waits[step] = KeptWait(wait)
        return data

    def end_wait(self, step: str, result: WaitResult, asked: Asked) -> bytes:
        """Add the result of a wait. Return its entry. Raises :class:`LimitError` as :meth:`add` does."""
        entry = _placed({"id": step, "fp": asked.what, "r": result.to_json()}, asked)
        data = self._fitting("the answer has", entry, WAIT_VERSION, -self._reserved.get(step, 0))
        self._asked[step] = asked.what
        self._release(step)
        self._waits[step] = self._waits[step]._replace(result=result)
        return data

    def _check_absent(self, step: str, asked: Asked) -> None:
        """Raise :class:`JournalMismatchError` if the journal has another step at the position of ``step``."""
        if asked.line is None or asked.after is None:
            return
        done = self._following.get((asked.line, asked.after))
        if done is not None:
            raise JournalMismatchError(step, f"step {step} is not in the journal, which has {_call(done)} instead")

    def _check(self, step: str, entry: Mapping[str, Any], asked: Asked) -> None:
        """Raise :class:`JournalMismatchError` if ``step`` does not fit its entry."""
        if asked.what and entry["fp"] and entry["fp"] != asked.what:
            raise JournalMismatchError(step, f"step {step} requests something else than in the journal")
        if asked.after is not None and "p" in entry and entry["p"] != asked.after:
            raise JournalMismatchError(
                step, f"step {step} comes {_after(asked.after)}, and in the journal it comes {_after(entry['p'])}"
            )

    def begin(self, step: str) -> bytes | None:
        """Return the entry for the start of ``step``, None if an earlier attempt started it and was lost.

        An attempt that a wait within ``step`` stopped was not lost. It has no further entry: the bytes are empty.
        """
        if step in self._begun:
            inside = f"{step}/"
            stopped = any(of.result is None and wait.startswith(inside) for wait, of in self._waits.items())
            return b"" if stopped else None
        self._begun.add(step)
        return encode({"id": step})

    def end(self, line: str, after: str) -> None:
        """Report that the code of ``line`` has ended, with ``after`` as its last call.

        Raises :class:`JournalMismatchError` if the journal has a finished step that comes next. Steps that run at the
        same time as others belong to no line, because their order can depend on their durations.
        """
        done = self._following.get((line, after))
        if done is not None:
            step = _call(done)
            raise JournalMismatchError(
                step, f"step {step} comes {_after(after)} in the journal, and the code ends there without it"
            )

    def peek(self, step: str) -> Any | None:
        """Return the result of ``step``, None if it has not finished. The step does not count as replayed."""
        entry = self._entries.get(step)
        return entry["r"] if entry is not None else None

    def add(self, step: str, result: Any, asked: Asked = NOTHING_ASKED) -> bytes:
        """Add the JSON-like result of a finished step. Return its entry.

        Raises :class:`LimitError` if the journal would be larger than its maximum size.
        """
        entry = _placed({"id": step, "fp": asked.what, "r": result}, asked)
        data = self._fitting(f"step {step} returned", entry, STATE_VERSION)
        self._asked[step] = asked.what
        return data

    def _fitting(self, what: str, entry: Mapping[str, Any], version: int, reserve: int = 0) -> bytes:
        """Return the bytes of an entry, after which ``reserve`` more bytes fit."""
        data = encode(entry, version)
        if self._most and self._size + len(data) + reserve > self._most:
            raise LimitError(
                f"{what} {len(data):,} bytes, and with it the journal of the turn has more than "
                f"skills.turn.max-size = {self._most:,}: return less, and keep large data in a file or an artifact"
            )
        self._size += len(data)
        return data

    def emptied(self) -> bytes:
        """Return the only entry of the journal with which the turn restarts."""
        done = {**self._before, **{step: (what, self.call_number(step, what)) for step, what in self._asked.items()}}
        known = [[step, what, anew] for step, (what, anew) in done.items()]
        restart: dict[str, Any] = {"n": self.anew + 1, "done": known}
        waits = {**self._earlier_waits, **self._waits}
        if waits:
            restart["waits"] = [
                [step, of.wait.to_json(), None if of.result is None else of.result.to_json()]
                for step, of in waits.items()
            ]
        return encode({"id": _ANEW, "fp": "", "r": restart}, WAIT_VERSION if waits else STATE_VERSION)

    def call_number(self, step: str, what: str) -> int:
        """Return a number that distinguishes calls of ``step`` with different requests before and after a restart.

        It is 0 in a turn that was not restarted. A step with the same request as before has the same number, so that a
        receiver can recognize the repetition.
        """
        if not self.anew:
            return 0
        before = self._before.get(step)
        return before[1] if before is not None and what and before[0] == what else self.anew


def _placed(entry: dict[str, Any], asked: Asked) -> dict[str, Any]:
    """Add the position of a step to its entry."""
    if asked.after is not None:
        entry["p"] = asked.after
        if asked.line is not None:
            entry["l"] = asked.line
    return entry


def _end_size(entry: Mapping[str, Any]) -> int:
    """Return the bytes that the end of a wait without an answer needs at most. ``entry`` has its step and position."""
    dropped = {"id": _DROPPED, "fp": "", "r": {"w": "0" * 32, "at": _LONGEST_END.at}}
    return max(len(encode(of, WAIT_VERSION)) for of in ({**entry, "r": _LONGEST_END.to_json()}, dropped))


def _call(step: str) -> str:
    """Return the call of the agent's code that its first step belongs to: ``chat#0`` for ``chat#0/m0``."""
    head, _, last = step.rpartition("/")
    return head if last == "m0" else step


def _after(call: str) -> str:
    if not call:
        return "first"
    if call[-1] == "/":
        return f"first within {call[:-1]}"
    return f"after {call}" if call[0] != "!" else f"after {call[1:]}, which failed"
