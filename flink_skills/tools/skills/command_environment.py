"""Programs, variables and platform of the commands of a job, as far as a skill can require them."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Mapping

from flink_skills.execution.command_variables import base_environment, passed_on
from flink_skills.execution.workspace import command_python
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.skill.support import RuntimeEnvironment

# Set for every command, whatever the worker's own environment is.
_ALWAYS = frozenset(
    {
        *("HOME", "TMPDIR", "WORKSPACE_DIR", "SKILLS_DIR", "WORK_DIR", "OUTPUT_DIR", "RUN_DIR"),
        *("SKILL_NAME", "FLINK_SKILLS_CALL_ID"),
    }
)


def command_environment(
    config: SkillConfig, environ: Mapping[str, str] | None = None, *, remote: bool | None = None
) -> RuntimeEnvironment:
    """Return what commands have in a worker with the environment ``environ``, by default that of this process.

    With ``remote``, they run on Linux on other machines with unknown programs. None means the option
    ``skills.shell.backend``. A job without commands misses no programs and variables, because skills are only read.

    >>> config = SkillConfig({"skills.env.report.API_TOKEN": "${env:REPORT_TOKEN}"})
    >>> command_environment(config).has_variable("API_TOKEN", "report")
    True
    """
    environ = os.environ if environ is None else environ
    if not config.get(SkillOptions.SHELL_ENABLED):
        return RuntimeEnvironment()
    own: defaultdict[str, set[str]] = defaultdict(set)
    for key in config.family(SkillOptions.SKILL_ENV):
        skill, _, name = key.rpartition(".")
        own[skill].add(name)
    base = base_environment(environ, sys.executable)
    python = command_python(base["PATH"], sys.executable)
    given: tuple[str, ...] = config.get(SkillOptions.SHELL_ENV)
    names = frozenset({*_ALWAYS, *base, *passed_on(environ, given)})
    if remote is None:
        remote = config.get(SkillOptions.SHELL_BACKEND).strip().lower() == "remote"
    platform, path = ("linux", None) if remote else (sys.platform, python.path)
    programs = frozenset() if remote else frozenset(python.programs)
    of_skills = {skill: frozenset(found) for skill, found in own.items()}
    return RuntimeEnvironment(platform, path, names, of_skills, programs)
