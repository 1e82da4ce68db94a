"""The arguments of a call as far as a model has written them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic_core import from_json

from flink_skills.telemetry.surrogates import replace_surrogates

__all__ = ["StreamedArguments"]


@dataclass(frozen=True)
class StreamedArguments:
    """What a model has written so far of the arguments of a call.

    ``tool`` is the tool's name, ``model_call_id`` what the model calls the call. ``delta`` is what is new since the
    tool was told last, and ``text`` all of it: JSON without its end. With ``discarded`` nothing of it counts: the model
    is asked again, or there is no answer; ``text`` is empty then.

    >>> StreamedArguments("write", "call-1", ' "Dear Ms', '{"to": "ann", "text": "Dear Ms').arguments
    {'to': 'ann', 'text': 'Dear Ms'}
    """

    tool: str
    model_call_id: str
    delta: str
    text: str
    discarded: bool = False

    @cached_property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments so far, not validated: the last text may go on, and the last number too. Empty where there is
        no JSON object yet, or what the model writes is none."""
        # Read when somebody looks: each time it is a walk over the whole text.
        try:
            found = from_json(replace_surrogates(self.text), allow_partial="trailing-strings", cache_strings="keys")
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}
