"""Characters that a reader does not see (format rule S06).

A skill's text is read by people before it is trusted and by models afterwards; what only the latter
would notice is reported, and taken out of what goes into a prompt.
"""

from __future__ import annotations

import re

from flink_skills.texts import INVISIBLE

# Also interlinear annotation, controls except tab and line ends, lone surrogates. The joiners count only beside ASCII,
# where they join nothing.
_HIDDEN = re.compile(
    f"[{INVISIBLE}\ufff9-\ufffb\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]"
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
