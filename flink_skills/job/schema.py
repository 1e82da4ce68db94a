"""The JSON schema of job files, for editors and other tools."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from flink_skills.job.model import JobFile
from flink_skills.job.reading import EMPTY_SECTIONS
from flink_skills.options import Option, OptionFamily, SkillOptions
from flink_skills.options import values as parsers

__all__ = ["job_schema"]

_SCALAR = [{"type": kind} for kind in ("string", "number", "boolean")]
_NUMBERS: tuple[Callable[[Any], Any], ...] = (parsers.parse_count, parsers.parse_positive)


def job_schema() -> dict[str, Any]:
    """Return the schema of the models, with every option `skills.*` by its key.

    >>> job_schema()["required"]
    ['name', 'tables']
    """
    schema = JobFile.model_json_schema()
    properties = schema["properties"]
    for name in EMPTY_SECTIONS:
        # They may be left out, but not be empty.
        properties[name]["anyOf"] = [form for form in properties[name]["anyOf"] if form.get("type") != "null"]
    properties["options"] = {
        "type": "object",
        "description": properties["options"]["description"],
        "properties": {option.key: _option(option) for option in SkillOptions.all()},
        "patternProperties": {f"^{re.escape(family.prefix)}": _family(family) for family in SkillOptions.families()},
        "additionalProperties": False,
    }
    one, several = ["agent", "input", "output"], ["agents"]
    for name in (*one, *several):
        properties[name] = _without_null(properties[name])
    schema["oneOf"] = [
        {"required": one, "not": {"required": several}},
        {"required": several, "not": {"anyOf": [{"required": [name]} for name in one]}},
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Job file of flink_skills",
        **{key: value for key, value in schema.items() if key != "title"},
    }


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a property that may be left out, but not be null."""
    forms = [form for form in schema["anyOf"] if form.get("type") != "null"]
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**rest, **forms[0]} if len(forms) == 1 else {**rest, "anyOf": forms}


def _family(family: OptionFamily[Any]) -> dict[str, Any]:
    if family is SkillOptions.USER:
        return {"description": family.doc, "anyOf": [*_SCALAR, {"type": "array"}, {"type": "object"}]}
    return {"type": "string", "description": family.doc}


def _option(option: Option[Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {"description": option.doc}
    if option.parse is parsers.parse_bool:
        # A reference stands for a value as well.
        return {**shown, "type": ["boolean", "string"]}
    if option.parse in _NUMBERS:
        return {**shown, "type": ["integer", "string"]}
    if option.parse in (parsers.parse_list, parsers.parse_folders):
        return {**shown, "anyOf": [{"type": "string"}, {"type": "array"}]}
    if option is SkillOptions.SOURCE_OPTIONS:
        return {**shown, "anyOf": [{"type": "string"}, {"type": "object"}]}
    return {**shown, "anyOf": _SCALAR}
