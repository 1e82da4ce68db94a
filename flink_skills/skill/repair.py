"""Read front matter that plain YAML refuses, as its author meant it (format.md, section 2).

Works field by field: a field that is valid YAML on its own is taken as it is, so that one bad field changes
no other. The rest is what people really write: ``description: Use when: asked``, text on the line of a block
mark, text that begins with a character that YAML reserves. Such text is put in quotes or into a block and read
as YAML again, so that a repaired value is the text of the file, to the character; nothing else is guessed.
"""

from __future__ import annotations

import re
import textwrap
from typing import NamedTuple

from flink_skills.skill.yaml_values import Entry, Node, Note, YamlProblemError, read_mapping, resolve

# A quote inside: an apostrophe between letters, or one that opens a word or closes one.
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")
_OPENS = re.compile(r"(?:^|(?<=[\s(\[{/,=:\u2014-]))(?P<quote>['\"])(?=\S)")
_WITHIN = re.compile(r"(?<=\w)['\"](?=\w)")
_FIELD = re.compile(r"([^\s:#'\"\[\]{}&*!|>%@`,-][^:#'\"]*):(?:[ \t]+(.*))?")
# ``name:text``: no field for YAML, and one for everybody else. Only names that cannot be anything else.
_TIGHT_FIELD = re.compile(r"(name|description|license|compatibility|allowed-tools|version|author):([^\s:/].*)")
_BLOCK_MARK = re.compile(r"[|>](?:[+-]?[1-9]?|[1-9][+-])[ \t]*(?:#.*)?")
_MARKED_TEXT = re.compile(r"([|>])([+-]?)[ \t]+(\S.*)")
# What begins like a collection, an alias, an anchor or a tag, but goes on as text.
_TEXT_START = re.compile(
    r"\[[^\[\]]*\]\s*[^\s#,]|\{\{[^{}]*\}\}|\{[^{}]*\}\s*[^\s#,]|\*\*\S|\*[^\s*]+\*|\*(?:\s|$)|&[\s&]|![\s!]|[|>][^\s+\-0-9]"
)

# A list of plain words, one of which begins with a character that YAML reserves.
_WORD_LIST = re.compile(r"\[([^\[\]{}\"'#]*)\]")
#: Fields that are text whatever their value looks like.
TEXT_FIELDS = frozenset({"name", "description", "license", "compatibility"})
_AS_TEXT = TEXT_FIELDS | {"allowed-tools"}
_BELOW = "begin it on the next line, indented"
_TOOLS_FIX = "write one text with names separated by spaces"
# Structure, or what a merge left behind.
_NO_TEXT = re.compile(r"[\]}{\[]|<{7}|>{7}|[-=_*~]+[ \t]*$")
# One character as JSON writes it and YAML does not read it.
_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def text_in_quotes(first: str, rest: list[str]) -> str | None:
    """Return the intended text if a value begins with a quote and is not a quoted YAML scalar.

    If the quotes at both ends belong together, it is the text between them, otherwise the whole value. Return None if
    the first quote is never closed.

    >>> text_in_quotes("'It's here'", []), text_in_quotes('"A" and "B"', []), text_in_quotes(r'"C:\\\\dir"', [])
    ("It's here", '"A" and "B"', 'C:\\\\\\\\dir')
    """
    text = _folded([first, *rest])
    quote = text[0]
    inner = text[1:-1]
    if len(text) > 2 and text.endswith(quote) and not inner.endswith("\\"):
        if _balanced(inner, quote):
            return inner.replace('\\"', '"') if quote == '"' else inner.replace("''", "'")
        return text
    return text if quote in text[1:] else None


def _balanced(inner: str, quote: str) -> bool:
    """Return True if the quotes inside come in pairs that open and then close."""
    inner = inner.replace('\\"', "") if quote == '"' else _APOSTROPHE.sub("", inner.replace("''", ""))
    is_open = False
    for match in re.finditer(re.escape(quote), inner):
        # Between two letters, as where words are not spaced, a quote is what its turn makes it.
        opens = not is_open if _WITHIN.match(inner, match.start()) else bool(_OPENS.match(inner, match.start()))
        if opens == is_open:
            return quote == "'" and not opens  # a possessive, as in: the users' files
        is_open = not is_open
    return not is_open


