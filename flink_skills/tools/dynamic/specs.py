"""Validation for tool descriptions from untrusted code.

The results are part of each request to a model while the skill is loaded. A provider would reject the whole request for
one invalid schema.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flink_skills.manager.menu import escape
from flink_skills.skill.text import clean, clean_line
from flink_skills.tools.arguments import TooLargeError, check_size, plain_schema

#: Maximum number of tools in a skill.
MAX_TOOLS = 64
#: Maximum size of a tool's parameters in bytes.
MAX_SCHEMA_BYTES = 8_192
#: Maximum size in the file of a skill, with keywords that are omitted.
MAX_RAW_BYTES = 65_536
# Names that all model providers accept.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")

# All descriptions of a skill are sent with each request, and stored in the session.
_MAX_BYTES = 131_072
_MAX_DESCRIPTION = 2_000
_MAX_PROPERTY_DESCRIPTION = 1_000
_MAX_DEPTH = 16
# Nested objects and arrays: a level of a schema has one or two of them.
_MAX_NESTING = 64
_MAX_CHOICES = 256
# Other readers of JSON read larger ones as infinity, or as another number.
_MAX_INTEGER = (1 << 63) - 1
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_COUNTS = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})
_SCHEMAS = frozenset({"items", "additionalProperties", "not", "contains", "propertyNames"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_MAPS = frozenset({"properties", "$defs", "definitions"})
_FORMAT = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_TAG = re.compile(r"<[\s/]*[A-Za-z_!]")
# Providers accept an object there, and no alternatives.
_TOP = ("properties", "required", "additionalProperties", "$defs", "definitions")


def checked_specs(raw: object) -> tuple[tuple[dict[str, Any], ...], list[str]]:
    """Return the specs in ``raw``, which can be any value, and the others' problems.

    A hostile value takes long: not for an event loop.
    """
    specs: dict[str, dict[str, Any]] = {}
    problems: list[str] = []
    room = _MAX_BYTES
    for number, entry in enumerate(raw if isinstance(raw, list) else ()):
        if number >= MAX_TOOLS:
            problems.append(f"there are more than {MAX_TOOLS} tools: the first {MAX_TOOLS} count")
            break
        try:
            spec = _checked_spec(entry)
        except ValueError as error:
            problems.append(str(error))
            continue
        room -= len(json.dumps(spec, ensure_ascii=False).encode())
        if spec["name"] in specs:
            problems.append(f"the tool {spec['name']!r} is declared twice: the first declaration is used")
        elif room < 0:
            problems.append(f"the descriptions have more than {_MAX_BYTES} bytes: the remaining tools are omitted")
            break
        else:
            specs[spec["name"]] = spec
    return tuple(specs.values()), problems


def checked_parameters(raw: object) -> dict[str, Any]:
    """Return a JSON schema of type ``object`` that every model provider accepts. Raise :class:`ValueError`.

    Keywords that are about neither types nor values are omitted, and so are regular expressions: providers accept
    different ones, and a hostile one would be slow wherever it is compiled.

    >>> checked_parameters({"properties": {"a": {"type": "string", "x-secret": 1}}})
    {'properties': {'a': {'type': 'string'}}, 'type': 'object'}
    """
    if raw is None:
        raw = {}
    if not isinstance(raw, Mapping):
        raise ValueError("the parameters are not a JSON schema")
    check_raw(raw)
    if raw.get("type", "object") != "object":
        raise ValueError(f"the parameters are of type {shown(raw['type'])}, not an object")
    for name in raw["properties"] if isinstance(raw.get("properties"), Mapping) else ():
        if not isinstance(name, str) or not _PROPERTY.fullmatch(name):
            raise ValueError(f"the name of the argument {shown(name)} is not 1 to 64 letters, digits, '_', '-' and '.'")
    schema = _schema({word: raw[word] for word in _TOP if word in raw}, 0)
    _drop_dangling(
        schema, {f"#/{group}/{name}" for group in ("$defs", "definitions") for name in schema.get(group, {})}
    )
    schema = plain_schema({**schema, "type": "object"})
    size = len(json.dumps(schema, ensure_ascii=False).encode())
    if size > MAX_SCHEMA_BYTES:
        raise ValueError(f"the parameters have {size} bytes, and the maximum is {MAX_SCHEMA_BYTES}")
    return schema


def check_name(name: object) -> str:
    """Return ``name``. Raise :class:`ValueError` if a tool cannot have it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"the tool {shown(name)} is left out: a name is 1 to 64 letters, digits, '_' and '-'")
    return name


def check_raw(parameters: object) -> None:
    """Raise :class:`ValueError` for parameters that are too large, or nested too deeply, to process."""
    try:
        size = len(json.dumps(parameters, ensure_ascii=False).encode("utf-8", "replace"))
        check_size(parameters, MAX_RAW_BYTES, _MAX_NESTING)
    except (RecursionError, TooLargeError):
        raise ValueError(f"the parameters are nested deeper than {_MAX_DEPTH} levels") from None
    if size > MAX_RAW_BYTES:
        raise ValueError(f"the parameters have {size} bytes, and the maximum is {MAX_RAW_BYTES}")


