"""Checks of the values that a skill in memory is made of."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from flink_skills.errors import ConfigError
from flink_skills.skill.fields import KNOWN_FIELDS, MAX_COMPATIBILITY, MAX_DESCRIPTION, MAX_NAME
from flink_skills.skill.file_names import name_problem
from flink_skills.skill.limits import Limits
from flink_skills.skill.paths import resource_parts
from flink_skills.skill.roles import is_generated
from flink_skills.skill.text import clean_line

__all__ = ["check_fields", "check_name", "encoded", "resource_files", "resource_path"]


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