def _folded(lines: list[str]) -> str:
    """Join lines as YAML folds text: a line end is a space, blank lines are line ends."""
    text = ""
    ends = 0
    for line in map(str.strip, lines):
        if not line:
            ends += 1
            continue
        text += ("\n" * ends if ends else " ") + line if text else line
        ends = 0
    return text


class _Chunk(NamedTuple):
    """A field: its name, its lines, and the number of the first."""

    name: str
    lines: list[str]
    number: int


def repair(text: str, max_depth: int, note: Note) -> dict[str, Entry] | None:
    """Return the fields in a block that is not valid YAML. Return None if it cannot be understood.

    ``note`` is called for each repaired field. Raises :class:`YamlProblemError` for anchors and depth, which are
    rejected and not repaired.
    """
    chunks = _chunks(_from_margin(text).split("\n"), note)
    if chunks is None:
        return None
    fields: dict[str, Entry] = {}
    for chunk in chunks:
        value = _value(chunk, max_depth, note)
        if value is None:
            return None
        if chunk.name in fields:
            note("L07", f"the field {chunk.name!r} is duplicated", chunk.number)
        fields[chunk.name] = Entry(value, chunk.number)
    return fields


def _from_margin(text: str) -> str:
    """The block without the indentation that its fields share."""
    first = next((line for line in text.split("\n") if line.strip() and not line.startswith("#")), "")
    return textwrap.dedent(text) if first.startswith(" ") else text


def _chunks(lines: list[str], note: Note) -> list[_Chunk] | None:
    """Split into fields; None when a line belongs to no field."""
    chunks: list[_Chunk] = []
    for number, line in enumerate(lines):
        if line.startswith("#"):
            continue  # a comment, wherever a field can begin
        if line.rstrip() == "...":
            note("L14", "the line '...' ends the YAML before the front matter ends", number)
            continue
        if not line.strip() or line[0] in " \t" or line.startswith("- ") or line == "-":
            if chunks:
                chunks[-1].lines.append(line)
            elif line.strip():
                return None
            continue
        if field := _FIELD.fullmatch(line) or _TIGHT_FIELD.fullmatch(line):
            chunks.append(_Chunk(field.group(1).rstrip(), [line], number))
        elif chunks and _goes_on(chunks[-1], line):
            # For YAML no part of the field, for a reader nothing else.
            note("L14", f"the line belongs to {chunks[-1].name!r} but is not indented", number)
            chunks[-1].lines.append("  " + line)
        else:
            return None
    return chunks


def _goes_on(chunk: _Chunk, line: str) -> bool:
    """Return True if ``line`` can only continue the text in ``chunk``, without a blank line between them."""
    field = _FIELD.fullmatch(chunk.lines[0])
    return (
        chunk.name not in ("name", "metadata")
        and field is not None
        and bool(field.group(2))
        and bool(chunk.lines[-1].strip())
        and not _NO_TEXT.match(line)
    )


def _value(chunk: _Chunk, max_depth: int, note: Note) -> Node | None:
    notes: list[tuple[str, str, int, str]] = []
    if (paired := [_PAIR.sub(_character, line) for line in chunk.lines]) != chunk.lines:
        note("L06", f"{chunk.name}: a character written as two escapes", chunk.number)
        chunk = _Chunk(chunk.name, paired, chunk.number)
    try:
        alone = read_mapping("\n".join(chunk.lines), max_depth, lambda c, m, n, f="": notes.append((c, m, n, f)))
    except YamlProblemError as problem:
        if problem.refused:
            raise YamlProblemError(str(problem), chunk.number + problem.line, refused=True) from None
    else:
        if chunk.name in alone:
            for code, message, line, fix in notes:
                note(code, message, chunk.number + line, fix)
            return alone[chunk.name].value
    return _literal(chunk, max_depth, note)


