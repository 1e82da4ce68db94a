"""YAML front matter as plain values, read from parser events.

Events and not constructed objects, because then nothing is ever constructed, anchors and aliases are seen
and refused, the depth is limited, and every scalar keeps its source text (``1.10`` stays ``1.10``).
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Protocol, Union

import yaml

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# The fix by what libyaml parses when it fails.
_OPEN = {
    "flow mapping": "add the missing '}', or put the value in quotes",
    "flow sequence": "add the missing ']', or put the value in quotes",
    "quoted scalar": "add the missing quote at the end of the value",
}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_NUMBER_START = frozenset("-+.0123456789")


class Untyped(NamedTuple):
    """An unquoted scalar that YAML takes for something other than text: its source and its value."""

    text: str
    value: bool | int | float | None


Node = Union[str, Untyped, "list[Node]", "dict[str, Node]"]


class Entry(NamedTuple):
    """A field of the front matter.

    ``line`` is the line of the key, counted from 0 within the block. ``raw`` is the source of a value that is not a
    scalar, and ``fix`` the fix of a missing value, both only of fields that are text.
    """

    value: Node
    line: int
    raw: str = ""
    fix: str = ""


class Note(Protocol):
    """Receives a diagnostic; ``line`` counts from 0 within the block. An empty ``fix`` is the usual one of the code."""

    def __call__(self, code: str, message: str, line: int, fix: str = "", /) -> None: ...


class YamlProblemError(Exception):
    """The text is not an accepted mapping; ``line`` counts from 0 within the block.

    ``refused`` problems are not repaired. An empty ``fix`` is the usual one.
    """

    def __init__(self, message: str, line: int, *, refused: bool = False, fix: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.refused = refused
        self.fix = fix


def read_mapping(text: str, max_depth: int, note: Note) -> dict[str, Entry]:
    """Read a block mapping. ``note`` receives deviations from plain YAML.

    Raises :class:`YamlProblemError`; with ``refused`` where no repair may be tried (anchors, depth).
    """
    if not text.strip():
        return {}
    try:
        reader = _Reader(text, max_depth, note)
        return reader.document()
    except yaml.MarkedYAMLError as error:
        fix = next((fix for begin, fix in _OPEN.items() if begin in (error.context or "")), "")
        # The line to correct is where an unclosed value begins, not where libyaml fails.
        mark = (error.context_mark if fix else None) or error.problem_mark or error.context_mark
        line = min(mark.line, text.count("\n")) if mark else 0
        raise YamlProblemError(str(error.problem or error.context), line, fix=fix) from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise YamlProblemError(_first_line(error), 0) from None


def is_null(node: Node) -> bool:
    """Whether the node is an unquoted null: nothing, ``~`` or ``null``."""
    return isinstance(node, Untyped) and node.value is None


def source_text(node: Node) -> str | None:
    """The text of a scalar as it stands in the file, or None for a list or mapping."""
    if isinstance(node, Untyped):
        return node.text
    return node if isinstance(node, str) else None


def plain_value(node: Node) -> Any:
    """The node as JSON-like data. Numbers that would print differently stay text.

    >>> plain_value(Untyped("1.10", 1.1)), plain_value(Untyped("3", 3))
    ('1.10', 3)
    """
    if isinstance(node, str):
        return node
    if isinstance(node, Untyped):
        same = node.value is None or isinstance(node.value, bool) or repr(node.value) == node.text
        return node.value if same else node.text
    if isinstance(node, list):
        return [plain_value(item) for item in node]
    return {key: plain_value(value) for key, value in node.items()}


def resolve(text: str) -> str | Untyped:
    """An unquoted scalar: text, or what YAML takes it for.

    >>> resolve("yes"), resolve("true"), resolve("1.10")
    ('yes', Untyped(text='true', value=True), Untyped(text='1.10', value=1.1))
    """
    if text in _WORDS:
        return Untyped(text, _WORDS[text])
    # More digits than any count has: text, and no quadratic conversion of a hostile number.
    if text[0] in _NUMBER_START and len(text) <= 24:
        if _INTEGER.fullmatch(text):
            return Untyped(text, int(text))
        if _FLOAT.fullmatch(text):
            return Untyped(text, float(text))
    return text


def _line(event: Any) -> int:
    return int(event.start_mark.line)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


class _Reader:
    def __init__(self, text: str, max_depth: int, note: Note) -> None:
        self._lines = text.split("\n")
        # The last line has an end too, which a block of text at the end keeps.
        self._next = _Loader(text + "\n").get_event
        self._max_depth = max_depth
        self._note = note

    def document(self) -> dict[str, Entry]:
        self._next()  # stream start
        first = self._next()
        if isinstance(first, yaml.StreamEndEvent):
            return {}
        root = self._next()
        if not isinstance(root, yaml.MappingStartEvent):
            raise YamlProblemError("the front matter is not a mapping of fields", 0)
        self._refuse_anchor(root)
        fields: dict[str, Entry] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key, line = self._key(event), _line(event)
            if key in fields:
                self._note("L07", f"the field {key!r} is duplicated", line)
            event = self._next()
            fields[key] = Entry(self._node(event, 1), line)
            if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and self._cut(event):
                self._note("L12", f"the value of {key!r} ends at ' #'", _line(event))
        self._next()  # document end
        if not isinstance(event := self._next(), yaml.StreamEndEvent):
            raise YamlProblemError("the front matter holds a second document", _line(event))
        return fields

    def _key(self, event: Any) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            self._refuse_anchor(event)
            raise YamlProblemError("a field's name is not a plain string", _line(event))
        self._refuse_anchor(event)
        return str(event.value)

    def _node(self, event: Any, depth: int) -> Node:
        self._refuse_anchor(event)
        if isinstance(event, yaml.ScalarEvent):
            if event.implicit[0]:
                return resolve(event.value)
            if event.tag not in (None, "!", "tag:yaml.org,2002:str"):
                self._note("L08", f"the YAML tag {event.tag!r} was ignored", _line(event))
            return str(event.value)
        if depth >= self._max_depth:
            raise YamlProblemError("values are nested too deeply", _line(event), refused=True)
        if event.tag not in (None, "!"):
            self._note("L08", f"the YAML tag {event.tag!r} was ignored", _line(event))
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Node] = []
            while not isinstance(event := self._next(), yaml.SequenceEndEvent):
                items.append(self._node(event, depth + 1))
            return items
        mapping: dict[str, Node] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._key(event)
            if key in mapping:
                self._note("L07", f"the field {key!r} is duplicated", _line(event))
            mapping[key] = self._node(self._next(), depth + 1)
        return mapping

    def _cut(self, event: Any) -> bool:
        """Whether text follows that looks more like ``#1`` or ``#tag`` than like a comment."""
        line, column = event.end_mark.line, event.end_mark.column
        rest = self._lines[line][column:].lstrip(" ") if line < len(self._lines) else ""
        return len(rest) > 1 and rest[0] == "#" and rest[1] not in "# \t"

    def _refuse_anchor(self, event: Any) -> None:
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise YamlProblemError("YAML anchors ('&') and aliases ('*') are refused", _line(event), refused=True)
