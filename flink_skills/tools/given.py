"""Arguments as models give them: whichever spelling of a name they use, and none that is lost without a word."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from flink_skills.tools.arguments import ArgumentError

__all__ = ["Given", "also"]

# What is at least this much like the name of an argument was meant to be one.
_ALIKE = 0.75
_ALSO = "also"


def also(*names: str) -> dict[str, Any]:
    """For ``Field(json_schema_extra=…)`` of a :class:`Given`: other names of the argument. No schema shows them."""

    def keep(schema: dict[str, Any]) -> None:
        del schema

    return {"json_schema_extra": _Also(names), "_": keep}