def _character(pair: re.Match[str]) -> str:
    return chr(0x10000 + ((int(pair.group(1), 16) - 0xD800) << 10) + int(pair.group(2), 16) - 0xDC00)


def _literal(chunk: _Chunk, max_depth: int, note: Note) -> Node | None:
    name, lines, number = chunk
    match = _FIELD.fullmatch(lines[0])
    tight = None if match else _TIGHT_FIELD.fullmatch(lines[0])
    found = match or tight
    first = (found[2] or "").strip() if found else ""
    rest = lines[1:]
    tools_fix = _TOOLS_FIX if name == "allowed-tools" else ""
    value: Node | None
    if not first or first.startswith("#"):
        nested = None if name in TEXT_FIELDS else _nested(chunk, max_depth, note)
        return _as_text(name, "", rest, number, note) if nested is None and name in _AS_TEXT else nested
    if name == "metadata" and _FIELD.fullmatch(first) and max_depth > 1:
        lines = [f"{name}:", "  " + first, *("  " + line for line in _dedented(rest))]
        value = _nested(_Chunk(name, lines, number - 1), max_depth, note)
        if value is not None:
            note("L06", f"{name}: the map begins on the line of the field", number, _BELOW)
            return value
    if first.startswith("- ") and name not in _AS_TEXT:
        value = _items(name, [first, *_dedented(rest)], max_depth, lambda c, m, n, f="": note(c, m, number + n, f))
        if value is not None:
            note("L06", f"{name}: the list begins on the line of the field", number, _BELOW)
            return value
    if tight:
        note("L06", f"{name}: there is no space after the colon", number)
        value = _value(_Chunk(name, [f"{name}: {first}", *rest], number), max_depth, note)
    elif _BLOCK_MARK.fullmatch(first):
        # The indentation of a block may not fit YAML's rules; the lines are still the text.
        note("L06", f"{name}: the block is not indented as YAML wants it", number)
        value = _block(first[0] + "".join(c for c in first[1:3] if c in "+-"), rest)
    elif marked := _MARKED_TEXT.fullmatch(first):
        note("L05", f"{name}: text follows the block marker {marked.group(1)!r}", number)
        value = _block(marked.group(1) + marked.group(2), [marked.group(3), *_dedented(rest)])
    elif first[0] in "\"'":
        value = text_in_quotes(first, rest)
        if value is not None:
            note("L06", f"{name}: the quotes do not fit YAML", number, tools_fix)
    elif not rest and (words := _WORD_LIST.fullmatch(first)):
        note("L06", f"{name}: a word of the list begins with a reserved character", number)
        value = [resolve(word.strip()) for word in words.group(1).split(",") if word.strip()]
    elif first[0] in "[{&*!|>" and not _TEXT_START.match(first):
        value = None if name in TEXT_FIELDS else _closed(chunk, first, max_depth, note)
    else:
        if ": " in first or first.endswith(":") or any(": " in line for line in rest):
            note("L04", f"{name}: an unquoted value has ': ' in it", number, tools_fix)
        else:
            note("L06", f"{name}: the value begins like something else than text", number, tools_fix)
        value = folded_text(first, rest)
    return _as_text(name, first, rest, number, note) if value is None and name in _AS_TEXT else value


def _as_text(name: str, first: str, rest: list[str], number: int, note: Note) -> str | None:
    """Return the lines of a value as text, because nothing else fits."""
    if name == "allowed-tools":
        note("L06", f"{name}: the value is neither text nor a list for YAML", number, _TOOLS_FIX)
        names = (re.sub("[\"']", "", line).strip().lstrip("*-[{ ").rstrip("]} ") for line in (first, *rest))
        return " ".join(names).strip()
    lines = [line for line in (first, *rest) if line.strip()]
    if not lines:
        return None
    fix = "add the missing quote at the end of the value" if lines[0].strip()[0] in "\"'" else ""
    note("L06", f"{name}: the value is not text for YAML; its lines were read as text", number, fix)
    return folded_text(lines[0].strip(), lines[1:])


