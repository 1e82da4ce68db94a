"""Keeps known secrets out of the worker's log and messages, whoever wrote them.

Our own messages show no secret in the first place. This is for the libraries below: an error of an HTTP client or an
object store may repeat the URL or the key that it was given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from flink_skills.tools.commands.hidden import HiddenValues

__all__ = ["Redactor"]

_MARK = "***"


class Redactor:
    """Replaces texts that are secret.

    >>> redactor = Redactor()
    >>> redactor.hide(["s3cret"])
    >>> redactor.redacted("GET /a.zip?sig=s3cret")
    'GET /a.zip?sig=***'
    """

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self._filters: list[Callable[[str], str]] = []
        self._hidden = HiddenValues()
        self._begun: list[Callable[[str], int]] = []

    def hide(self, values: Iterable[str]) -> None:
        """Hide these texts too, from now on."""
        new = {value for value in values if value} - self._values
        self._values |= new
        for value in new:
            self._hidden.add(value, value)
        # The longest first: a secret that begins another one must not leave the rest of it.
        longest_first = sorted(self._values, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def pass_through(self, hides: Callable[[str], str], begun: Callable[[str], int]) -> None:
        """Let ``hides`` take out of every text what it knows at that time: for secrets that change while a job runs.
        ``begun`` says how many characters at the end of a text may be the beginning of one.

        It is called from all threads that log, and must not log itself.
        """
        self._filters.append(hides)
        self._begun.append(begun)

    def redacted(self, text: str) -> str:
        """``text`` without what is hidden."""
        if self._pattern is not None:
            text = self._pattern.sub(_MARK, text)
            # As JSON, or a line of several: a piece of a tool call's arguments is neither text nor data.
            text = self._hidden.in_text(text)
        for hides in self._filters:
            text = hides(text)
        return text

    def begun(self, text: str) -> int:
        """How many characters at the end of ``text`` may be the beginning of what is hidden."""
        return max(self._hidden.begun_in_text(text), *(begun(text) for begun in self._begun), 0)
