"""The limits of each turn by the options of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from flink_skills.options import SkillConfig, SkillOptions

__all__ = ["TurnLimits"]


class TurnLimits(NamedTuple):
    """The options that each turn needs, read once: a turn would look them up a dozen times.

    ``seconds`` is None, and ``tokens``, ``history`` and ``conversations`` are 0, where there is no limit. ``history``
    is in tokens and ``size`` in bytes. ``polling`` overrides :attr:`flink_skills.Tool.repeats` by the name of the tool.
    """

    seconds: float | None
    steps: int
    tokens: int
    size: int
    output_retries: int
    history: int
    conversations: int
    fails_job: bool
    repeats: int
    polling: Mapping[str, bool]

    @classmethod
    def of(cls, config: SkillConfig) -> TurnLimits:
        """Return the limits of a job."""
        return cls(
            seconds=config.get(SkillOptions.TURN_TIMEOUT) or None,
            steps=config.get(SkillOptions.TURN_MAX_STEPS),
            tokens=config.get(SkillOptions.TURN_MAX_TOKENS),
            size=config.get(SkillOptions.TURN_MAX_SIZE),
            output_retries=config.get(SkillOptions.TURN_MAX_OUTPUT_RETRIES),
            history=config.get(SkillOptions.SESSION_MAX_TOKENS),
            conversations=config.get(SkillOptions.SESSION_MAX_CONVERSATIONS),
            fails_job=config.get(SkillOptions.TURN_ON_ERROR) == "fail",
            repeats=config.get(SkillOptions.TURN_MAX_REPEATS),
            polling=config.family(SkillOptions.TOOL_REPEATS_OF),
        )
