"""What the scripts that write pages share: parts of a page between marks, and writing or checking the page.

A generated part stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``; what is outside is written by hand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

__all__ = ["fill", "write_or_check"]

_PART = re.compile(r"<!-- generated: (?P<name>[\w-]+) -->\n.*?<!-- end -->\n", re.DOTALL)


def fill(page: str, parts: Mapping[str, Callable[[], str]], others: Collection[str] = ()) -> str:
    """Return ``page`` with the result of each of ``parts`` in its place. Other scripts write the places ``others``.

    Raises:
        ValueError: A place has no part, or a part has no place.
    """
    filled = set()

    def part(match: re.Match[str]) -> str:
        name = match["name"]
        if name in others:
            return match[0]
        if name not in parts:
            raise ValueError(f"there is nothing to generate for {name!r}: remove its place")
        filled.add(name)
        return f"<!-- generated: {name} -->\n\n{parts[name]()}\n\n<!-- end -->\n"

    text = _PART.sub(part, page)
    if missing := sorted(set(parts) - filled):
        raise ValueError(
            f"there is no place for {', '.join(missing)}: add '<!-- generated: NAME -->' and '<!-- end -->'"
        )
    return text


def write_or_check(page: Path, render: Callable[[str], str], arguments: list[str]) -> int:
    """Write ``page``, or with ``--check`` compare it; returns the exit code.

    ``render`` makes the new text of the old one, which is empty where there is no page yet.
    """
    if arguments not in ([], ["--check"]):
        sys.stderr.write("Arguments: none to write the page, --check to compare it\n")
        return 2
    before = page.read_text(encoding="utf-8") if page.is_file() else ""
    try:
        text = render(before)
    except ValueError as error:
        sys.stderr.write(f"{page.name}: {error}\n")
        return 1
    if arguments == ["--check"]:
        if text == before:
            return 0
        sys.stderr.write(f"{page.name} is not current: write it again with the same command without --check\n")
        return 1
    page.write_text(text, encoding="utf-8")
    return 0
