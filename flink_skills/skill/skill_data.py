"""Skills as plain data: checks of their values, their dump, which keeps the digest, and the text of a skill file."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import yaml

from flink_skills.errors import ConfigError, ResourceError, near_misses
from flink_skills.skill.diagnostic import Report
from flink_skills.skill.file_rules import is_generated, name_problem, resource_parts
from flink_skills.skill.skill_fields import (
    KNOWN_FIELDS,
    MAX_COMPATIBILITY,
    MAX_DESCRIPTION,
    MAX_NAME,
    Fields,
    read_fields,
)
from flink_skills.skill.skill_files import SkillFiles
from flink_skills.skill.skill_limits import Limits
from flink_skills.skill.text import clean_line

if TYPE_CHECKING:
    from pydantic_core import core_schema as schemas

_TEXT = {"type": "string"}
_TEXTS = {"type": "object", "additionalProperties": _TEXT}


def _optional(kind: Mapping[str, Any], description: str = "") -> dict[str, Any]:
    schema = {"anyOf": [kind, {"type": "null"}], "default": None}
    return {**schema, "description": description} if description else schema


#: The JSON schema of a skill as plain data.
SCHEMA: Mapping[str, Any] = {
    "title": "AgentSkill",
    "description": "A skill: what it does, how to do it, and its files.",
    "type": "object",
    "properties": {
        "name": {**_TEXT, "description": "Lowercase letters, digits and hyphens.", "minLength": 1},
        "description": {**_TEXT, "description": "What the skill does and when to use it.", "minLength": 1},
        "instructions": _optional(_TEXT, "Markdown."),
        "resources": _optional(_TEXTS, "Content of the other files by relative path."),
        "license": _optional(_TEXT),
        "compatibility": _optional(_TEXT),
        "metadata": _optional(_TEXTS),
        "allowed_tools": _optional({"type": "array", "items": _TEXT}),
        "extra": _optional({"type": "object"}, "Other fields of the front matter."),
        "skill_file": _optional(
            {
                "type": "object",
                "properties": {"path": _TEXT, "text": _TEXT},
                "required": ["path", "text"],
                "additionalProperties": False,
            },
            "The skill file verbatim, if it is not written as AgentSkill.to_markdown writes it.",
        ),
    },
    "required": ["name", "description"],
    "additionalProperties": False,
}


def render_skill_file(fields: Mapping[str, Any], body: str) -> str:
    """Front matter of the fields, in their order, and the body.

    >>> print(render_skill_file({"name": "a", "description": "b: c"}, "Do."))
    ---
    name: a
    description: 'b: c'
    ---
    <BLANKLINE>
    Do.
    <BLANKLINE>
    """
    written = yaml.safe_dump(dict(fields), allow_unicode=True, sort_keys=False, width=1_000_000)
    return f"---\n{written}---\n\n{body.strip(chr(10))}\n"


def core_schema(validate: Callable[[Any], Any]) -> schemas.CoreSchema:
    """Return the schema of a field whose values ``validate`` returns, and their ``model_dump`` serializes."""
    from pydantic_core import core_schema as schemas

    def validated(value: Any) -> Any:
        try:
            return validate(value)
        except ConfigError as error:
            raise ValueError(str(error)) from error  # which pydantic collects into a ValidationError

    def dumped(value: Any, info: schemas.SerializationInfo) -> Any:
        return value.model_dump(mode=info.mode)

    serialization = schemas.plain_serializer_function_ser_schema(dumped, info_arg=True)
    return schemas.no_info_plain_validator_function(validated, serialization=serialization)


def check_name(name: Any) -> None:
    """Raise :class:`ConfigError` if ``name`` cannot be the name of a skill."""
    if not isinstance(name, str):
        raise ConfigError(f"skill name {name!r}: expected a string, got {_type(name)}. Give a name such as 'greet'.")
    if not name or name != clean_line(name) or "/" in name or "\\" in name:
        raise ConfigError(f"skill name {name!r}: use lowercase letters, digits and hyphens")
    if name.startswith((".", "~")) or name != unicodedata.normalize("NFKC", name):
        # Loading the skill from a file would give it another name.
        raise ConfigError(f"skill name {name!r}: is a path, or not in Unicode's form NFKC. Use letters and hyphens.")
    if len(name) > MAX_NAME:
        raise ConfigError(f"skill name {name!r}: has {len(name)} characters. Use at most {MAX_NAME}.")


def check_fields(name: str, values: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` for a value of the wrong type or length.

    Args:
        name: The name of the skill, for messages.
        values: The arguments of ``AgentSkill`` other than ``name`` and ``resources``. None: not set.
    """
    for key in ("description", "instructions", "license", "compatibility"):
        value = values[key]
        if not isinstance(value, str) and (value is not None or key == "description"):
            raise ConfigError(f"skill {name!r}: {key} must be a string, got {_type(value)}. Give a string.")
    description, compatibility = values["description"], values["compatibility"] or ""
    if not description.strip():
        raise ConfigError(f"skill {name!r}: the description is empty; say what it does and when to use it")
    if len(description.strip()) > MAX_DESCRIPTION:
        size = f"{len(description.strip())} characters. Use at most {MAX_DESCRIPTION}"
        raise ConfigError(f"skill {name!r}: the description has {size}. Move details to the instructions.")
    if len(compatibility) > MAX_COMPATIBILITY:
        size = f"{len(compatibility)} characters. Use at most {MAX_COMPATIBILITY}."
        raise ConfigError(f"skill {name!r}: compatibility has {size}")
    _check_mapping(name, "metadata", values["metadata"], str)
    tools = values["allowed_tools"]
    if tools is not None and (
        not isinstance(tools, tuple | list) or not all(isinstance(tool, str) and tool for tool in tools)
    ):
        raise ConfigError(f"skill {name!r}: allowed_tools must be a list of tool names, such as ['Bash'].")
    _check_mapping(name, "extra", values["extra"], object)
    extra = values["extra"] or {}
    if taken := sorted(KNOWN_FIELDS & extra.keys()):
        raise ConfigError(f"skill {name!r}: extra cannot hold {taken[0]!r}, which is an argument of AgentSkill.")
    try:
        json.dumps(dict(extra), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"skill {name!r}: extra must hold JSON values only ({error}).") from None


