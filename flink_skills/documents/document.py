"""YAML documents with the line of each value: mappings, lists and scalars.

Anchors and aliases are refused, as in the front matter of skills: each value stands where it is read. A key that is
there twice is an error, and so is a tag. Keys are texts as they are written, so that a column may be named ``no``.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any

import yaml

from flink_skills.errors import ConfigError

Path = tuple["str | int", ...]
"""A place inside a document: keys of mappings and positions in lists, from the outermost one."""
_MAX_BYTES = 4 << 20
_MAX_DEPTH = 50
# Keys and values; what is looked for among them takes its time for each.
_MAX_VALUES = 10_000
# Bits of a number; Python refuses to write much longer ones as digits.
_MAX_NUMBER = 4096
_SHOWN = 60
_SCALARS = {"null", "bool", "int", "float"}
_CORE = "tag:yaml.org,2002:"
_OPENING = (
    yaml.BlockMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.FlowSequenceStartToken,
)
_CLOSING = (yaml.BlockEndToken, yaml.FlowMappingEndToken, yaml.FlowSequenceEndToken)
# Half of a character, which an escape can write and nothing can encode.
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, order=True)
class Place:
    """Line and column of a file, both from 1; column 0: the line as a whole."""

    line: int
    column: int = 0


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. ``path`` is where in the document, ``place`` where in the file. ``not_here`` is the kind
    and the name of a connector or format that is all there is to it: its jar is not on this machine.

    >>> str(Problem("job.yaml", "unknown key 'tabels'", ("input",), Place(3, 5)))
    "job.yaml:3:5: input: unknown key 'tabels'"
    """

    file: str
    message: str
    path: Path = ()
    place: Place | None = None
    not_here: tuple[str, str] | None = None

    def __str__(self) -> str:
        where = self.file
        if self.place is not None:
            where += f":{self.place.line}" + (f":{self.place.column}" if self.place.column else "")
        return f"{where}: " + (f"{path_text(self.path)}: " if self.path else "") + self.message


class DocumentError(ConfigError):
    """A file that cannot be used; ``problems`` are in the order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.place or Place(0)))
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def redacted(self, hide: Callable[[str], str]) -> DocumentError:
        """The same error with ``hide`` over every message."""
        return DocumentError([replace(problem, message=hide(problem.message)) for problem in self.problems])


def path_text(path: Path) -> str:
    """A path for people.

    >>> path_text(("agent", "tools", 0))
    'agent.tools[0]'
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


@dataclass(frozen=True)
class Document:
    """The content of a YAML file as plain data, and where each part of it is.

    ``blocks`` has the paths of texts that are written as literal blocks (``|``): their first line is the one after
    the place.
    """

    file: str
    data: Any
    places: dict[Path, Place] = field(repr=False)
    keys: dict[Path, Place] = field(repr=False)
    blocks: frozenset[Path] = field(default=frozenset(), repr=False)

    def problem(self, path: Path, message: str, *, at_key: bool = False, line: int = 0) -> Problem:
        """A problem at ``path``, or at the nearest part around it that is in the file.

        ``at_key`` means the key and not its value; ``line`` is that of a text's own lines, from 1.
        """
        place = self.place(path, at_key=at_key)
        if line and path in self.places:
            first = self.places[path].line + (path in self.blocks)
            place = Place(first + line - 1)
        return Problem(self.file, message, path, place)

    def place(self, path: Path, *, at_key: bool = False) -> Place | None:
        """Where ``path`` is, or the nearest part around it."""
        for length in range(len(path), -1, -1):
            found = path[:length]
            if at_key and found in self.keys:
                return self.keys[found]
            if found in self.places:
                return self.places[found]
        return None


