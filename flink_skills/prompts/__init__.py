"""Prompts, and events as text for models."""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.prompts.event_values import event_text as event_text
    from flink_skills.prompts.event_values import fields_of_type as fields_of_type
    from flink_skills.prompts.event_values import to_plain as to_plain
    from flink_skills.prompts.prompt import Prompt as Prompt
    from flink_skills.prompts.prompt import check_instructions as check_instructions
    from flink_skills.prompts.prompt import check_names as check_names
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
