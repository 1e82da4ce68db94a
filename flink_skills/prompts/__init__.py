"""Prompts, and events as text for models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.prompts.event_values import event_text as event_text
    from flink_skills.prompts.event_values import fields_of_type as fields_of_type
    from flink_skills.prompts.event_values import to_plain as to_plain
    from flink_skills.prompts.prompt import Prompt as Prompt
    from flink_skills.prompts.prompt import check_instructions as check_instructions
    from flink_skills.prompts.prompt import check_names as check_names

_HOMES = {
    "Prompt": "prompt",
    "check_instructions": "prompt",
    "check_names": "prompt",
    "event_text": "event_values",
    "fields_of_type": "event_values",
    "to_plain": "event_values",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
