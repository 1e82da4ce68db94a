"""Characters that a reader does not see (format rule S06).

A skill's text is read by people before it is trusted and by models afterwards; what only the latter
would notice is reported, and taken out of what goes into a prompt.
"""

from __future__ import annotations

import re

__all__ = ["clean", "clean_line", "hidden_characters", "is_invisible", "is_utf16", "not_text"]

# Default_Ignorable_Code_Point of Unicode 14 (DerivedCoreProperties.txt): soft hyphen, joiners, fillers, bidi controls,
# tags and more. Left out are the joiners U+200C and U+200D and the selectors U+180B to U+180D, U+180F and U+FE00 to
# U+FE0F: letters of many scripts and emoji are written with them. U+2800, a blank of Braille, is no such character and
# shows nothing either.
_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_IS_INVISIBLE = re.compile(f"[{_INVISIBLE}]")
# Also interlinear annotation, controls except tab and line ends, lone surrogates. The joiners count only beside ASCII,
# where they join nothing.
_HIDDEN = re.compile(
    f"[{_INVISIBLE}\ufff9-\ufffb\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]"
    "|(?<=[\\x00-\\x7f])[\u200c\u200d]|[\u200c\u200d](?=[\\x00-\\x7f])"
)


def is_invisible(char: str) -> bool:
    """Whether ``char`` shows nothing wherever it stands: it has Unicode's property Default_Ignorable_Code_Point, but is
    no part of ordinary letters and emoji, or it is the blank of Braille.

    >>> is_invisible("\\u3164"), is_invisible("\\u200d"), is_invisible(" ")
    (True, False, False)
    """
    return _IS_INVISIBLE.match(char) is not None


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


def is_utf16(data: bytes) -> bool:
    """Return True if the beginning of a file is text in UTF-16, with or without a byte order mark.

    >>> is_utf16("---\\n".encode("utf-16")), is_utf16(b"---\\n")
    (True, False)
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True
    start = data[:64]
    return len(start) >= 4 and any(not any(start[at::2]) and all(start[1 - at :: 2]) for at in (0, 1))


def not_text(path: str, data: bytes, size: int) -> str:
    """Return why a model cannot read a file with NUL bytes, and what to do."""
    if is_utf16(data):
        return f"{path!r} is in UTF-16 and has {size} bytes; convert it with iconv -f UTF-16 -t UTF-8 in a command"
    return f"{path!r} is a binary file of {size} bytes; use it through a command"
