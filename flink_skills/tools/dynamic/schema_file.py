"""``schema.json`` of a skill: the tools that it brings, as data."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flink_skills.tools.dynamic.specs import MAX_TOOLS, check_name, check_raw, shown

SCHEMA_FILE = "schema.json"
TOOLS_FILE = "tools.py"
MAX_FILE_BYTES = 262_144

_MAX_WORDS = 64
_MAX_WORD_CHARS = 4_096


@dataclass(frozen=True)
class DeclaredTool:
    """An entry of the file, with its line.

    ``command`` runs with the arguments of a call as JSON on standard input. Without it, a function of ``tools.py`` is
    called.
    """

    name: str
    description: str
    parameters: Mapping[str, Any] | None
    command: tuple[str, ...] = ()
    line: int = 0

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


class SchemaProblem(NamedTuple):
    """A problem in the file.

    ``code`` is that of a diagnostic (:data:`flink_skills.skill.CODES`). ``line`` counts from 1; 0 means unknown.
    ``omits_tools`` is False for a problem that leaves every tool as it is.
    """

    code: str
    text: str
    line: int = 0
    omits_tools: bool = True


class SchemaFile(NamedTuple):
    """The content of a ``schema.json``: its tools by name, and its problems."""

    tools: dict[str, DeclaredTool]
    problems: Sequence[SchemaProblem]


def parse_schema_file(data: bytes) -> SchemaFile:
    """Return the tools and problems in a ``schema.json``, with their lines.

    The file is an object with the list ``tools``, a list, or one tool. A tool has ``name``, ``description``,
    ``parameters`` (or ``input_schema``) and, unless it is a function of ``tools.py``, ``command``. The format
    ``{"type": "function", "function": {…}}`` is accepted as well.

    >>> parse_schema_file(b'[{"name": "count", "command": ["wc", "-l"]}]').tools["count"].command
    ('wc', '-l')
    """
    if len(data) > MAX_FILE_BYTES:
        return _unusable(f"{SCHEMA_FILE} has more than {MAX_FILE_BYTES} bytes")
    try:
        text = data.decode("utf-8-sig")
        read = read_json(text)
    except (ValueError, RecursionError) as error:
        return _unusable(f"{SCHEMA_FILE} cannot be read: {shown(error, 120)}", getattr(error, "lineno", 0))
    entries = read.get("tools", [read]) if isinstance(read, dict) else read
    if not isinstance(entries, list):
        return _unusable(f"{SCHEMA_FILE} does not contain a list of tools")
    tools: dict[str, DeclaredTool] = {}
    problems: list[SchemaProblem] = []
    # Where the search for the next entry of a name starts.
    starts: dict[str, int] = {}
    if len(entries) > MAX_TOOLS:
        more = f"{SCHEMA_FILE} has {len(entries)} tools: the first {MAX_TOOLS} count"
        problems.append(SchemaProblem("T10", more))
    for entry in entries[:MAX_TOOLS]:
        line = _line(text, entry, starts)
        try:
            tool = _declared(entry, line)
        except ValueError as error:
            problems.append(SchemaProblem("T03", f"{SCHEMA_FILE}: {error}", line))
            continue
        if tools.setdefault(tool.name, tool) is not tool:
            twice = f"{SCHEMA_FILE}: the tool {tool.name!r} is declared twice: the first declaration is used"
            problems.append(SchemaProblem("T08", twice, line))
        elif tool.parameters is None and _parameters(_about(entry)) is not None:
            ignored = f"{SCHEMA_FILE}: the parameters of the tool {tool.name!r} are not an object, and are ignored"
            problems.append(SchemaProblem("T07", ignored, line, omits_tools=False))
    return SchemaFile(tools, problems)


def _unusable(message: str, line: int = 0) -> SchemaFile:
    return SchemaFile({}, [SchemaProblem("T01", message, line)])


def _line(text: str, entry: object, starts: dict[str, int]) -> int:
    """Return the line of an entry, from 1: that of the next occurrence of its name. Return 0 if it is unknown."""
    name = _about(entry).get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name:
        return 0
    form = re.compile(rf'"name"\s*:\s*{re.escape(json.dumps(name, ensure_ascii=False))}')
    match = form.search(text, starts.get(name, 0))
    if match is None:
        return 0
    starts[name] = match.end()
    return text.count("\n", 0, match.start()) + 1


def _about(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = entry.get("function")
    return inner if isinstance(inner, dict) else entry


def _parameters(about: Mapping[str, Any]) -> Any:
    return next((about[word] for word in ("parameters", "input_schema", "inputSchema") if word in about), None)


def _declared(entry: object, line: int) -> DeclaredTool:
    if not isinstance(entry, dict):
        raise ValueError("an entry is not an object")
    about = _about(entry)
    name, description, parameters = check_name(about.get("name")), about.get("description"), _parameters(about)
    try:
        check_raw(parameters)
    except ValueError as error:
        raise ValueError(f"the tool {name!r} is left out: {error}") from None
    return DeclaredTool(
        name,
        description if isinstance(description, str) else "",
        parameters if isinstance(parameters, dict) else None,
        _command(name, about.get("command", entry.get("command"))),
        line,
    )


def _command(name: str, command: object) -> tuple[str, ...]:
    if command is None:
        return ()
    if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
        raise ValueError(f'the command of the tool {name!r} is not a list of strings, such as ["sh", "scripts/x.sh"]')
    if len(command) > _MAX_WORDS or any(len(word) > _MAX_WORD_CHARS or "\0" in word for word in command):
        raise ValueError(
            f"the command of the tool {name!r} is longer than {_MAX_WORDS} words, or has one that is too long"
        )
    if not command[0]:
        raise ValueError(f"the command of the tool {name!r} names no program")
    return tuple(command)


def read_json(text: str) -> Any:
    """Return the value that untrusted JSON represents.

    Raises :class:`ValueError`, also for ``NaN``, ``Infinity`` and numbers that are too large, and
    :class:`RecursionError` for deep nesting.

    >>> read_json("[1e99]")
    [1e+99]
    """
    return json.loads(text, parse_constant=_no_constant, parse_float=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large a number")
    return number


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")