def shown(value: object, most: int = 60) -> str:
    """Return untrusted text for a message, which can become part of a prompt: one short line without tags."""
    if isinstance(value, (Mapping, list)):
        return "(an object)" if isinstance(value, Mapping) else "(a list)"  # which may be nested too deep to show
    text = clean_line(str(value)[: most * 4])
    return repr(escape(text if len(text) <= most else text[:most] + "…"))


def _checked_spec(entry: object) -> dict[str, Any]:
    if not isinstance(entry, Mapping):
        raise ValueError("a description of a tool is not an object")
    name = check_name(entry.get("name"))
    try:
        parameters = checked_parameters(entry.get("parameters"))
    except ValueError as error:
        raise ValueError(f"the tool {name!r} is left out: {error}") from None
    return {
        "name": name,
        "description": _line(entry.get("description"), _MAX_DESCRIPTION) or name,
        "parameters": parameters,
    }


def _schema(raw: object, depth: int) -> Any:
    if isinstance(raw, bool):
        return raw
    if not isinstance(raw, Mapping):
        return {}
    if depth > _MAX_DEPTH:
        raise ValueError(f"the parameters are nested deeper than {_MAX_DEPTH} levels")
    found: dict[str, Any] = {}
    for word, value in raw.items():
        kept = _keyword(word, value, depth)
        if kept is not None:
            found[word] = kept
    if "required" in found:
        found["required"] = [name for name in found["required"] if name in found.get("properties", {})]
        if not found["required"]:
            del found["required"]
    return found


def _keyword(word: object, value: Any, depth: int) -> Any:
    """Return the accepted part of a keyword's value. Return None to omit the keyword."""
    if word in _SCHEMAS:
        return _schema(value, depth + 1)
    if word in _MAPS:
        parts = value.items() if isinstance(value, Mapping) else ()
        # A name belongs to the tool: one that cannot remain as it is cannot be used.
        found = {name: _schema(part, depth + 1) for name, part in parts if _is_name(name)}
        return found if isinstance(value, Mapping) else None
    if word in _NUMBERS:
        return value if _is_number(value) and (word != "multipleOf" or value > 0) else None
    if word in _COUNTS:
        return value if isinstance(value, int) and _is_number(value) and value >= 0 else None
    if word == "description":
        return _line(value, _MAX_PROPERTY_DESCRIPTION) or None
    if word in ("const", "default"):
        return _untagged(_data(value, depth))
    if word == "uniqueItems":
        return value if isinstance(value, bool) else None
    if word == "format":
        return value if isinstance(value, str) and _FORMAT.fullmatch(value) else None
    if word == "$ref":
        return value if isinstance(value, str) else None  # see _drop_dangling
    if word == "type":
        types = value if isinstance(value, list) else [value]
        return value if types and all(isinstance(kind, str) and kind in _TYPES for kind in types) else None
    if not isinstance(value, list) or not value:
        return None
    if word in _LISTS:
        return [_schema(part, depth + 1) for part in value[:_MAX_CHOICES]]
    if word == "enum":
        return _untagged(_data(value[:_MAX_CHOICES], depth))
    return [name for name in value if isinstance(name, str)] if word == "required" else None


def _data(value: object, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError(f"the parameters are nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean_line(str(name)): _data(part, depth + 1) for name, part in value.items()}
    if isinstance(value, list):
        return [_data(part, depth + 1) for part in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and not _is_number(value):
        raise ValueError("the parameters contain a number that is too large for JSON")
    return value


def _is_number(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= _MAX_INTEGER
    return isinstance(value, float) and math.isfinite(value)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= 64 and name == clean_line(name) and not _TAG.search(name)


def _untagged(value: Any) -> Any:
    """Return ``value``. Return None if it could be mistaken for a tag of a prompt: it must not be changed."""
    return None if _TAG.search(json.dumps(value, ensure_ascii=False)) else value


def _line(value: object, most: int) -> str:
    """Return untrusted text as one line that neither opens nor closes a tag."""
    text = clean_line(value[: most * 4]) if isinstance(value, str) else ""
    return escape(text if len(text) <= most else text[: most - 1].rstrip() + "…")


def _drop_dangling(schema: Any, known: Iterable[str]) -> None:
    """Remove references without a target: providers reject the whole request."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if isinstance(part.get("$ref"), str) and part["$ref"] not in known:
                del part["$ref"]
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)


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
    # Start of the search for the next entry of a name.
    starts: dict[str, int] = {}
    if len(entries) > MAX_TOOLS:
        more = f"{SCHEMA_FILE} has {len(entries)} tools: the first {MAX_TOOLS} count"
        problems.append(SchemaProblem("T10", more))
    for entry in entries[:MAX_TOOLS]:
        line = _entry_line(text, entry, starts)
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


def _entry_line(text: str, entry: object, starts: dict[str, int]) -> int:
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
