"""The text of an answer that is being written as a JSON action, as far as it is there."""

from __future__ import annotations

import json
import re

__all__ = ["AnswerText"]

_BEGINNING = re.compile(
    r'\s*\{\s*(?:"next"\s*:\s*\{\s*)?"action"\s*:\s*"answer"\s*,\s*"arguments"\s*:\s*\{\s*"content"\s*:\s*"'
)
# Where this much has come and it does not begin as an answer, it is none.
_MAX_BEGINNING = 400
# An escape that may not be whole yet, at the end of a text: \, \u12, or the first half of a pair.
_OPEN_ESCAPE = re.compile(
    r"(?<!\\)(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3})?|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?)\Z"
)
_END = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


class AnswerText:
    r"""Finds the answer in the pieces of ``{"next": {"action": "answer", "arguments": {"content": "…"}}}``.

    Only where the fields come in this order, as models write them that are held to the schema. Of anything else, calls
    of tools among them, nothing is found. Each piece is looked at once.

    >>> answer = AnswerText()
    >>> answer.feed('{"action": "answer", "arguments": {"content": "one\\'), answer.feed('n'), answer.feed('two"}}')
    ('one', '\n', 'two')
    """

    def __init__(self) -> None:
        self._waiting = ""
        self._begun = False
        self._over = False

    def feed(self, piece: str) -> str:
        """What ``piece`` adds to the answer's text."""
        if self._over:
            return ""
        self._waiting += piece
        if not self._begun:
            found = _BEGINNING.match(self._waiting)
            if found is None:
                self._over = len(self._waiting) > _MAX_BEGINNING
                return ""
            self._begun = True
            self._waiting = self._waiting[found.end() :]
        return self._decoded()

    def _decoded(self) -> str:
        end = _END.match(self._waiting)
        if end is not None:
            written, self._waiting, self._over = end[0][:-1], "", True
        else:
            open_ = _OPEN_ESCAPE.search(self._waiting)
            cut = open_.start(1) if open_ else len(self._waiting)
            written, self._waiting = self._waiting[:cut], self._waiting[cut:]
        try:
            return str(json.loads(f'"{written}"', strict=False))
        except ValueError:  # a server that does not hold the model to JSON: its end tells what is wrong
            self._over = True
            return ""
