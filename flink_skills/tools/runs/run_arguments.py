"""Arguments of ``skill_run`` and of the tools for processes, in the names of both source systems."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator
from pydantic_core import PydanticCustomError

from flink_skills.tools.argument_model import Also, ArgumentModel, as_list, as_object
from flink_skills.tools.commands.folders import STDIN_DESCRIPTION

_MAX_FILES = 100
_MAX_FILE_BYTES = 4 << 20
_MAX_TOTAL_BYTES = 64 << 20


def _outputs(value: Any) -> Any:
    """Return the value of ``outputs``. Patterns alone are inlined, as those of ``output_files``."""
    value = as_object(value)
    if not isinstance(value, str | list | tuple):
        return value
    globs = as_list(list(value) if isinstance(value, tuple) else value, split=True)
    if len(globs) == 1 and isinstance(globs[0], Mapping):
        return globs[0]
    return {"globs": globs, "inline": True} if globs else None


def _environment(value: Any) -> Any:
    """Return variables with strings: a truth value is spelled as in JSON, and a null is omitted."""
    value = as_object(value)
    if not isinstance(value, Mapping):
        return value
    return {
        name: str(text).lower() if isinstance(text, bool) else text for name, text in value.items() if text is not None
    }


_Patterns = Annotated[
    list[str],
    BeforeValidator(partial(as_list, split=True)),
    WithJsonSchema({"type": "array", "items": {"type": "string"}}),
]


class _Part(ArgumentModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    @classmethod
    def normalized(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            raise PydanticCustomError("object", "this has to be an object")
        return super().normalized(given)


class RunInput(_Part):
    """One input: ``source`` is ``artifact://``, ``workspace://``, ``skill://`` or ``host://``."""

    source: Annotated[str, Also("src")] = Field(min_length=1, alias="from")
    to: Annotated[str, Also("dst")] = ""
    mode: Literal["copy", "link"] = "copy"
    pin: bool = False

    @classmethod
    def normalized(cls, given: Any) -> Any:
        """Return the fields of an input. A source alone is an input as well."""
        return super().normalized({"from": given} if isinstance(given, str) else given)

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


class RunArguments(ArgumentModel):
    """The arguments of a run. ``timeout`` in seconds.

    >>> RunArguments.model_validate({"skill_name": "report", "cmd": "make", "outputFiles": "out/*.txt"}).output_files
    ['out/*.txt']
    """

    model_config = ConfigDict(coerce_numbers_to_str=True)

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
        BeforeValidator(as_list),
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
    def normalized(cls, given: Any) -> Any:
        """Return the arguments. Reject those without a skill or a command. A blank text or null counts as missing."""
        kept = super().normalized(given)
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


_Milliseconds = Annotated[
    float | None, BeforeValidator(_not_negative), Also("yield_time_ms"), WithJsonSchema({"type": "integer"})
]
_Lines = Annotated[int | None, BeforeValidator(_positive)]


class ExecArguments(RunArguments):
    """The arguments of ``skill_exec``: those of ``skill_run``, and its own."""

    tty: bool = Field(False, description="terminal")
    yield_ms: _Milliseconds = None
    poll_lines: _Lines = None


class SessionArguments(ArgumentModel):
    """A process, and the time to wait for its output."""

    session_id: Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value)] = Field(
        min_length=1
    )
    yield_ms: _Milliseconds = None
    poll_lines: _Lines = None


class WriteArguments(SessionArguments):
    """Input for a process."""

    chars: Annotated[str, Also(blank=True)] = ""
    newline: Annotated[bool, Also("append_newline")] = Field(False, alias="submit")
