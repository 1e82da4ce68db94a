"""Content of a skill as plain data, which keeps its digest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from flink_skills.errors import ConfigError, ResourceError, near_misses
from flink_skills.skill.construction import resource_path
from flink_skills.skill.diagnostic import Report
from flink_skills.skill.fields import Fields, judge_fields, judge_heading
from flink_skills.skill.files import SkillFiles
from flink_skills.skill.frontmatter import find_block, read_front_matter, starts_with_front_matter
from flink_skills.skill.heading import first_heading
from flink_skills.skill.limits import Limits
from flink_skills.skill.text import clean_line

__all__ = ["SCHEMA", "all_files", "checked_data", "plain_content", "verbatim_fields"]

_TEXT = {"type": "string"}
_TEXTS = {"type": "object", "additionalProperties": _TEXT}

#: The JSON schema of a skill as plain data.
SCHEMA: Mapping[str, Any] = {
    "title": "AgentSkill",
    "description": "A skill: what it does, how to do it, and its files.",
    "type": "object",
    "properties": {
        "name": {**_TEXT, "description": "Lowercase letters, digits and hyphens.", "minLength": 1},
        "description": {**_TEXT, "description": "What the skill does and when to use it.", "minLength": 1},
        "instructions": {"anyOf": [_TEXT, {"type": "null"}], "default": None, "description": "Markdown."},
        "resources": {
            "anyOf": [_TEXTS, {"type": "null"}],
            "default": None,
            "description": "Content of the other files by relative path.",
        },
        "license": {"anyOf": [_TEXT, {"type": "null"}], "default": None},
        "compatibility": {"anyOf": [_TEXT, {"type": "null"}], "default": None},
        "metadata": {"anyOf": [_TEXTS, {"type": "null"}], "default": None},
        "allowed_tools": {"anyOf": [{"type": "array", "items": _TEXT}, {"type": "null"}], "default": None},
        "extra": {
            "anyOf": [{"type": "object"}, {"type": "null"}],
            "default": None,
            "description": "Other fields of the front matter.",
        },
        "skill_file": {
            "description": "The skill file verbatim, if it is not written as AgentSkill.to_markdown writes it.",
            "default": None,
            "anyOf": [
                {
                    "type": "object",
                    "properties": {"path": _TEXT, "text": _TEXT},
                    "required": ["path", "text"],
                    "additionalProperties": False,
                },
                {"type": "null"},
            ],
        },
    },
    "required": ["name", "description"],
    "additionalProperties": False,
}


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
    fields: Fields | None = None
    form = "skill" if starts_with_front_matter(raw) else "heading"
    if len(raw) > limits.skill_file:
        raise ConfigError(f"{place} has {len(raw)} bytes. The limit is {limits.skill_file}.")
    if form == "skill":
        block = find_block(raw, report, limits)
        entries = read_front_matter(block, report, limits) if block else None
        if block is not None and entries is not None:
            fields = judge_fields(entries, report, first_line=block.line, folder=data["name"])
    else:
        heading = first_heading(raw.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n"))
        said = None if heading is None else clean_line(heading.text)
        fields = judge_heading(said, 1 if heading is None else heading.line, report, folder=data["name"])
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