def encoded(name: str, what: str, text: str, limit: int) -> bytes:
    """Return the UTF-8 bytes of ``text``. Raise :class:`ConfigError` if it has none, or more than ``limit`` bytes."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"skill {name!r}: {what} is not valid Unicode ({error.reason}). Remove the surrogate."
        ) from None
    if len(data) > limit:
        size = f"{len(data)} bytes. The limit is {limit}"
        raise ConfigError(f"skill {name!r}: {what} has {size}. Make it smaller, or load the skill from a folder.")
    return data


def resource_files(name: str, resources: Any, limits: Limits) -> dict[str, bytes]:
    """Return the content of ``resources`` by path.

    Raises:
        ConfigError: ``resources`` is not a mapping of strings, a path cannot be a file of a skill, two paths exclude
            each other, or there is too much content.
    """
    _check_mapping(name, "resources", resources, str)
    files: dict[str, bytes] = {}
    for path, text in (resources or {}).items():
        plain = resource_path(name, path)
        if plain in files:
            raise ConfigError(f"skill {name!r}: resource {path!r}: this path appears twice. Remove one of them.")
        files[plain] = encoded(name, f"resource {path!r}", text, limits.file)
    for path in files:
        for end in (at for at, char in enumerate(path) if char == "/"):
            if path[:end] in files:
                where = f"resource {path!r}: {path[:end]!r} is a file and a directory"
                raise ConfigError(f"skill {name!r}: {where}. Rename one of them.")
    if len(files) + 1 >= limits.skill_files:  # with the skill file
        raise ConfigError(f"skill {name!r}: has {len(files)} resources. Use fewer than {limits.skill_files - 1}.")
    total = sum(map(len, files.values()))
    if total > limits.total:
        raise ConfigError(f"skill {name!r}: its resources have {total} bytes. The limit is {limits.total}.")
    return files


def resource_path(skill: str, path: str) -> str:
    """Return ``path`` in its plain form. Raise :class:`ConfigError` if no resource of a skill can have it."""
    place = f"skill {skill!r}: resource {path!r}"
    try:
        parts = resource_parts(path)
        path.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{place}: the path is not valid Unicode. Rename the file.") from None
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from None
    if re.fullmatch("skill.md", parts[-1], re.IGNORECASE):
        where = "this is where the instructions go" if len(parts) == 1 else "this would be another skill"
        raise ConfigError(f"{place}: {where}. Rename the file.")
    for part in parts:
        if is_generated(part):
            raise ConfigError(f"{place}: {part!r} is the name of a generated file, which no skill has. Rename it.")
        if problem := name_problem(part):
            raise ConfigError(f"{place}: {problem}. Rename the file.")
    return "/".join(parts)


def _check_mapping(skill: str, key: str, value: Any, of: type) -> None:
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise ConfigError(f"skill {skill!r}: {key} must be a mapping, got {_type(value)}. Give a dict.")
    for name, item in value.items():
        if not isinstance(name, str):
            raise ConfigError(f"skill {skill!r}: {key} has the key {name!r}. Use strings as keys.")
        if not isinstance(item, of):
            raise ConfigError(f"skill {skill!r}: {key} {name!r} must be a string, got {_type(item)}. Give a string.")


def _type(value: Any) -> str:
    return "None" if value is None else type(value).__name__


def plain_content(
    fields: Fields, body: str, markdown: str, files: SkillFiles, *, limits: Limits, mode: Literal["python", "json"]
) -> dict[str, Any]:
    """Return a skill as plain data: its fields, its body and the text of each file.

    Args:
        fields: The front matter.
        body: The instructions.
        markdown: The skill file as the format's writer would write it.
        files: All files, which are read here.
        limits: Maximum sizes.
        mode: ``"json"`` for JSON values only.

    Raises:
        ResourceError: A file is not UTF-8 text, has a path that no resource can have, is larger than ``limits`` allow,
            or cannot be read.
    """
    content = all_files(fields.name, files, limits)
    texts = {path: _text(fields.name, path, data) for path, data in content.items()}
    for path in texts.keys() - {files.skill_file}:
        try:
            resource_path(fields.name, path)
        except ConfigError as error:
            raise ResourceError(str(error)) from None
    written = texts.pop(files.skill_file)
    tools = fields.allowed_tools
    optional: dict[str, Any] = {
        "license": fields.license,
        "compatibility": fields.compatibility,
        "metadata": dict(fields.metadata) or None,
        "allowed_tools": list(tools) if tools is not None and mode == "json" else tools,
        "extra": json.loads(json.dumps(dict(fields.extra))) or None,
        "skill_file": None
        if (files.skill_file, written) == ("SKILL.md", markdown)
        else {"path": files.skill_file, "text": written},
    }
    data = {"name": fields.name, "description": fields.description, "instructions": body, "resources": texts}
    return data | {key: value for key, value in optional.items() if value is not None}


def all_files(name: str, files: SkillFiles, limits: Limits) -> dict[str, bytes]:
    """Return the content of all files by path.

    Raises :class:`ResourceError` if a file cannot be read, or if the skill is larger than ``limits`` allow.
    """
    sizes = files.manifest()
    if files.skill_file not in sizes:
        raise ResourceError(f"skill {name!r}: the skill file {files.skill_file} is missing. Load the skills again.")
    if len(sizes) >= limits.skill_files:  # a listing of more files ends there
        raise ResourceError(f"skill {name!r}: it has {len(sizes)} files or more. Use fewer than {limits.skill_files}.")
    large = next((path for path, (size, _) in sizes.items() if size > limits.file), None)
    if large is not None:
        raise ResourceError(f"skill {name!r}: {large!r} has {sizes[large][0]} bytes. The limit is {limits.file}.")
    total = sum(size for size, _ in sizes.values())
    if total > limits.total:
        raise ResourceError(f"skill {name!r}: its files have {total} bytes. The limit is {limits.total}.")
    return {path: files.read(path, 0, size).data for path, (size, _) in sorted(sizes.items())}


def checked_data(data: Any) -> dict[str, Any]:
    """Return the arguments of ``AgentSkill`` in ``data``.

    Raises :class:`ConfigError` if ``data`` is not a mapping, has an unknown key, or lacks a required one.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"skill: expected a mapping or an AgentSkill, got {type(data).__name__}. Give a dict.")
    known = SCHEMA["properties"]
    for key in data:
        if key not in known:
            near = near_misses(str(key), known, limit=1)
            hint = f"did you mean {near[0]!r}?" if near else f"use {', '.join(known)}"
            raise ConfigError(f"skill {data.get('name')!r}: {key!r} is not a valid key; {hint}")
    for key in SCHEMA["required"]:
        if key not in data:
            raise ConfigError(f"skill {data.get('name')!r}: {key!r} is missing. Add it.")
    return dict(data)


