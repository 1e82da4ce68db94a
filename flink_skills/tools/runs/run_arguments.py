"""Arguments of ``skill_run`` and of the tools for processes, in the names of both source systems."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator
from pydantic_core import PydanticCustomError

from flink_skills.tools.commands.folders import STDIN_DESCRIPTION
from flink_skills.tools.given import Also, Given

__all__ = [
    "PollLines",
    "RunArguments",
    "RunInput",
    "RunOutputs",
    "SessionArguments",
    "SessionId",
    "TimeMs",
    "WriteArguments",
    "only",
]

_MAX_FILES = 100
_MAX_FILE_BYTES = 4 << 20
_MAX_TOTAL_BYTES = 64 << 20


def _listed(value: Any) -> Any:
    """One value where a list is meant, and a list that was written as JSON text."""
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("["):
            try:
                return json.loads(text)
            except (ValueError, RecursionError):
                return [value]
        return [text] if text else []
    return [value] if isinstance(value, Mapping) else value


def _patterns(value: Any) -> Any:
    """Patterns in one text are separated by commas; a name that has one itself is written in a list."""
    listed = _listed(value)
    return split_patterns(value) if isinstance(value, str) and listed == [value.strip()] else listed


def split_patterns(text: str) -> list[str]:
    """``text`` at its commas, but not at those in braces and brackets.

    >>> split_patterns("out/*.{csv,txt}, work/a")
    ['out/*.{csv,txt}', 'work/a']
    """
    parts, depth = [""], 0
    for char in text:
        depth = max(0, depth + (char in "{[") - (char in "}]"))
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]


def _outputs(value: Any) -> Any:
    """Patterns alone are outputs whose text is wanted, as with ``output_files``; none at all are no outputs."""
    value = _object(value)
    if not isinstance(value, str | list | tuple):
        return value
    globs = _patterns(list(value) if isinstance(value, tuple) else value)
    if len(globs) == 1 and isinstance(globs[0], Mapping):
        return globs[0]
    return {"globs": globs, "inline": True} if globs else None


def _environment(value: Any) -> Any:
    """Variables as their texts: a truth value in JSON's spelling, a null is none."""
    value = _object(value)
    if not isinstance(value, Mapping):
        return value
    return {
        name: str(text).lower() if isinstance(text, bool) else text for name, text in value.items() if text is not None
    }