def _closed(chunk: _Chunk, first: str, max_depth: int, note: Note) -> Node | None:
    """Return a flow collection with the brackets added that are missing at its end."""
    ends: list[str] = []
    quote = ""
    for char in "\n".join((first, *chunk.lines[1:])):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "[{":
            ends.append("]" if char == "[" else "}")
        elif char in "]}" and (not ends or ends.pop() != char):
            return None
    if quote or not ends:
        return None
    missing = "".join(reversed(ends))
    text = "\n".join((f"x: {first}", *chunk.lines[1:])) + missing
    try:
        value = read_mapping(text, max_depth, lambda code, message, line, fix="": None)["x"].value
    except YamlProblemError:
        return None
    opened = "brace" if missing[-1] == "}" else "bracket"
    note("L06", f"{chunk.name}: the {opened} is never closed", chunk.number, f"add the missing {missing!r}")
    return value


def _nested(chunk: _Chunk, max_depth: int, note: Note) -> Node | None:
    """The value below a bare ``key:`` line, one level less deep: a mapping or list whose parts are repaired."""
    lines = textwrap.dedent("\n".join(_without_tabs(line) for line in chunk.lines[1:])).split("\n")
    if max_depth <= 1 or not any(lines):
        return None
    above = chunk.number + 1

    def note_below(code: str, message: str, line: int, fix: str = "", /) -> None:
        note(code, message, above + line, fix)

    if next(filter(None, lines)).startswith("- "):
        return _items(chunk.name, lines, max_depth - 1, note_below)
    try:
        found = repair("\n".join(lines), max_depth - 1, note_below)
    except YamlProblemError as problem:
        raise YamlProblemError(str(problem), above + problem.line, refused=problem.refused, fix=problem.fix) from None
    return None if found is None else {key: entry.value for key, entry in found.items()}


def _items(name: str, lines: list[str], max_depth: int, note: Note) -> Node | None:
    """A list, each item read like the value of a field."""

    def note_item(code: str, message: str, line: int, fix: str = "", /) -> None:
        note(code, message.replace("x:", f"{name}:", 1), line, fix)

    items: list[Node] = []
    start = 0
    for number in range(1, len(lines) + 1):
        if number < len(lines) and not lines[number].startswith("- "):
            continue
        item = ["x: " + lines[start][2:].strip(), *lines[start + 1 : number]]
        value = _value(_Chunk("x", item, start), max_depth, note_item)
        if value is None or not lines[start].startswith("- "):
            return None
        items.append(value)
        start = number
    return items


def _without_tabs(line: str) -> str:
    """``line`` with two spaces for each tab of its indentation."""
    text = line.lstrip(" \t")
    return line[: len(line) - len(text)].replace("\t", "  ") + text


def _dedented(lines: list[str]) -> list[str]:
    return textwrap.dedent("\n".join(map(_without_tabs, lines))).split("\n") if lines else []


def _block(mark: str, lines: list[str]) -> str | None:
    """The lines as the block scalar that ``mark`` begins."""
    indented = "\n".join("  " + line.rstrip() if line.strip() else "" for line in _dedented(lines))
    return _text_of(f"x: {mark[0]}2{mark[1:]}\n{indented}")


def folded_text(first: str, rest: list[str]) -> str | None:
    """Return the lines as the plain text that they look like, folded by YAML."""
    lines = [first, *("  " + line.strip() for line in rest)]
    return _text_of("x: '" + "\n".join(lines).replace("'", "''").rstrip() + "'")


def _text_of(text: str) -> str | None:
    try:
        value = read_mapping(text, 2, lambda code, message, line, fix="": None)["x"].value
    except YamlProblemError:
        return None
    return value if isinstance(value, str) else None
