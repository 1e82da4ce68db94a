"""Format of the side output ``waits``: one record when a question is asked, and one when its wait ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from flink_skills.agents.state.waits import OpenWait, WaitResult

_log = logging.getLogger(__name__)

#: Tag of the side output with questions.
WAITS_TAG = "waits"

#: The columns of the table of questions: name, SQL type, description.
WAIT_COLUMNS = (
    ("wait_id", "STRING", "Id of the wait. It is the same on each attempt at the turn."),
    (
        "status",
        "STRING",
        "`open`, `answered`, `timed_out`, `cancelled`, or `input_ended` (of the job).",
    ),
    ("agent", "STRING", "Name of the agent."),
    ("key", "STRING", "Key of the event: a string verbatim, any other value as JSON."),
    ("turn", "BIGINT", "Number of the turn of its key, from 1."),
    ("kind", "STRING", "`wait` or `approval`."),
    ("name", "STRING", "Name of the wait."),
    ("question", "STRING", "Question for people."),
    ("payload", "STRING", "Data for the person or program that answers, as JSON."),
    ("tool", "STRING", "Tool whose call needs approval."),
    ("arguments", "STRING", "Arguments of the call, as JSON."),
    (
        "deadline",
        "TIMESTAMP_LTZ(3)",
        "Time at which the wait ends without an answer. In records: milliseconds.",
    ),
    ("since", "TIMESTAMP_LTZ(3)", "Time of the question."),
    ("attempt", "INT", "Number of the attempt at the turn that asked."),
    ("answer", "STRING", "Answer, as JSON."),
    ("by", "STRING", "Name of the person or program that answered or cancelled."),
    ("at", "TIMESTAMP_LTZ(3)", "Time of this record."),
)


def wait_record(wait: OpenWait, result: WaitResult | None, *, agent: str, key: Any, turn: int) -> dict[str, Any]:
    """Return the record of a question, or with ``result`` the record of its end."""
    asked = wait.request
    return {
        "wait_id": wait.id,
        "status": "open" if result is None else result.status,
        "agent": agent,
        "key": key,
        "turn": turn,
        "kind": asked.kind,
        "name": asked.name,
        "question": asked.question,
        "payload": asked.payload,
        "tool": asked.tool,
        "arguments": None if asked.arguments is None else dict(asked.arguments),
        "deadline": wait.deadline,
        "since": wait.since,
        "attempt": wait.attempt,
        "answer": None if result is None else result.value,
        "by": "" if result is None else result.by,
        "at": wait.since if result is None else result.at,
    }


class WaitIds:
    """Returns the wait that an element answers.

    Args:
        selector: A field, or a function that receives the element.
        answers: True if each element is an answer. One without a wait then has an empty text.
    """

    def __init__(self, selector: str | Callable[[Any], Any], *, answers: bool) -> None:
        self._selector = selector
        self._answers = answers

    def __call__(self, element: Any) -> str | None:
        selector = self._selector
        try:
            if callable(selector):
                found = selector(element)
            elif isinstance(element, Mapping):
                found = element.get(selector)
            else:
                found = getattr(element, selector, None)
        except Exception:  # the function is the user's
            _log.exception("wait_id failed for an answer, which becomes an error record")
            found = None
        return ("" if found is None else str(found)) or ("" if self._answers else None)