def verbatim_fields(data: Mapping[str, Any], skill_file: Any) -> tuple[str, bytes, Fields, str]:
    """Return path, bytes and fields of the verbatim skill file in ``data``, and the skill's form.

    Raises :class:`ConfigError` if ``skill_file`` is not a skill file, or if it differs from the other values.
    """
    place = f"skill {data['name']!r}: skill_file"
    if not isinstance(data["name"], str):
        raise ConfigError(f"skill name {data['name']!r}: expected a string. Give a name such as 'greet'.")
    if not isinstance(skill_file, Mapping) or not all(isinstance(skill_file.get(key), str) for key in ("path", "text")):
        raise ConfigError(f"{place} must be a mapping with the strings 'path' and 'text'. Leave it out.")
    path, text = skill_file["path"], skill_file["text"]
    if path.lower() != "skill.md":
        raise ConfigError(f"{place} has the path {path!r}. Use SKILL.md.")
    limits, report = Limits(), Report(path)
    raw = text.encode(errors="replace")
    if len(raw) > limits.skill_file:
        raise ConfigError(f"{place} has {len(raw)} bytes. The limit is {limits.skill_file}.")
    fields, form = read_fields(raw, report, limits, folder=data["name"])
    if fields is None:
        raise ConfigError(f"{place} is not a valid skill file: {report.diagnostics[-1]}. Leave it out.")
    for key, value in fields._asdict().items():
        if _comparable(data.get(key)) != _comparable(value):
            raise ConfigError(f"{place} has another {key} than the skill. Leave skill_file out to use the new {key}.")
    return path, raw, fields, form


def _comparable(value: Any) -> str:
    plain = dict(value) if isinstance(value, Mapping) else value
    return json.dumps(plain if plain != {} else None, sort_keys=True, default=str)


def _text(name: str, path: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        fix = "Copy the skill's folder or pack it as an archive instead"
        raise ResourceError(f"skill {name!r}: {path!r} is not UTF-8 text and has no plain form. {fix}.") from None
