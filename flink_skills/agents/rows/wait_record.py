"""Format of the side output ``waits``: one record when a question is asked, and one when its wait ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from flink_skills.agents.state.waits import OpenWait, WaitResult
from flink_skills.texts import table

_log = logging.getLogger(__name__)

#: Tag of the side output with questions.
WAITS_TAG = "waits"

#: The columns of the table of questions: name, SQL type, description.
WAIT_COLUMNS = tuple((name, of, doc) for name, of, doc in table("wait_columns.txt", beside=__file__))


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
