"""Values that no text may show, neither to a model nor in a log."""

from __future__ import annotations

import json
import re
from collections import OrderedDict, deque
from collections.abc import Iterator

__all__ = ["HIDDEN", "HiddenValues"]

HIDDEN = "[hidden]"

# Shorter ones are found in too many words that are none.
_SHORTEST_VALUE = 4
# A line of a key that has several; shorter ones, such as a brace, are found elsewhere too.
_SHORTEST_LINE = 16
# A token that is renewed every few minutes must not make every search longer for the rest of the job.
_KEPT_PER_NAME = 8


class HiddenValues:
    """Replaces values by ``[hidden]``: as they are, each long line of them, and as JSON writes them.

    What a program encodes, splits or reverses on purpose is not recognised: the sandbox keeps secrets in, this keeps
    them out of conversations and logs that nobody meant to put them in. Values under 4 characters stay visible.

    >>> hidden = HiddenValues()
    >>> hidden.add("skills.env.report.TOKEN", "t0k3n-1")
    >>> hidden.in_text("sent t0k3n-1"), hidden.in_bytes(b"sent t0k3n-1")
    ('sent [hidden]', b'sent [hidden]')
    """

    def __init__(self) -> None:
        self._values: OrderedDict[str, deque[str]] = OrderedDict()
        self._text: re.Pattern[str] | None = None
        self._bytes: re.Pattern[bytes] | None = None

    def add(self, name: str, value: str) -> None:
        """Hide ``value`` from now on; of each ``name`` the latest 8 different values are hidden."""
        values = self._values.setdefault(name, deque(maxlen=_KEPT_PER_NAME))
        if value in values:
            return
        values.append(value)
        forms = {form for kept in self._values.values() for one in kept for form in _forms(one)}
        # The longest first: a value that begins another one must not leave the rest of it.
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        if longest_first:
            self._text = re.compile("|".join(map(re.escape, longest_first)))
            self._bytes = re.compile(
                b"|".join(re.escape(form.encode("utf-8", "surrogateescape")) for form in longest_first)
            )

    def in_text(self, text: str) -> str:
        """``text`` without the values."""
        return self._text.sub(HIDDEN, text) if self._text is not None else text

    def in_bytes(self, data: bytes) -> bytes:
        """``data`` without the UTF-8 form of the values."""
        return self._bytes.sub(HIDDEN.encode(), data) if self._bytes is not None else data


def _forms(value: str) -> Iterator[str]:
    if len(value) < _SHORTEST_VALUE:
        return
    yield value
    # Outputs are often stripped, and a value may end with blanks that no program repeats.
    if len(value.strip()) >= _SHORTEST_VALUE:
        yield value.strip()
    for ascii_only in (True, False):
        yield json.dumps(value, ensure_ascii=ascii_only)[1:-1]
    for line in value.splitlines():
        if len(line.strip()) >= _SHORTEST_LINE:
            yield line.strip()
