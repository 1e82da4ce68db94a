"""Waits that elements of a list or a stream answer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from flink_skills.agents.rows.wait_record import wait_of

__all__ = ["WaitIds"]

_log = logging.getLogger(__name__)


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
        try:
            found = wait_of(element, self._selector)
        except Exception:  # the function is the user's
            _log.exception("wait_id failed for an answer, which becomes an error record")
            found = ""
        return found or ("" if self._answers else None)
