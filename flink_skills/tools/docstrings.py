"""What a function's docstring says of it and of its arguments (first paragraph; Google-style ``Args:``)."""

from __future__ import annotations

import inspect
import re

__all__ = ["parse_docstring"]

_SECTION = re.compile(r"(Args|Arguments|Parameters|Returns?|Raises|Yields?|Examples?|Notes?):\s*")
_ARGUMENT = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


def parse_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """The first paragraph on one line, and the description of each argument.

    >>> parse_docstring('Add.\\n\\nArgs:\\n    a: One\\n        number.\\n    b (int): Another.')
    ('Add.', {'a': 'One number.', 'b': 'Another.'})
    """
    if not text:
        return "", {}
    lines = inspect.cleandoc(text).splitlines()
    summary: list[str] = []
    for line in lines:
        if not line.strip() or _SECTION.fullmatch(line):
            break
        summary.append(line.strip())
    return " ".join(summary), _arguments(lines)


def _arguments(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    inside, indent, current = False, None, ""
    for line in lines:
        section = _SECTION.fullmatch(line)
        if section:
            inside, indent, current = section.group(1) in ("Args", "Arguments", "Parameters"), None, ""
            continue
        if not inside or not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            break  # text after the section
        indent = depth if indent is None else indent
        entry = _ARGUMENT.fullmatch(line.strip()) if depth == indent else None
        if entry:
            current = entry.group(1)
            found[current] = entry.group(2)
        elif current:
            found[current] = f"{found[current]} {line.strip()}".strip()
    return found
