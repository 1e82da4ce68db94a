"""The plainest front matter, read without a YAML parser.

Nearly every front matter is ``key: text`` lines with perhaps one level of mapping or list below. Reading those
takes a quarter of the time that events of libyaml take, and a catalog reads thousands. Whatever is not plainly
one of these forms is left to YAML; where this reader answers, YAML gives the same (the tests compare them).
"""

from __future__ import annotations

import re

from flink_skills.skill.yaml_values import Entry, Node, Untyped, resolve

__all__ = ["read_plain_fields"]

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")
_USUAL_KEYS = frozenset({"name", "description", "license", "compatibility", "metadata", "allowed-tools", "version"})
_PLAIN_START = frozenset("(/._$")
_EMPTY = Untyped("", None)


def read_plain_fields(text: str) -> dict[str, Entry] | None:
    """The fields of a block that consists of plain lines; None for every other text."""
    lines = text.split("\n")
    # Not printable: controls, and what some readers of YAML take for a line end or a mark.
    if not "".join(lines).isprintable():
        return None
    fields: dict[str, Entry] = {}
    number, count = 0, len(lines)
    while number < count:
        line = lines[number]
        if not line or line[0] == "#":
            number += 1
            continue
        key, colon, rest = line.partition(": ")
        value: Node | None
        first = number
        number += 1
        if colon:
            value = _scalar(rest)
        elif line[-1] == ":":
            key = line[:-1]
            end = number
            while end < count and lines[end][:1] in (" ", "-"):
                end += 1
            value = _below(lines[number:end]) if end > number else _EMPTY
            number = end
        else:
            return None
        if value is None or key in fields or not (key in _USUAL_KEYS or _KEY.fullmatch(key)):
            return None
        fields[key] = Entry(value, first)
    return fields


def _scalar(text: str) -> str | Untyped | None:
    text = text.strip(" ")
    if not text:
        return None
    first = text[0]
    if first.isalnum() or first in _PLAIN_START:
        if ": " in text or " #" in text or text[-1] == ":":
            return None
        return resolve(text)
    if first == '"':
        inner = text[1:-1]
        return inner if len(text) > 1 and text[-1] == '"' and '"' not in inner and "\\" not in inner else None
    if first == "'":
        inner = text[1:-1]
        return inner if len(text) > 1 and text[-1] == "'" and "'" not in inner else None
    return None


def _below(lines: list[str]) -> Node | None:
    """A list or mapping of scalars, each on a line of its own and all with the same indentation."""
    first = lines[0]
    indent = len(first) - len(first.lstrip(" "))
    is_list = first[indent : indent + 2] == "- "
    if not is_list and not indent:
        return None
    prefix = first[: indent + 2] if is_list else first[:indent]
    start = len(prefix)
    items: list[Node] = []
    mapping: dict[str, Node] = {}
    for line in lines:
        if not line.startswith(prefix):
            return None
        if is_list:
            item = _scalar(line[start:])
            if item is None:
                return None
            items.append(item)
            continue
        key, colon, rest = line[start:].partition(": ")
        value = _scalar(rest) if colon else None
        if value is None or key in mapping or not _KEY.fullmatch(key):
            return None
        mapping[key] = value
    return items if is_list else mapping
