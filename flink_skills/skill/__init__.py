"""The skill format: model, parser, diagnostics, digest. Imports nothing of the layers above.

Start with :func:`load_folder` for one skill, :func:`find_skills` for a tree of them.
"""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.skill.agent_skill import AgentSkill as AgentSkill
    from flink_skills.skill.credentials import find_credential as find_credential
    from flink_skills.skill.diagnostic import CODES as CODES
    from flink_skills.skill.diagnostic import Diagnostic as Diagnostic
    from flink_skills.skill.diagnostic import Report as Report
    from flink_skills.skill.frontmatter import find_block as find_block
    from flink_skills.skill.frontmatter import read_front_matter as read_front_matter
    from flink_skills.skill.frontmatter import split_body as split_body
    from flink_skills.skill.loader import Found as Found
    from flink_skills.skill.loader import LoadResult as LoadResult
    from flink_skills.skill.loader import find_servers as find_servers
    from flink_skills.skill.loader import find_skills as find_skills
    from flink_skills.skill.loader import load_folder as load_folder
    from flink_skills.skill.loader import load_found as load_found
    from flink_skills.skill.skill_body import file_references as file_references
    from flink_skills.skill.skill_body import without_code as without_code
    from flink_skills.skill.skill_fields import Fields as Fields
    from flink_skills.skill.skill_fields import judge_fields as judge_fields
    from flink_skills.skill.skill_files import FolderFiles as FolderFiles
    from flink_skills.skill.skill_files import MemoryFiles as MemoryFiles
    from flink_skills.skill.skill_files import SkillFiles as SkillFiles
    from flink_skills.skill.skill_files import digest_of as digest_of
    from flink_skills.skill.skill_inspection import inspect_skill as inspect_skill
    from flink_skills.skill.skill_limits import Limits as Limits
    from flink_skills.skill.support import RuntimeEnvironment as RuntimeEnvironment
    from flink_skills.skill.support import check_support as check_support
    from flink_skills.skill.support import missing_requirements as missing_requirements
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
