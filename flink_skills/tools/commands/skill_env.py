"""Variables for the commands of one skill (options ``skills.env.<skill>.<NAME>``): read when they are needed."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from flink_skills.errors import ConfigError
from flink_skills.execution.environment import check_name
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.sources.secrets import expand
from flink_skills.tools.commands.hidden import HiddenValues

__all__ = ["SkillVariables"]

_log = logging.getLogger("flink_skills.shell")

# The workspace gives commands these, so that another value would be lost or would lead them elsewhere.
_RESERVED = frozenset(
    {
        *("PATH", "HOME", "TMPDIR", "VIRTUAL_ENV", "FLINK_SKILLS_CALL_ID"),
        *("WORKSPACE_DIR", "SKILLS_DIR", "WORK_DIR", "OUTPUT_DIR", "RUN_DIR", "SKILL_NAME"),
    }
)


class SkillVariables:
    """The references of a job's ``skills.env`` options. Values are read at each use and kept only to be hidden.

    ``hidden`` learns every value before it is given away. Raises :class:`ConfigError`, which names the option, for a
    variable that no skill may be given.

    >>> config = SkillConfig({"skills.env.report.API_TOKEN": "${env:REPORT_TOKEN}"})
    >>> variables = SkillVariables(config, HiddenValues())
    >>> os.environ["REPORT_TOKEN"] = "t0k3n-1"
    >>> variables.values("report"), variables.values("other")
    ({'API_TOKEN': 't0k3n-1'}, {})
    """

    def __init__(self, config: SkillConfig, hidden: HiddenValues) -> None:
        self._hidden = hidden
        self._references: dict[str, dict[str, str]] = {}
        family = SkillOptions.SKILL_ENV
        for key, reference in config.family(family).items():
            skill, _, name = key.rpartition(".")
            option = family.prefix + key
            check_name(option, name)
            if name in _RESERVED:
                raise ConfigError(
                    f"option {option}: {name} is set for every command already, to what belongs to its workspace: "
                    "choose another name"
                )
            self._references.setdefault(skill, {})[name] = reference

    def __contains__(self, skill: object) -> bool:
        return skill in self._references

    def values(self, skill: str | None) -> Mapping[str, str]:
        """The variables of ``skill``, read now; blocks while files are read.

        Raises :class:`ConfigError` that names the option and what its reference lacks, and never a value.
        """
        found: dict[str, str] = {}
        for name, reference in self._references.get(skill or "", {}).items():
            option = f"{SkillOptions.SKILL_ENV.prefix}{skill}.{name}"
            try:
                value = expand(reference)
            except ConfigError as error:
                _log.error("option %s: %s", option, error)
                raise ConfigError(f"option {option}: {error}") from None
            if "\0" in value:
                raise ConfigError(f"option {option}: what {reference} stands for holds a NUL character: remove it")
            self._hidden.add(option, value)
            found[name] = value
        return found