def read_document(path: str | FilePath, *, text: str | None = None) -> Document:
    """Read a YAML file. Raises :class:`DocumentError` with everything that is wrong with it as YAML."""
    name = str(path)
    if text is None:
        text = _read(FilePath(path))
    try:
        _scan(name, text)
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        place = Place(before.count("\n") + 1, len(before) - before.rfind("\n"))
        message = f"invalid YAML: the character U+{ord(text[error.position]):04X} is not allowed; remove it"
        raise DocumentError([Problem(name, message, (), place)]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        what = getattr(error, "problem", None) or getattr(error, "context", None) or str(error)
        raise DocumentError([Problem(name, f"invalid YAML: {what}", (), _place(mark) if mark else None)]) from None
    if root is None:
        raise DocumentError([Problem(name, "the file is empty")])
    reader = _Reader(name, loader)
    data = reader.value(root, ())
    if reader.problems:
        raise DocumentError(reader.problems)
    return Document(name, data, reader.places, reader.keys, frozenset(reader.blocks))


def _read(path: FilePath) -> str:
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            # Opening a pipe would block.
            raise DocumentError([Problem(str(path), "the path is not a regular file")])
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise DocumentError(
                [
                    Problem(
                        str(path),
                        f"the file is larger than {_MAX_BYTES >> 20} MiB; expected a job file or an agent file",
                    )
                ]
            )
        return content.decode("utf-8-sig")
    except OSError as error:
        raise DocumentError([Problem(str(path), str(error.strerror or error))]) from None
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DocumentError([Problem(str(path), "the file is not UTF-8 text", (), Place(line))]) from None


def _scan(name: str, text: str) -> None:
    """Refuse what is not followed any further: anchors, aliases, and what is nested too deep for a recursion."""
    scanner = yaml.SafeLoader(text)
    depth = values = 0
    while True:
        try:
            token = scanner.get_token() if scanner.check_token() else None  # type: ignore[no-untyped-call]
        except ValueError as error:
            # A number of a character that there is not; the scanner leaves this to Python.
            raise DocumentError([Problem(name, f"invalid YAML: {error}", (), _place(scanner.get_mark()))]) from None
        if token is None:
            return
        if isinstance(token, (yaml.AnchorToken, yaml.AliasToken)):
            sign = "&" if isinstance(token, yaml.AnchorToken) else "*"
            message = f"YAML anchors and aliases are not used here ({sign}{token.value}): write the value again"
            raise DocumentError([Problem(name, message, (), _place(token.start_mark))])
        values += isinstance(token, (yaml.ScalarToken, *_OPENING))
        if values > _MAX_VALUES:
            message = f"the file has more than {_MAX_VALUES:,} keys and values; expected a job file or an agent file"
            raise DocumentError([Problem(name, message, (), _place(token.start_mark))])
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if depth > _MAX_DEPTH:
            message = f"the document is nested more than {_MAX_DEPTH} deep"
            raise DocumentError([Problem(name, message, (), _place(token.start_mark))])


def _place(mark: Any) -> Place:
    return Place(mark.line + 1, mark.column + 1)


class _Reader:
    """Makes plain data of YAML nodes and notes their places."""

    def __init__(self, file: str, loader: yaml.SafeLoader) -> None:
        self._file, self._loader = file, loader
        self.places: dict[Path, Place] = {}
        self.keys: dict[Path, Place] = {}
        self.blocks: set[Path] = set()
        self.problems: list[Problem] = []

    def value(self, node: yaml.Node, path: Path) -> Any:
        self.places[path] = _place(node.start_mark)
        if len(path) > _MAX_DEPTH:
            self._refuse(node, path[:3], f"the value is nested more than {_MAX_DEPTH} deep")
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            self._check_tag(node, path, "seq")
            return [self.value(item, (*path, number)) for number, item in enumerate(node.value)]
        return self._scalar(node, path) if isinstance(node, yaml.ScalarNode) else None

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        self._check_tag(node, path, "map")
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse(key_node, path, "a key is a list or a mapping; write a string")
                continue
            key = str(key_node.value)
            if not self._check_characters(key_node, path):
                continue
            inner = (*path, key)
            if key in found:
                first = self.keys[inner].line
                self._refuse(key_node, inner, f"the key is duplicated, first in line {first}; keep one of them")
                continue
            self.keys[inner] = _place(key_node.start_mark)
            found[key] = self.value(value_node, inner)
        return found

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        if node.style in ("|", ">"):
            self.blocks.add(path)
        tag = node.tag.removeprefix(_CORE)
        # A date is a text here: options and SQL want it as it is written.
        if tag in ("str", "timestamp", "value"):
            self._check_characters(node, path)
            return node.value
        if tag in _SCALARS:
            try:
                value = self._loader.construct_object(node)
                if isinstance(value, int) and value.bit_length() > _MAX_NUMBER:
                    raise OverflowError
                return value
            except (ValueError, LookupError, OverflowError, yaml.YAMLError):
                shown = repr(node.value) if len(node.value) <= _SHOWN else f"{node.value[:_SHOWN]!r}…"
                self._refuse(node, path, f"{shown} is not a valid {tag}; write it in quotes")
                return None
        self._refuse(node, path, f"the value has the YAML tag {node.tag.replace(_CORE, '!!')!r}; remove it")
        return None

    def _check_characters(self, node: yaml.ScalarNode, path: Path) -> bool:
        half = _SURROGATE.search(node.value)
        if half is not None:
            self._refuse(
                node, path, f"the value contains half of a character, \\u{ord(half[0]):04X}; write the whole one"
            )
        return half is None

    def _check_tag(self, node: yaml.Node, path: Path, expected: str) -> None:
        if node.tag != _CORE + expected:
            self._refuse(node, path, f"the value has the YAML tag {node.tag.replace(_CORE, '!!')!r}; remove it")

    def _refuse(self, node: yaml.Node, path: Path, message: str) -> None:
        self.problems.append(Problem(self._file, message, path, _place(node.start_mark)))
