"""The bytes of a running process as the text that a model may see, however they come in pieces."""

from __future__ import annotations

import codecs
import re

from flink_skills.tools.commands.hidden import HIDDEN, HiddenValues

__all__ = ["ShownText"]

_HIDDEN = HIDDEN.encode()
# HiddenValues takes 3 bytes and more for the beginning of a value.
_UNTOLD_BYTES = 2
# ECMA-48: CSI sequences, strings (titles, links) with their terminator, and short ones.
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"
    r"|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|[ -/]+[0-~]"
    r"|[0-OQ-WYZ\\`a-~])"
)
_MAX_ESCAPE = 1_024
_LINE_END = re.compile(r"\r+\n|\r+")
# A tab, a line feed and what is handled above apart.
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]")


class ShownText:
    """Makes text of one stream of a process: without hidden values, escape sequences and control characters.

    What may be the beginning of a hidden value, a character, a sequence or a line end is kept back until it is known.
    A carriage return begins a new line.

    >>> hidden = HiddenValues()
    >>> hidden.add("skills.env.report.TOKEN", "t0k3n-1")
    >>> text = ShownText(hidden)
    >>> text.add(b"a \\x1b[1mt0k"), text.add(b"3n-1\\x1b[0m\\r\\nt0k3"), text.end()
    ('a ', '[hidden]\\n', '[hidden]')
    """

    def __init__(self, hidden: HiddenValues) -> None:
        # As they come, and again as they are shown: colours may be in the middle of a value.
        self._values, self._shown_values = _WithoutValues(hidden), _WithoutValues(hidden)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._shown_decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._open = ""

    def add(self, data: bytes) -> str:
        """What can be shown now that ``data`` has come."""
        text = self._clean(self._decoder.decode(self._values.add(data)), ended=False)
        return self._shown_decoder.decode(self._shown_values.add(text.encode()))

    def end(self) -> str:
        """What was kept back, when nothing more comes."""
        text = self._clean(self._decoder.decode(self._values.end(), final=True), ended=True)
        data = self._shown_values.add(text.encode()) + self._shown_values.end()
        return self._shown_decoder.decode(data, final=True)

    def _clean(self, text: str, *, ended: bool) -> str:
        text = self._open + text
        self._open = ""
        if "\x1b" in text:
            text = self._without_sequences(text, ended)
        elif text.endswith("\r") and not ended:
            text, self._open = text[:-1], "\r"
        if "\r" in text:
            text = _LINE_END.sub("\n", text)
        return _CONTROLS.sub("", text)

    def _without_sequences(self, text: str, ended: bool) -> str:
        text = _ESCAPE.sub("", text)
        begun = text.find("\x1b")
        if begun < 0:
            if text.endswith("\r") and not ended:
                text, self._open = text[:-1], "\r"
            return text
        if not ended and len(text) - begun <= _MAX_ESCAPE:
            # With a carriage return before it: what follows the sequence may be its line feed.
            while begun > 0 and text[begun - 1] == "\r":
                begun -= 1
            text, self._open = text[:begun], text[begun:]
        return text if "\x1b" not in text else text.replace("\x1b", "")


class _WithoutValues:
    """A stream of bytes without hidden values, also where a piece of it ends within one."""

    def __init__(self, hidden: HiddenValues) -> None:
        self._hidden = hidden
        # The last bytes as they came; ``_given`` of them were given away, as they are or hidden.
        self._context = b""
        self._given = 0

    def add(self, data: bytes) -> bytes:
        text = self._context + data
        known = len(text) - self._hidden.begun(text)
        out = self._without_given(text, self._hidden.in_bytes(text[:known]))
        start = max(0, known - _UNTOLD_BYTES)
        self._given = max(self._given, known) - start
        self._context = text[start:]
        return out

    def end(self) -> bytes:
        """What was kept back; a part of a value is hidden as well."""
        held = len(self._context) - self._given
        self._context, self._given = b"", 0
        return _HIDDEN if held else b""

    def _without_given(self, text: bytes, visible: bytes) -> bytes:
        given = self._given
        if visible.startswith(text[:given]):
            return visible[given:]
        # A value began in what was given away already: as few bytes of it as tell nothing.
        for size in range(given - 1, -1, -1):
            if visible.startswith(text[:size] + _HIDDEN):
                return visible[size:]
        return b""
