"""Characters that a reader does not see (format rule S06).

A skill's text is read by people before it is trusted and by models afterwards; what only the latter
would notice is reported, and taken out of what goes into a prompt.
"""

from __future__ import annotations

import re

__all__ = ["clean", "clean_line", "hidden_characters"]

# Tag block, variation selector supplement, bidi controls, zero width, interlinear annotation, controls except
# tab and line ends, lone surrogates. ZERO WIDTH (NON-)JOINER belongs to many scripts and to emoji: it counts
# only beside ASCII, where it joins nothing.
_HIDDEN = re.compile(
    "[\U000e0000-\U000e007f\U000e0100-\U000e01ef\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064"
    "\u2066-\u206f\ufeff\ufff9-\ufffb\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]"
    "|(?<=[\\x00-\\x7f])[\u200c\u200d]|[\u200c\u200d](?=[\\x00-\\x7f])"
)


def hidden_characters(text: str) -> list[str]:
    """The different hidden characters of ``text`` as ``U+…``, sorted.

    >>> hidden_characters("plain")
    []
    """
    if text.isascii() and text.isprintable():
        return []
    return sorted({f"U+{ord(char):04X}" for char in _HIDDEN.findall(text)})


def clean(text: str) -> str:
    """``text`` without hidden characters; tabs and line ends stay, line ends become ``\\n``."""
    if text.isascii() and text.isprintable():
        return text
    return _HIDDEN.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def clean_line(text: str) -> str:
    """``text`` as one line: hidden characters out, every run of white space one space.

    >>> clean_line(" two\\n lines ")
    'two lines'
    """
    # White space first: some of it (vertical tab, NEL) is a control character too and must not glue words.
    return " ".join(_HIDDEN.sub("", " ".join(text.split())).split())
