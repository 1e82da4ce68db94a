"""Commands as models run them: the shell, a job's policy, variables of skills and hidden values."""

from flink_skills.tools.commands.denials import Denials
from flink_skills.tools.commands.hidden import HIDDEN, HiddenValues, SkillVariables
from flink_skills.tools.commands.policy import CommandPlace, CommandPolicy, split_words

__all__ = ["HIDDEN", "CommandPlace", "CommandPolicy", "Denials", "HiddenValues", "SkillVariables", "split_words"]
