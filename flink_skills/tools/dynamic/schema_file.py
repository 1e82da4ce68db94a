"""``schema.json`` of a skill: the tools that it brings, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flink_skills.tools.dynamic.specs import MOST_TOOLS, NAME, check_raw, shown
from flink_skills.tools.dynamic.strict_json import read_json

__all__ = ["MOST_FILE_BYTES", "SCHEMA_FILE", "DeclaredTool", "read_schema_file"]

SCHEMA_FILE = "schema.json"
MOST_FILE_BYTES = 262_144

_MOST_WORDS = 64
_MOST_WORD_CHARS = 4_096


@dataclass(frozen=True)
class DeclaredTool:
    """An entry of the file. ``command`` runs it with its arguments as JSON on standard input; without one it is a
    function of ``tools.py``."""

    name: str
    description: str
    parameters: Mapping[str, Any] | None
    command: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


def read_schema_file(data: bytes) -> tuple[dict[str, DeclaredTool], list[str]]:
    """The tools in the bytes of a ``schema.json`` by name, and what is wrong with it.

    The file is an object with the list ``tools``, a list, or one tool. A tool has ``name``, ``description``,
    ``parameters`` (or ``input_schema``) and, if it is no function of ``tools.py``, ``command``. The form
    ``{"type": "function", "function": {…}}`` is fine too.

    >>> tools, _ = read_schema_file(b'[{"name": "count", "command": ["wc", "-l"]}]')
    >>> tools["count"].command
    ('wc', '-l')
    """
    if len(data) > MOST_FILE_BYTES:
        return {}, [f"{SCHEMA_FILE} has more than {MOST_FILE_BYTES} bytes"]
    try:
        read = read_json(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        return {}, [f"{SCHEMA_FILE} cannot be read: {shown(error, 120)}"]
    entries = read.get("tools", [read]) if isinstance(read, dict) else read
    if not isinstance(entries, list):
        return {}, [f"{SCHEMA_FILE} holds no list of tools"]
    found: dict[str, DeclaredTool] = {}
    problems = []
    if len(entries) > MOST_TOOLS:
        problems.append(f"{SCHEMA_FILE} has {len(entries)} tools: the first {MOST_TOOLS} count")
    for entry in entries[:MOST_TOOLS]:
        try:
            tool = _declared(entry)
        except ValueError as error:
            problems.append(f"{SCHEMA_FILE}: {error}")
            continue
        if tool.name in found:
            problems.append(f"{SCHEMA_FILE}: the tool {tool.name!r} is there twice: the first counts")
        else:
            found[tool.name] = tool
    return found, problems


def _declared(entry: object) -> DeclaredTool:
    if not isinstance(entry, dict):
        raise ValueError("an entry is no object")
    inner = entry.get("function")
    said = inner if isinstance(inner, dict) else entry
    name = said.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"the tool {shown(name)} is left out: a name is 1 to 64 letters, digits, '_' and '-'")
    description = said.get("description")
    parameters = next((said[word] for word in ("parameters", "input_schema", "inputSchema") if word in said), None)
    try:
        check_raw(parameters)
    except ValueError as error:
        raise ValueError(f"the tool {name!r} is left out: {error}") from None
    command = said.get("command", entry.get("command"))
    return DeclaredTool(
        name,
        description if isinstance(description, str) else "",
        parameters if isinstance(parameters, dict) else None,
        _command(name, command),
    )


def _command(name: str, command: object) -> tuple[str, ...]:
    if command is None:
        return ()
    if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
        raise ValueError(f'the command of the tool {name!r} is no list of words, such as ["sh", "scripts/x.sh"]')
    if len(command) > _MOST_WORDS or any(len(word) > _MOST_WORD_CHARS or "\0" in word for word in command):
        raise ValueError(
            f"the command of the tool {name!r} is longer than {_MOST_WORDS} words, or has one that is too long"
        )
    if not command[0]:
        raise ValueError(f"the command of the tool {name!r} names no program")
    return tuple(command)
