"""Prompts, and events as text for models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.prompts.prompt import Prompt as Prompt
    from flink_skills.prompts.values import event_text as event_text
    from flink_skills.prompts.values import to_plain as to_plain

_HOMES = {"Prompt": "prompt", "event_text": "values", "to_plain": "values"}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
