"""Values that are removed from texts for models and logs."""

from __future__ import annotations

import json
import re
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from typing import Any

HIDDEN = "[hidden]"
_HIDDEN = HIDDEN.encode()

# Shorter ones are found in too many words that are none.
_SHORTEST_VALUE = 4
# Of a value that was cut in two; what is shorter tells nothing, and many words end with it.
_SHORTEST_PART = 3
_LINE_ENDS = ("\n", "\r\n", "\r\r\n")
# A line of a key that has several; shorter ones, such as a brace, are found elsewhere too.
_SHORTEST_LINE = 16
# A token that is renewed every few minutes must not make every search longer for the rest of the job.
_KEPT_PER_NAME = 8


class HiddenValues:
    """Replaces values by ``[hidden]``: as they are, with other line ends, each long line of them, and as JSON.

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
        self._forms: list[bytes] = []

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
            self._forms = [form.encode("utf-8", "surrogateescape") for form in longest_first]
            self._bytes = re.compile(b"|".join(map(re.escape, self._forms)))

    def in_text(self, text: str) -> str:
        """Return ``text`` without the values."""
        return self._text.sub(HIDDEN, text) if self._text is not None else text

    def in_data(self, value: Any) -> Any:
        """Return JSON-like data without the values, also in keys."""
        if isinstance(value, str):
            return self.in_text(value)
        if isinstance(value, Mapping):
            return {self.in_text(str(key)): self.in_data(item) for key, item in value.items()}
        return [self.in_data(item) for item in value] if isinstance(value, (list, tuple)) else value

    def in_bytes(self, data: bytes, gap: bytes = b"") -> bytes:
        """Return ``data`` without the UTF-8 form of the values.

        ``gap`` replaces a part that was omitted. A value that was divided by it is hidden too.
        """
        if self._bytes is None:
            return data
        before, found, after = data.partition(gap) if gap else (data, b"", b"")
        if not found:
            return self._bytes.sub(_HIDDEN, data)
        begun, ended = self.begun(before), self._ended(after)
        return b"".join(
            (
                self._bytes.sub(_HIDDEN, before[: len(before) - begun]),
                _HIDDEN if begun else b"",
                found,
                _HIDDEN if ended else b"",
                self._bytes.sub(_HIDDEN, after[ended:]),
            )
        )

    def begun(self, data: bytes) -> int:
        """How many bytes at the end of ``data`` may be the beginning of a value, or of a longer one than they are.

        >>> hidden.begun(b"sent t0k3"), hidden.begun(b"sent t0")
        (4, 0)
        """
        start = len(data) - self._longest_begun(data)
        if start == len(data) or self._bytes is None:
            return 0
        for match in self._bytes.finditer(data):
            if match.start() >= start:
                break
            if match.end() > start:
                # It is no beginning what belongs to a value that is there as a whole.
                start = len(data) - self._longest_begun(data[match.end() :])
        return len(data) - start

    def begun_in_text(self, text: str) -> int:
        """How many characters at the end of ``text`` may be the beginning of a value, be it one character: of a text
        that comes in pieces.

        >>> hidden.begun_in_text("sent t0")
        2
        """
        data = text.encode("utf-8", "replace")
        begun = max((_overlap(data, form, 1) for form in self._forms), default=0)
        return len(data[len(data) - begun :].decode("utf-8", "replace"))

    def _longest_begun(self, data: bytes) -> int:
        return max((_overlap(data, form) for form in self._forms), default=0)

    def _ended(self, data: bytes) -> int:
        """How many bytes at the beginning of ``data`` may be the end of a value."""
        end = max((_overlap(form, data) for form in self._forms), default=0)
        if end and self._bytes is not None:
            for match in self._bytes.finditer(data):
                if match.start() >= end:
                    break
                end = max(end, match.end())
        return end


def _overlap(text: bytes, following: bytes, shortest: int = _SHORTEST_PART) -> int:
    """How many bytes at the end of ``text`` are the beginning of ``following``, and not all of it; 0 below
    ``shortest``."""
    if len(following) <= shortest:
        return 0
    head = following[:shortest]
    start = text.find(head, max(0, len(text) - len(following) + 1))
    while start >= 0:
        if following.startswith(text[start:]):
            return len(text) - start
        start = text.find(head, start + 1)
    return 0


def _forms(value: str) -> Iterator[str]:
    if len(value) < _SHORTEST_VALUE:
        return
    # Outputs are often stripped, and a value may end with blanks that no program repeats.
    for whole in (value, value.strip()):
        if len(whole) >= _SHORTEST_VALUE:
            yield whole
            # A terminal writes a carriage return before each line feed, also where there is one already.
            plain = whole.replace("\r\n", "\n")
            yield from (plain.replace("\n", line_end) for line_end in _LINE_ENDS)
    for ascii_only in (True, False):
        yield json.dumps(value, ensure_ascii=ascii_only)[1:-1]
    for line in value.splitlines():
        if len(line.strip()) >= _SHORTEST_LINE:
            yield line.strip()
