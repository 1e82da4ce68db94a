"""The skill format: model, parser, diagnostics, digest. Imports nothing of the layers above.

Start with :func:`load_folder` for one skill, :func:`find_skills` for a tree of them.
"""

from flink_skills.skill.diagnostic import CODES, Diagnostic, Report
from flink_skills.skill.discovery import Found, find_skills
from flink_skills.skill.files import SkillFiles
from flink_skills.skill.limits import Limits
from flink_skills.skill.loader import LoadResult, load_folder
from flink_skills.skill.model import AgentSkill

__all__ = [
    "CODES",
    "AgentSkill",
    "Diagnostic",
    "Found",
    "Limits",
    "LoadResult",
    "Report",
    "SkillFiles",
    "find_skills",
    "load_folder",
]