def _object(value: Any) -> Any:
    """An object that was written as JSON text."""
    if isinstance(value, str) and value.strip().startswith("{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _slim(schema: dict[str, Any]) -> None:
    # Defaults are what happens when an argument is left out; a model that leaves it out need not know.
    for described in schema.get("properties", {}).values():
        described.pop("default", None)
        if any(choice == {"type": "null"} for choice in described.get("anyOf", ())):
            described.update(described.pop("anyOf")[0])


_Patterns = Annotated[
    list[str], BeforeValidator(_patterns), WithJsonSchema({"type": "array", "items": {"type": "string"}})
]


class _Part(Given):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    @classmethod
    def understood(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            raise PydanticCustomError("object", "this has to be an object")
        return super().understood(given)


class RunInput(_Part):
    """One input: ``source`` is ``artifact://``, ``workspace://``, ``skill://`` or ``host://``."""

    source: Annotated[str, Also("src")] = Field(min_length=1, alias="from")
    to: Annotated[str, Also("dst")] = ""
    mode: Literal["copy", "link"] = "copy"
    pin: bool = False

    @classmethod
    def understood(cls, given: Any) -> Any:
        """Return the fields of an input. A source alone is an input as well."""
        return super().understood({"from": given} if isinstance(given, str) else given)

    @field_validator("source", mode="after")
    @classmethod
    def _no_version(cls, value: str) -> str:
        """An empty version is none."""
        return value.strip().removesuffix("@") if value.lstrip().lower().startswith("artifact://") else value

    @field_validator("mode", mode="before")
    @classmethod
    def _mode(cls, value: Any) -> Any:
        return (value.strip().lower() or "copy") if isinstance(value, str) else value


class RunOutputs(_Part):
    """Patterns of the output files, and their use: inlined, saved or only listed. Sizes in bytes."""

    globs: _Patterns = Field(default_factory=list)
    inline: bool = False
    save: bool = False
    name_template: str = ""
    max_files: int = _MAX_FILES
    max_file_bytes: int = _MAX_FILE_BYTES
    max_total_bytes: int = _MAX_TOTAL_BYTES

    @field_validator("max_files", "max_file_bytes", "max_total_bytes", mode="after")
    @classmethod
    def _limit(cls, value: int, info: Any) -> int:
        # A model may ask for less, not for more; 0 and below stand for the default, as where these come from.
        most = {"max_files": _MAX_FILES, "max_file_bytes": _MAX_FILE_BYTES}.get(info.field_name, _MAX_TOTAL_BYTES)
        return min(value, most) if value > 0 else most


class RunArguments(Given):
    """The arguments of a run. ``timeout`` in seconds.

    A face that has more of its own is made from it: ``class ExecArguments(RunArguments)``.

    >>> RunArguments.model_validate({"skill_name": "report", "cmd": "make", "outputFiles": "out/*.txt"}).output_files
    ['out/*.txt']
    """

    model_config = ConfigDict(coerce_numbers_to_str=True, json_schema_extra=_slim)

    skill: Annotated[str, Also("skill_name", "name")]
    command: Annotated[str, Also("cmd")]
    cwd: Annotated[str | None, Also("workdir")] = Field(default=None, description="In the skill, or $WORK_DIR/…")
    env: Annotated[
        dict[str, str],
        BeforeValidator(_environment),
        WithJsonSchema({"type": "object"}),
    ] = Field(default_factory=dict)
    stdin: Annotated[str | None, Also(blank=True)] = Field(default=None, description=STDIN_DESCRIPTION)
    editor_text: Annotated[str | None, Also(blank=True)] = Field(default=None, description="for $EDITOR")
    inputs: Annotated[
        list[RunInput],
        BeforeValidator(_listed),
        WithJsonSchema(
            {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "from": {"type": "string", "description": "artifact|workspace|skill|host://…"},
                        "to": {"type": "string"},
                        "mode": {"type": "string", "enum": ["copy", "link"]},
                        "pin": {"type": "boolean"},
                    },
                    "required": ["from"],
                },
            }
        ),
    ] = Field(default_factory=list)
    output_files: _Patterns = Field(
        default_factory=list,
        description="Globs: out/*.txt",
    )
    outputs: Annotated[
        RunOutputs | None,
        BeforeValidator(_outputs),
        WithJsonSchema(
            {
                "type": "object",
                "description": "Or {globs, inline, save, name_template, max_files, max_file_bytes, max_total_bytes}",
            }
        ),
    ] = None
    timeout: Annotated[float | None, Also("timeout_sec")] = Field(
        default=None, gt=0, allow_inf_nan=False, description="seconds"
    )
    save_as_artifacts: bool = False
    artifact_prefix: str = ""
    omit_inline_content: bool = False

    @classmethod
    def understood(cls, given: Any) -> Any:
        """Return the arguments. Reject those without a skill or a command. A blank text or null counts as missing."""
        kept = super().understood(given)
        if not all(str(kept.get(name, "")).strip() for name in ("skill", "command")):
            # "missing" keeps the arguments themselves out of the text for the model.
            raise PydanticCustomError("missing", "skill and command are required")
        return kept

    @field_validator("skill", mode="after")
    @classmethod
    def _plain(cls, value: str) -> str:
        return value.strip()


def _not_negative(value: Any) -> Any:
    return None if isinstance(value, int | float) and value < 0 else value


def _positive(value: Any) -> Any:
    return None if isinstance(value, int | float) and value <= 0 else value


TimeMs = Annotated[float | None, BeforeValidator(_not_negative)]
PollLines = Annotated[int | None, BeforeValidator(_positive)]
SessionId = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value)]


def only(*names: str) -> Any:
    """For ``json_schema_extra``: the schema shows these arguments, in short; others are taken all the same.

    Every request pays for a schema, and what is wrong with a value is told when it is given.
    """

    def trim(schema: dict[str, Any]) -> None:
        kept = {name: schema["properties"][name] for name in names}
        for described in kept.values():
            for word in ("default", "minLength", "exclusiveMinimum", "additionalProperties"):
                described.pop(word, None)
            if any(choice == {"type": "null"} for choice in described.get("anyOf", ())):
                described.update(described.pop("anyOf")[0])
                described.pop("exclusiveMinimum", None)
            if described.get("type") == "number":
                described["type"] = "integer"
        schema["properties"] = kept

    return trim


class SessionArguments(Given):
    """Which process, and how long to wait for what it prints."""

    model_config = ConfigDict(json_schema_extra=only("session_id"))

    session_id: SessionId = Field(min_length=1)
    yield_ms: Annotated[TimeMs, Also("yield_time_ms")] = None
    poll_lines: PollLines = None


class WriteArguments(SessionArguments):
    """What to write to a process."""

    chars: Annotated[str, Also(blank=True)] = ""
    newline: Annotated[bool, Also("append_newline")] = Field(False, alias="submit")
