"""The questions, their decisions and their ends, folded from the records of three tables."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from examples.refunds.arguments import fields_of, problems_of, read_json, show
from examples.refunds.records import ANSWERS, ERRORS, QUESTIONS, DecidedError, Line, Records

__all__ = ["AnswerError", "Questions"]

#: Ended questions and problems that are shown, and ended questions that are not opened again.
_MAX_ENDED, _MAX_PROBLEMS, _MAX_ENDS = 50, 50, 100_000
_MAX_EXCERPT, _MAX_NAME, _MAX_DEPTH = 300, 200, 4
_STATUSES = ("open", "answered", "timed_out", "cancelled", "input_ended")
_OUTCOMES = {
    "timed_out": "No answer in time",
    "cancelled": "Cancelled",
    "input_ended": "Ended with the input of the job",
}
_TEXTS = ("agent", "key", "kind", "name", "question", "payload", "tool", "arguments", "answer", "by")
_TIMES = ("since", "deadline", "at")
#: The fields of an answer by the kind of the question, without those that each answer can have.
_DECISION = ("approved", "reason", "arguments")
_COMMON = ("wait_id", "by", "version")
#: The beginning of the error record of an answer, and the wait: its id, or its name and its id.
_ANSWER_ERROR = re.compile(r"(?:\w+: )?(?:an|the) answer to wait (['\"])(.*?)\1(?: \(([^()]+)\))?", re.DOTALL)


class AnswerError(ValueError):
    """An answer that cannot be given. The message is for the person who answers.

    ``fields`` has what is wrong with arguments, by name.
    """

    def __init__(self, message: str, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.fields = dict(fields or {})


class Questions:
    """Open, decided and ended questions. The methods can be called from several threads.

    Args:
        records: The source of questions, answers and errors, and sink of answers.
        schemas: JSON schemas of the arguments of tools, by the tool's name.
    """

    def __init__(self, records: Records, schemas: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._records = records
        self._schemas = dict(schemas or {})
        self._lock = threading.Lock()
        self._open: dict[str, dict[str, Any]] = {}
        self._ended: dict[str, dict[str, Any]] = {}
        self._ends: dict[str, int | None] = {}
        self._answers: dict[str, dict[bytes, dict[str, Any]]] = {}
        self._rejections: dict[str, list[dict[str, Any]]] = {}
        self._problems: deque[dict[str, Any]] = deque(maxlen=_MAX_PROBLEMS)
        self._count = 0
        self._lines = 0

    def all(self) -> dict[str, Any]:
        """Return what the page shows.

        Returns:
            ``open``: the open questions, the oldest first, with the form of their arguments and the decision that the
            job has not confirmed yet. ``ended``: the questions that ended last. ``problems``: the last records that
            cannot be shown, and answers that the job did not use. ``problem_count``: their number. ``records``: the
            number of all records.
        """
        with self._lock:
            self._update()
            unread = [_problem(line, line.problem) for line in self._records.unread()]
            return {
                "open": sorted(map(self._shown, self._open.values()), key=_order),
                "ended": list(self._ended.values())[::-1],
                "problems": [*unread, *self._unused(), *list(self._problems)[::-1]],
                "problem_count": len(unread) + len(self._unused()) + self._count,
                "records": self._lines,
            }

    def answer(self, given: Mapping[str, Any]) -> None:
        """Store the answer to an open question.

        Args:
            given: ``wait_id``; ``approved`` with an optional ``reason`` and ``arguments`` for an approval, ``answer``
                for another question, or ``cancel``; and optionally ``by`` and the ``version`` that the person has read.

        Raises:
            AnswerError: The question is not known, or a field is missing, unknown or of another type.
            DecidedError: The question has a decision, has ended, or has changed.
        """
        with self._lock:
            self._update()
            wait = given.get("wait_id")
            if not isinstance(wait, str) or (wait not in self._open and wait not in self._ends):
                raise AnswerError(f"question {wait!r} is not open: reload the list of questions")
            if wait not in self._open:
                end = self._ended.get(wait)
                raise DecidedError("the question has ended" + ("" if end is None else f": {_sentence(end)}"))
            question = self._shown(self._open[wait])
            if question["decision"] is not None:
                raise DecidedError(f"the question has a decision: {_sentence(question['decision'])}")
            answer = self._row(question, given)
            if given.get("version") not in (None, question["version"]):
                raise DecidedError("the question has changed: read it again")
            self._take(self._records.write(answer, len(self._answers.get(wait, ()))))

    def _update(self) -> None:
        for line in self._records.read():
            self._lines += 1
            if line.problem:
                self._report(line, line.problem)
            else:
                self._take(line)

    def _take(self, line: Line) -> None:
        takes: dict[str, Callable[[Line, dict[str, Any]], None]] = {
            QUESTIONS: self._take_question,
            ANSWERS: self._take_answer,
            ERRORS: self._take_error,
        }
        try:
            record = read_json(line.data)
            if not isinstance(record, dict):
                raise ValueError("it is not a JSON object")
            takes[line.table](line, record)
        except ValueError as error:
            self._report(line, str(error))

    def _report(self, line: Line, problem: str) -> None:
        self._count += 1
        self._problems.append(_problem(line, problem))

    def _take_question(self, line: Line, record: dict[str, Any]) -> None:
        found = _checked(record)
        wait = found["wait_id"]
        if found["status"] == "open":
            asked = self._open_record(found)
            # Files are not read in the order of their records.
            if wait not in self._ends or (self._ends[wait] or asked["since"]) < asked["since"]:
                self._ends.pop(wait, None)
                self._open[wait] = asked
            return
        asked = self._open.pop(wait, {}) or self._ended.pop(wait, {})
        end = asked | {name: value for name, value in found.items() if value is not None}
        end["outcome"] = _OUTCOMES.get(end["status"]) or _outcome(end)
        end.pop("fields", None)
        self._ended[wait] = end
        self._ends[wait] = found["at"]
        self._answers.pop(wait, None)
        self._rejections.pop(wait, None)
        self._forget()

    def _forget(self) -> None:
        """Remove the oldest entries about waits that are not open."""
        for found, most in (
            (self._ended, _MAX_ENDED),
            (self._ends, _MAX_ENDS),
            (self._answers, _MAX_ENDS),
            (self._rejections, _MAX_ENDS),
        ):
            if len(found) > most:
                del found[next((wait for wait in found if wait not in self._open), next(iter(found)))]

    def _open_record(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return the record of an open question with what the page shows of it."""
        if record["kind"] not in ("approval", "wait"):
            raise ValueError(f'kind is {show(record["kind"])[:_MAX_NAME]}, expected "approval" or "wait"')
        for name in ("key", "since"):
            if record[name] is None:
                raise ValueError(f"{name} is missing: add the column {name} to the table of questions")
        payload = None if record["payload"] is None else _json_of(record, "payload")
        fields, on_timeout = None, None
        if record["kind"] == "approval":
            arguments = _json_of(record, "arguments")
            if not isinstance(arguments, dict):
                raise ValueError("arguments is not a JSON object")
            fields = fields_of(arguments, self._schemas.get(record["tool"] or ""))
            if isinstance(payload, dict) and "on_timeout" in payload:
                on_timeout, payload = payload["on_timeout"], payload.get("payload")
        asked = {name: record[name] for name in ("key", "kind", "name", "question", "tool", "arguments", "payload")}
        return {
            **record,
            "fields": fields,
            "on_timeout": on_timeout if isinstance(on_timeout, str) else None,
            "background": _background(payload),
            "version": hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16],
        }

    def _take_answer(self, line: Line, record: dict[str, Any]) -> None:
        wait = record.get("wait_id")
        if not isinstance(wait, str) or not wait:
            raise ValueError("wait_id is missing: an answer belongs to one question")
        if wait in self._ends:
            return
        by, at = record.get("by"), record.get("at")
        decision = {
            "by": by if isinstance(by, str) else "",
            "at": at if _is_time(at) else line.at,
            "outcome": "Cancelled" if record.get("cancel") is True else _outcome(record),
        }
        # A record that a producer has written twice is one decision.
        self._answers.setdefault(wait, {})[hashlib.sha256(line.data.strip()).digest()] = decision
        self._forget()

    def _take_error(self, line: Line, record: dict[str, Any]) -> None:
        text = record.get("error")
        if not isinstance(text, str):
            raise ValueError("error is missing: add the column error to the table of errors")
        found = _ANSWER_ERROR.match(text)
        if found is None:
            # The turn has failed. Its record is for the operators of the job.
            return
        wait = found[3] or found[2]
        if wait in self._ends:
            self._report(line, text)
        else:
            reason = re.sub(r"^ is not (?:usable|used)\W+", "", text[found.end() :])
            rejection = {"text": text, "reason": reason or text, "at": line.at, "place": line.place}
            self._rejections.setdefault(wait, []).append(rejection)
            self._forget()

    def _unused(self) -> list[dict[str, Any]]:
        """Return the answers that the job has rejected, and whose question is not open."""
        return [
            {"place": of["place"], "problem": of["text"], "excerpt": ""}
            for wait, found in self._rejections.items()
            if wait not in self._open
            for of in found[-1:]
        ][-_MAX_PROBLEMS:]

    def _shown(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return an open question with its decision and the reason why the last one was rejected."""
        wait = question["wait_id"]
        decisions = list(self._answers.get(wait, {}).values())
        rejections = self._rejections.get(wait, [])
        # Each answer is used, or becomes one error record.
        decision = decisions[-1] if len(decisions) > len(rejections) else None
        rejected = None
        if rejections and decision is None:
            last = decisions[-1] if decisions else {"by": "", "at": None, "outcome": ""}
            texts = {name: rejections[-1][name] for name in ("text", "reason")}
            rejected = {**last, **texts, "number": len(rejections)}
        return {**question, "decision": decision, "rejected": rejected}

    def _row(self, question: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the row of an answer."""
        given = {name: value for name, value in given.items() if value is not None}
        by = given.get("by", "")
        if not isinstance(by, str) or len(by) > _MAX_NAME:
            raise AnswerError(f"by is not a string of at most {_MAX_NAME} characters: write the name of the person")
        if not isinstance(given.get("version", ""), str):
            raise AnswerError("version is not a string: copy it from the question")
        is_cancelled = given.get("cancel", False)
        if not isinstance(is_cancelled, bool):
            raise AnswerError("cancel is not true or false")
        own = () if is_cancelled else _DECISION if question["kind"] == "approval" else ("answer",)
        allowed = (*_COMMON, "cancel", *own)
        unknown = sorted(given.keys() - set(allowed))
        if unknown:
            raise AnswerError(f"unknown field {unknown[0]!r}: use {', '.join(allowed)}")
        now = time.time_ns() // 1_000_000
        row = {"key": question["key"], "wait_id": question["wait_id"], "answer": None, "cancel": None}
        rest = {"by": by, "at": now}
        if is_cancelled:
            return {**row, "cancel": True, **rest}
        if question["kind"] != "approval":
            if "answer" not in given:
                raise AnswerError("the answer is missing: give it in the field 'answer'")
            return {**row, "answer": json.dumps(given["answer"]), **rest}
        return {**row, "answer": json.dumps(self._decision(question, given, by)), **rest}

    def _decision(self, question: Mapping[str, Any], given: Mapping[str, Any], by: str) -> dict[str, Any]:
        if not isinstance(given.get("approved"), bool):
            raise AnswerError("approved is missing: give true or false")
        decision: dict[str, Any] = {"approved": given["approved"], "by": by or None}
        if "reason" in given:
            if not isinstance(given["reason"], str):
                raise AnswerError("reason is not a string")
            decision["reason"] = given["reason"]
        if "arguments" in given:
            if not isinstance(given["arguments"], Mapping):
                raise AnswerError("arguments is not an object: give the arguments of the call")
            if not given["approved"]:
                raise AnswerError("arguments are for a call that is approved: remove them to refuse it")
            fields = question["fields"]
            problems = problems_of(given["arguments"], fields, has_schema=question["tool"] in self._schemas)
            if problems:
                name, problem = next(iter(problems.items()))
                raise AnswerError(f"the arguments do not fit the tool: {name}: {problem}", problems)
            decision["arguments"] = given["arguments"]
        return decision


def _order(question: Mapping[str, Any]) -> tuple[int, str]:
    return question["since"], question["wait_id"]


def _checked(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a record of the table of questions. Raises ValueError for a column of another type."""
    wait, status = record.get("wait_id"), record.get("status")
    if not isinstance(wait, str) or not wait:
        raise ValueError("wait_id is missing: add the column wait_id to the table of questions")
    if status not in _STATUSES:
        raise ValueError(f"status is {show(status)[:_MAX_NAME]}, expected one of {', '.join(_STATUSES)}")
    found: dict[str, Any] = {"wait_id": wait, "status": status}
    for name in _TEXTS:
        found[name] = value = record.get(name)
        if value is not None and not isinstance(value, str):
            raise ValueError(f"{name} is {show(value)[:_MAX_NAME]}, expected a string")
    for name in _TIMES:
        value = record.get(name)
        found[name] = None if value is None else _milliseconds(name, value)
    return found


def _milliseconds(name: str, value: Any) -> int:
    if isinstance(value, str):
        # A TIMESTAMP_LTZ column of a JSON table, with up to nine decimals. Python 3.10 reads three or six.
        text = re.sub(r"\.(\d+)", lambda found: f".{found[1]:0<6}"[:7], value.strip().replace("Z", "+00:00"))
        try:
            time_of = datetime.fromisoformat(text)
            if time_of.tzinfo is not None:
                return round(time_of.timestamp() * 1000)
        except (ValueError, OverflowError):
            pass
    elif _is_time(value):
        return int(value)
    raise ValueError(f"{name} is {show(value)[:_MAX_NAME]}, expected milliseconds since 1970")


def _is_time(value: Any) -> bool:
    # The maximum is the last time of a date in a browser.
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 8_640_000_000_000_000


def _json_of(record: Mapping[str, Any], name: str) -> Any:
    if record[name] is None:
        raise ValueError(f"{name} is missing: add the column {name} to the table of questions")
    try:
        return read_json(record[name])
    except ValueError as error:
        raise ValueError(f"{name} cannot be read: {error}") from None


def _background(payload: Any, name: str = "", depth: int = 0) -> list[list[str]]:
    """Return pairs of name and text of what the agent tells the person who decides."""
    if payload is None and not name:
        return []
    if isinstance(payload, dict) and payload and depth < _MAX_DEPTH:
        inner = [
            _background(value, f"{name}.{key}" if name else key or "Details", depth + 1)
            for key, value in payload.items()
        ]
        return [pair for pairs in inner for pair in pairs]
    if isinstance(payload, list) and payload and not any(isinstance(value, (dict, list)) for value in payload):
        text = "\n".join(value if isinstance(value, str) else show(value) for value in payload)
    else:
        text = payload if isinstance(payload, str) else show(payload, indent=2)
    return [[name or "Details", text]]


def _outcome(record: Mapping[str, Any]) -> str:
    """Return an answer as a person reads it."""
    text = record.get("answer")
    try:
        value = read_json(text) if isinstance(text, str) else text
    except ValueError:
        value = text
    if isinstance(value, dict) and isinstance(value.get("approved"), bool):
        reason = f": {value['reason']}" if isinstance(value.get("reason"), str) and value["reason"] else ""
        arguments = value.get("arguments")
        if not value["approved"]:
            return f"Refused{reason}"
        if isinstance(arguments, dict):
            changed = ", ".join(f"{name}: {show(of)}" for name, of in arguments.items())
            return f"Approved with other arguments ({changed}){reason}"
        return f"Approved{reason}"
    return f"Answered: {value if isinstance(value, str) else show(value)}"


def _sentence(decision: Mapping[str, Any]) -> str:
    at = decision.get("at")
    when = "" if at is None else f" at {datetime.fromtimestamp(at / 1000):%H:%M:%S}"
    return f"{decision['outcome']}, by {decision.get('by') or 'a person without a name'}{when}"


def _problem(line: Line, problem: str) -> dict[str, Any]:
    excerpt = line.data[:_MAX_EXCERPT].decode("utf-8", "replace")
    return {"place": line.place, "problem": problem, "excerpt": excerpt}
