"""The ``Tools:`` section of a skill's body."""

from __future__ import annotations

import re

__all__ = ["tool_lines", "tools_section", "unread_tools"]

_NAME = r"[^\s`'\":,]+(?::[^\s`'\":,]+)*"
# What may follow a name: a comment, or what the tool is for.
_REST = r"(?:[ \t]*[:,(#]|[ \t]+[-\u2013\u2014]).*"
_TOOL = re.compile(rf"-[ \t]+(?P<quote>[`'\"]?)(?P<name>{_NAME})(?P=quote)(?:{_REST})?")
_COMMENTED_TOOL = re.compile(r"#+[ \t]*-")
# Headings and items that other formats use for the section.
_HEADING = re.compile(r"(?:#{1,6}[ \t]+)?(?:\*\*|__)?(?:available |bundled )?tools:?(?:\*\*|__)?:?", re.IGNORECASE)
_UNREAD = re.compile(rf"(?:[-*+]|\d+\.)[ \t]+(?P<quote>(?:\*\*)?[`'\"]?)(?P<name>[A-Za-z_]\w*)\W{{0,3}}(?:{_REST})?")
_SUBHEADING = re.compile(r"##+[ \t]")


def tools_section(body: str) -> tuple[str, ...]:
    """The names in the body's ``Tools:`` section, in their order, each once; none where there is no section.

    A section begins with a line ``Tools:`` (in any case), has a line ``- name`` for each tool and ends at the
    first line that is neither that, blank, nor a comment. A line that begins with ``#`` is a comment; ``## …``
    is a heading, and so is ``# …`` after a blank line when no ``-`` follows the ``#``.

    >>> tools_section("Tools:\\n- get_weather\\n# - get_history\\n- find_city\\n\\nOverview\\n- not a tool")
    ('get_weather', 'find_city')
    """
    return tuple(tool_lines(body))


def tool_lines(body: str) -> dict[str, int]:
    """The names of :func:`tools_section`, each with the number of its first line in ``body``, from 0.

    >>> tool_lines("Tools:\\n- get_weather")
    {'get_weather': 1}
    """
    lines = iter(enumerate(body.split("\n")))
    if not any(line.lstrip()[:6].lower() == "tools:" for _, line in lines):
        return {}
    names: dict[str, int] = {}
    after_blank = False
    for number, line in ((number, line.strip()) for number, line in lines):
        if not line:
            after_blank = True
            continue
        if line.startswith("#"):
            if not _COMMENTED_TOOL.match(line) and (after_blank or _SUBHEADING.match(line)):
                break
        elif tool := _TOOL.fullmatch(line):
            names.setdefault(tool["name"], number)
        else:
            break
        after_blank = False
    return names


def unread_tools(body: str) -> tuple[int, tuple[str, ...]] | None:
    """Return the line and the names of a list of tools that :func:`tools_section` does not read.

    It is below a heading, such as ``## Tools``, or has items with ``*``. Return None if there is none.

    >>> unread_tools("# A\\n## Tools\\n- get_weather")
    (1, ('get_weather',))
    """
    read = tool_lines(body)
    lines = [line.strip() for line in body.split("\n")]
    for number, line in enumerate(lines):
        if not _HEADING.fullmatch(line):
            continue
        names = []
        for item in lines[number + 1 :]:
            if not item:
                continue
            match = _UNREAD.fullmatch(item)
            if match is None:
                break
            names.append(match["name"])
        if unread := tuple(name for name in names if name not in read):
            return number, unread
    return None
