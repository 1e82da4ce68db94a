"""What a model may say of a run (rows F1 to F17), in the names that both source systems use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel, to_pascal
from pydantic_core import PydanticCustomError

__all__ = ["RunArguments", "RunInput", "RunOutputs"]

_MOST_FILES = 100
_MOST_FILE_BYTES = 4 << 20
_MOST_TOTAL_BYTES = 64 << 20


def _names(first: str, *more: str) -> AliasChoices:
    """The name that the schema shows, and others that mean the same."""
    return AliasChoices(*dict.fromkeys((first, *more, to_pascal(first), to_camel(first))))


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


def _object(value: Any) -> Any:
    """An object that was written as JSON text."""
    if isinstance(value, str) and value.strip().startswith("{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _said(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _slim(schema: dict[str, Any]) -> None:
    # Defaults are what happens when an argument is left out; a model that leaves it out need not know.
    for described in schema.get("properties", {}).values():
        described.pop("default", None)
        if any(choice == {"type": "null"} for choice in described.get("anyOf", ())):
            described.update(described.pop("anyOf")[0])


_Patterns = Annotated[
    list[str], BeforeValidator(_listed), WithJsonSchema({"type": "array", "items": {"type": "string"}})
]


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        """A null is an argument that was left out."""
        return _said(given) if isinstance(given, Mapping) else given


class RunInput(_Part):
    """One input (rows F7 to F10): ``source`` is ``artifact://``, ``workspace://``, ``skill://`` or ``host://``."""

    source: str = Field(min_length=1, validation_alias=_names("from", "src", "source"))
    to: str = Field(default="", validation_alias=_names("to", "dst"))
    mode: Literal["copy", "link"] = Field("copy", validation_alias=_names("mode"))
    pin: bool = Field(default=False, validation_alias=_names("pin"))

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, given: Any) -> Any:
        """A source alone is an input as well."""
        return {"from": given} if isinstance(given, str) else given

    @field_validator("mode", mode="before")
    @classmethod
    def _mode(cls, value: Any) -> Any:
        return (value.strip().lower() or "copy") if isinstance(value, str) else value


class RunOutputs(_Part):
    """Which files are outputs, and what becomes of them (row F12). Sizes in bytes."""

    globs: _Patterns = Field(default_factory=list, validation_alias=_names("globs"))
    inline: bool = Field(default=False, validation_alias=_names("inline"))
    save: bool = Field(default=False, validation_alias=_names("save"))
    name_template: str = Field(default="", validation_alias=_names("name_template"))
    max_files: int = Field(default=_MOST_FILES, validation_alias=_names("max_files"))
    max_file_bytes: int = Field(default=_MOST_FILE_BYTES, validation_alias=_names("max_file_bytes"))
    max_total_bytes: int = Field(default=_MOST_TOTAL_BYTES, validation_alias=_names("max_total_bytes"))

    @field_validator("max_files", "max_file_bytes", "max_total_bytes", mode="after")
    @classmethod
    def _limit(cls, value: int, info: Any) -> int:
        # A model may ask for less, not for more; 0 and below stand for the default, as where these come from.
        most = {"max_files": _MOST_FILES, "max_file_bytes": _MOST_FILE_BYTES}.get(info.field_name, _MOST_TOTAL_BYTES)
        return min(value, most) if value > 0 else most


class RunArguments(BaseModel):
    """The arguments of a run. ``timeout`` in seconds.

    A face that has more of its own is made from it: ``class ExecArguments(RunArguments)``.

    >>> RunArguments.model_validate({"skill_name": "report", "cmd": "make", "outputFiles": "out/*.txt"}).output_files
    ['out/*.txt']
    """

    model_config = ConfigDict(
        extra="ignore", coerce_numbers_to_str=True, populate_by_name=True, json_schema_extra=_slim
    )

    skill: str = Field(validation_alias=_names("skill", "skill_name", "name"))
    command: str = Field(validation_alias=_names("command", "cmd"))
    cwd: str | None = Field(
        default=None, validation_alias=_names("cwd", "workdir"), description="In the skill, or $WORK_DIR/…"
    )
    env: Annotated[
        dict[str, str],
        BeforeValidator(_object),
        WithJsonSchema({"type": "object"}),
    ] = Field(default_factory=dict, validation_alias=_names("env"))
    stdin: str | None = Field(default=None, validation_alias=_names("stdin"))
    editor_text: str | None = Field(default=None, validation_alias=_names("editor_text"), description="for $EDITOR")
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
    ] = Field(default_factory=list, validation_alias=_names("inputs"))
    output_files: _Patterns = Field(
        default_factory=list,
        validation_alias=_names("output_files"),
        description="Globs: out/*.txt",
    )
    outputs: Annotated[
        RunOutputs | None,
        BeforeValidator(_object),
        WithJsonSchema(
            {
                "type": "object",
                "description": "Or {globs, inline, save, name_template, max_files, max_file_bytes, max_total_bytes}",
            }
        ),
    ] = Field(default=None, validation_alias=_names("outputs"))
    timeout: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        validation_alias=_names("timeout", "timeout_sec"),
        description="seconds",
    )
    save_as_artifacts: bool = Field(default=False, validation_alias=_names("save_as_artifacts"))
    artifact_prefix: str = Field(default="", validation_alias=_names("artifact_prefix"))
    omit_inline_content: bool = Field(default=False, validation_alias=_names("omit_inline_content"))

    @model_validator(mode="before")
    @classmethod
    def _required(cls, given: Any) -> Any:
        """Row F1: a blank is as good as nothing. A null is an argument that was left out."""
        if not isinstance(given, Mapping):
            return given
        kept = _said(given)
        for name in ("skill", "command"):
            field = cls.model_fields[name]
            alias = field.validation_alias
            choices = [choice for choice in getattr(alias, "choices", ()) if isinstance(choice, str)]
            values = [kept[choice] for choice in (*choices, name) if choice in kept]
            if field.is_required() and not any(str(value).strip() for value in values):
                # "missing" keeps the arguments themselves out of the text for the model.
                raise PydanticCustomError("missing", "skill and command are required")
        return kept

    @field_validator("skill", mode="after")
    @classmethod
    def _plain(cls, value: str) -> str:
        return value.strip()
