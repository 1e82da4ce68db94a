"""The skills on offer in a request, read off its system text."""

from __future__ import annotations

import html
import re

__all__ = ["MENU_TAG", "offered_skills"]

MENU_TAG = "<available_skills>"

_BLOCK = re.compile(r"^<available_skills>$(.*?)^</available_skills>$", re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"^<skill><name>(.*?)</name><description>(.*?)</description></skill>$", re.MULTILINE)


def offered_skills(system: str) -> list[tuple[str, str]]:
    """Names and descriptions of the menu in ``system``; empty without one."""
    return [
        (html.unescape(name), html.unescape(description))
        for block in _BLOCK.findall(system)
        for name, description in _ENTRY.findall(block)
    ]
