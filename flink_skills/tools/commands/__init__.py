"""Commands as models run them: the shell, a job's policy, variables of skills, results in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.tools.commands.denials import Denials as Denials
    from flink_skills.tools.commands.hidden import HIDDEN as HIDDEN
    from flink_skills.tools.commands.hidden import HiddenValues as HiddenValues
    from flink_skills.tools.commands.hidden import SkillVariables as SkillVariables
    from flink_skills.tools.commands.policy import CommandPlace as CommandPlace
    from flink_skills.tools.commands.policy import CommandPolicy as CommandPolicy
    from flink_skills.tools.commands.policy import split_words as split_words

_HOMES = {
    "CommandPlace": "policy",
    "CommandPolicy": "policy",
    "Denials": "denials",
    "HIDDEN": "hidden",
    "HiddenValues": "hidden",
    "SkillVariables": "hidden",
    "split_words": "policy",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
