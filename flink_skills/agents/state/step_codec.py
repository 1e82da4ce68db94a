"""Writes the results of a user's durable steps into the journal, and reads them."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter
from pydantic_core import PydanticSerializationError

from flink_skills.errors import TurnError
from flink_skills.hints import type_hints

__all__ = ["StepCodec", "adapter_of"]


@dataclass(frozen=True)
class StepCodec:
    """Writes and reads results of one type; without a type, JSON-like data only.

    A fresh result goes the same way as a replayed one, so that a step cannot return one thing the first time and
    another after a restart (a tuple, say, that comes back as a list).
    """

    name: str
    adapter: TypeAdapter[Any] | None

    @classmethod
    def of(cls, fn: Callable[..., Any], result_type: Any, name: str) -> StepCodec:
        declared = result_type if result_type is not None else _return_type(fn)
        if declared is None or declared is Any:
            return cls(name, None)
        adapter = adapter_of(declared)
        if adapter is None and result_type is not None:
            raise TurnError(f"step {name!r}: pydantic cannot read result_type {result_type!r}")
        return cls(name, adapter)

    def dump(self, value: Any) -> Any:
        """``value`` as JSON-like data."""
        try:
            if self.adapter is not None:
                return self.adapter.dump_python(value, mode="json", warnings="error")
            return json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError, PydanticSerializationError) as error:
            raise TurnError(
                f"step {self.name!r} returned {type(value).__name__}, which the journal cannot keep ({error}): return "
                "JSON-like data, or give result_type="
            ) from error

    def load(self, kept: Any) -> Any:
        return kept if self.adapter is None else self.adapter.validate_python(kept)


def _return_type(fn: Callable[..., Any]) -> Any:
    try:
        return type_hints(fn).get("return")
    except (NameError, TypeError, AttributeError):
        # The annotation names something that only a type checker sees: treat it as missing.
        return None


@functools.lru_cache(maxsize=256)
def adapter_of(declared: Any) -> TypeAdapter[Any] | None:
    """Return the adapter of a type, None if pydantic cannot read it."""
    try:
        return TypeAdapter(declared)
    except (PydanticSchemaGenerationError, PydanticUserError):
        return None
