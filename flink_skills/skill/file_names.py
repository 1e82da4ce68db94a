"""Names of files that mean the same on each system and to each reader."""

from __future__ import annotations

import re
import unicodedata

from flink_skills.skill.text import hidden_characters

__all__ = ["MAX_NAME_BYTES", "comparison_key", "name_problem"]

MAX_NAME_BYTES = 255
# Windows opens a device for these, with any extension.
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9\u00b9\u00b2\u00b3])[ ]*(\..*)?", re.IGNORECASE)
_CONTROL = ("Cc", "Cs", "Zl", "Zp")


def name_problem(name: str, *, portable: bool = True) -> str:
    """Return why ``name``, one part of a path, cannot be the name of a file. Return "" if it can.

    Args:
        name: The part, without ``/``.
        portable: False for a name that is shown, and is not made into a file of that name.

    >>> name_problem("a.")
    'the name ends with a dot or a space, which some systems omit'
    >>> name_problem("report.csv")
    ''
    """
    if any(unicodedata.category(char) in _CONTROL for char in name):
        return "the name has control characters or is not text"
    if hidden := hidden_characters(name):
        return f"the name has hidden characters or characters that change the direction of text ({', '.join(hidden)})"
    if len(name.encode()) > MAX_NAME_BYTES:
        return f"the name has more than {MAX_NAME_BYTES} bytes in one part"
    if portable and name.endswith((".", " ")):
        return "the name ends with a dot or a space, which some systems omit"
    if portable and _DEVICE.fullmatch(name):
        return "the name is a device on some systems"
    return ""


def comparison_key(path: str) -> str:
    """Return what is equal for two paths that some file system takes for one: in another case or Unicode form.

    >>> comparison_key("Caf\\u00e9") == comparison_key("cafe\\u0301")
    True
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())
