"""Redactor of secrets, for logs, messages, events and spans of a worker or of a local run.

Messages of this package show no secret. The redactor is for libraries: an error of an HTTP client or an object store
may repeat the URL or the key that it received. It replaces known values. :func:`flink_skills.endpoint.redact` shortens
URLs with unknown secrets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from flink_skills.tools.commands.hidden import HiddenValues

_MARK = "***"


class Redactor:
    """Replaces secret values in text.

    >>> redactor = Redactor()
    >>> redactor.hide(["s3cret"])
    >>> redactor.redact("GET /a.zip?sig=s3cret")
    'GET /a.zip?sig=***'
    """

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self._filters: list[Callable[[str], str]] = []
        self._hidden = HiddenValues()
        self._prefix_lengths: list[Callable[[str], int]] = []

    def hide(self, values: Iterable[str]) -> None:
        """Hide these values from now on."""
        new = {value for value in values if value} - self._values
        self._values |= new
        for value in new:
            self._hidden.add(value, value)
        # The longest first: a secret that is a prefix of another one must not leave the end of it.
        longest_first = sorted(self._values, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def add_filter(self, redact: Callable[[str], str], secret_prefix_length: Callable[[str], int]) -> None:
        """Add a filter for secrets that change while a job runs.

        Each thread that logs calls both functions. They must not log.

        Args:
            redact: Returns a text without the secrets that exist at the time of the call.
            secret_prefix_length: Returns how many characters at the end of a text may be the start of a secret.
        """
        self._filters.append(redact)
        self._prefix_lengths.append(secret_prefix_length)

    def redact(self, text: str) -> str:
        """Return ``text`` without the secrets."""
        if self._pattern is not None:
            text = self._pattern.sub(_MARK, text)
            # Secrets in JSON or of several lines: a delta of a tool call's arguments is neither plain text nor data.
            text = self._hidden.in_text(text)
        for redact in self._filters:
            text = redact(text)
        return text

    def secret_prefix_length(self, text: str) -> int:
        """Return how many characters at the end of ``text`` may be the start of a secret."""
        return max(self._hidden.begun_in_text(text), *(length(text) for length in self._prefix_lengths), 0)
