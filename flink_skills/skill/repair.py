"""Read front matter that plain YAML refuses, as its author meant it (format.md, section 2).

Works field by field: a field that is valid YAML on its own is taken as it is, so that one bad field changes
no other. The rest is what people really write: ``description: Use when: asked``, text on the line of a block
mark, text that begins with a character that YAML reserves. A repaired value is the text of the file, to the
character; nothing else is guessed.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable

from flink_skills.skill.yaml_values import Entry, Node, YamlProblemError, read_mapping

__all__ = ["repair"]

Note = Callable[[str, str, int], None]

_FIELD = re.compile(r"([^\s:#'\"\[\]{}&*!|>%@`,-][^:#'\"]*):(?:[ \t]+(.*))?")
_BLOCK_MARK = re.compile(r"[|>](?:[+-]?[1-9]?|[1-9][+-])[ \t]*(?:#.*)?")
_MARKED_TEXT = re.compile(r"([|>])[+-]?[ \t]+(\S.*)")
# A first character of text that YAML reserves: of these, only whole quotes or brackets have text after them.
_RESERVED_START = re.compile(r"[@`%,]|\"[^\"]*\"\s*[^\s\"#]|'[^']*'\s*[^\s'#]|\[[^\[\]]*\]\s*[^\s#]|[{]{2}[^{}]*[}]{2}")


def repair(text: str, max_depth: int, note: Note) -> dict[str, Entry] | None:
    """The fields of a block that is no YAML, or None where it cannot be understood.

    ``note(code, message, line)`` is called for each repaired field.
    """
    chunks = _chunks(text.split("\n"))
    if chunks is None:
        return None
    fields: dict[str, Entry] = {}
    for name, lines, number in chunks:
        value = _field(name, lines, number, max_depth, note)
        if value is None:
            return None
        if name in fields:
            note("L07", f"the field {name!r} is there twice", number)
        fields[name] = Entry(value, number)
    return fields


def _chunks(lines: list[str]) -> list[tuple[str, list[str], int]] | None:
    """Split into (name, lines, first line number); None when a line belongs to no field."""
    chunks: list[tuple[str, list[str], int]] = []
    for number, line in enumerate(lines):
        if not line.strip() or line[0] in " \t" or line.startswith(("- ", "#")) or line == "-":
            if chunks:
                chunks[-1][1].append(line)
            elif line.strip() and not line.startswith("#"):
                return None
            continue
        field = _FIELD.fullmatch(line)
        if field is None:
            return None
        chunks.append((field.group(1).rstrip(), [line], number))
    return chunks


def _field(name: str, lines: list[str], number: int, max_depth: int, note: Note) -> Node | None:
    heard: list[tuple[str, str, int]] = []
    try:
        alone = read_mapping("\n".join(lines), max_depth, lambda c, m, n: heard.append((c, m, n)))
    except YamlProblemError as problem:
        if problem.refused:
            return None
    else:
        if name in alone:
            for code, message, line in heard:
                note(code, message, number + line)
            return alone[name].value
    return _literal(name, lines, number, max_depth, note)


def _literal(name: str, lines: list[str], number: int, max_depth: int, note: Note) -> Node | None:
    match = _FIELD.fullmatch(lines[0])
    first = ((match.group(2) if match else None) or "").strip()
    rest = lines[1:]
    if not first or first.startswith("#"):
        return _nested(rest, number + 1, max_depth, note)
    marked = None if _BLOCK_MARK.fullmatch(first) else _MARKED_TEXT.fullmatch(first)
    if marked:
        note("L05", f"{name}: text stands on the line of the block mark {marked.group(1)!r}", number)
        return _block(marked.group(1), marked.group(2), rest)
    if _BLOCK_MARK.fullmatch(first):
        # The indentation of a block may not fit YAML's rules; the lines are still the text.
        note("L06", f"{name}: the block is not indented as YAML wants it", number)
        return _block(first[0], "", rest)
    if _RESERVED_START.match(first):
        note("L06", f"{name}: the value begins like something else than text", number)
    elif first[0] in "\"'[{&*!|>":
        return None
    else:
        note("L04", f"{name}: an unquoted value has ': ' in it", number)
    return _folded([first, *rest])


def _nested(lines: list[str], number: int, max_depth: int, note: Note) -> Node | None:
    """The value below a bare ``key:`` line: a mapping whose own fields are repaired, one level less deep."""
    inner = textwrap.dedent("\n".join(line.replace("\t", "  ") for line in lines))
    if max_depth <= 1 or not inner.strip():
        return None
    found = repair(inner, max_depth - 1, lambda code, message, line: note(code, message, number + line))
    return None if found is None else {key: entry.value for key, entry in found.items()}


def _block(mark: str, first: str, rest: list[str]) -> str:
    below = textwrap.dedent("\n".join(rest)).strip("\n").split("\n") if any(r.strip() for r in rest) else []
    lines = ([first.rstrip()] if first else []) + [line.rstrip() for line in below]
    return "\n".join(lines) if mark == "|" else _folded(lines)


def _folded(lines: list[str]) -> str:
    """Join lines as YAML folds plain text: a line end is a space, a blank line a line end."""
    paragraphs: list[list[str]] = [[]]
    for line in (line.strip() for line in lines):
        if line:
            paragraphs[-1].append(line)
        elif paragraphs[-1]:
            paragraphs.append([])
    return "\n".join(" ".join(words) for words in paragraphs if words)
