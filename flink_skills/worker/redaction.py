"""Keeps known secrets out of the worker's log and messages, whoever wrote them.

Our own messages show no secret in the first place. This is for the libraries below: an error of an HTTP client or an
object store may repeat the URL or the key that it was given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

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

    def hide(self, values: Iterable[str]) -> None:
        """Hide these texts too, from now on."""
        self._values.update(value for value in values if value)
        # The longest first: a secret that begins another one must not leave the rest of it.
        longest_first = sorted(self._values, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def redacted(self, text: str) -> str:
        """``text`` without what is hidden."""
        return self._pattern.sub(_MARK, text) if self._pattern is not None else text
