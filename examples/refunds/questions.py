"""The open questions, folded from the records of the table of waits."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from examples.refunds.records import Records

__all__ = ["AnswerError", "Questions"]

_MOST_ENDED = 50
_FIELDS = frozenset({"wait_id", "approved", "reason", "arguments", "answer", "cancel", "by"})


class AnswerError(ValueError):
    """An answer that cannot be given. The message is for the person who answers."""


class Questions:
    """Open and ended questions. The methods can be called from several threads."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._lock = threading.Lock()
        self._open: dict[str, dict[str, Any]] = {}
        self._ended: dict[str, dict[str, Any]] = {}

    def all(self) -> dict[str, list[dict[str, Any]]]:
        """Return the open questions, the oldest first, and the questions that ended last."""
        with self._lock:
            self._update()
            return {
                "open": sorted(self._open.values(), key=lambda record: record["since"]),
                "ended": list(self._ended.values())[::-1],
            }

    def answer(self, given: Mapping[str, Any]) -> None:
        """Write the answer to an open question.

        Args:
            given: ``wait_id``; ``approved`` with an optional ``reason`` and ``arguments`` for an approval, ``answer``
                for another question, or ``cancel``; and an optional ``by``.

        Raises:
            AnswerError: The question is not open, or a field is missing, unknown or of another type.
        """
        with self._lock:
            self._update()
            question = self._open.get(str(given.get("wait_id")))
        if question is None:
            raise AnswerError(f"question {given.get('wait_id')!r} is not open: reload the list of questions")
        self._records.write(_record(question, given))

    def _update(self) -> None:
        for record in self._records.read():
            wait = record["wait_id"]
            if record["status"] == "open":
                self._open[wait] = record
                continue
            self._ended.pop(wait, None)
            self._ended[wait] = {**self._open.pop(wait, {}), **{k: v for k, v in record.items() if v is not None}}
            if len(self._ended) > _MOST_ENDED:
                del self._ended[next(iter(self._ended))]


def _record(question: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of an answer."""
    unknown = sorted(given.keys() - _FIELDS)
    if unknown:
        raise AnswerError(f"unknown field {unknown[0]!r}: use {', '.join(sorted(_FIELDS))}")
    by = given.get("by", "")
    if not isinstance(by, str):
        raise AnswerError("by is not a string: write the name of the person who answers")
    found = {"key": question["key"], "wait_id": question["wait_id"], "answer": None, "cancel": None, "by": by}
    if given.get("cancel") is True:
        return {**found, "cancel": True}
    if question["kind"] != "approval":
        if "answer" not in given:
            raise AnswerError("the answer is missing: give it in the field 'answer'")
        return {**found, "answer": json.dumps(given["answer"])}
    if not isinstance(given.get("approved"), bool):
        raise AnswerError("approved is missing: give true or false")
    decision: dict[str, Any] = {"approved": given["approved"], "by": by or None}
    if given.get("reason") is not None:
        if not isinstance(given["reason"], str):
            raise AnswerError("reason is not a string")
        decision["reason"] = given["reason"]
    if given.get("arguments") is not None:
        if not isinstance(given["arguments"], Mapping):
            raise AnswerError("arguments is not an object: give the arguments of the call")
        decision["arguments"] = given["arguments"]
    return {**found, "answer": json.dumps(decision)}
