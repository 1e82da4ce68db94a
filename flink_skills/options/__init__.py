"""Every option of the package: ``skills.*`` keys, their types, defaults and meaning.

One list serves code, Flink's configuration (``config.yaml``, ``-D``), the command line (``--set``)
and the documentation. Values are read in Flink's own notation: ``30 s`` for durations, ``64 mb``
for sizes, ``a;b`` for lists.
"""

from flink_skills.options.catalog import SkillOptions
from flink_skills.options.config import NO_OPTIONS, JobConfig, SkillConfig
from flink_skills.options.option import Option, OptionFamily

__all__ = ["NO_OPTIONS", "JobConfig", "Option", "OptionFamily", "SkillConfig", "SkillOptions"]
