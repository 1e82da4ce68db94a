"""Variables for the commands of one skill (options ``skills.env.<skill>.<NAME>``), read when they are needed."""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Mapping
from contextlib import suppress

from flink_skills.errors import ConfigError, ExecutionError
from flink_skills.execution import Workspace, command_variables
from flink_skills.execution.host import is_within
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.sources.secrets import expand
from flink_skills.tools.commands.hidden import HiddenValues

_log = logging.getLogger("flink_skills.shell")

# The workspace gives commands these, so that another value would be lost or would lead them elsewhere.
_RESERVED = frozenset(
    {
        *("PATH", "HOME", "TMPDIR", "VIRTUAL_ENV", "FLINK_SKILLS_CALL_ID"),
        *("WORKSPACE_DIR", "SKILLS_DIR", "WORK_DIR", "OUTPUT_DIR", "RUN_DIR", "SKILL_NAME"),
    }
)
_OUTPUT_DIR = "OUTPUT_DIR"


class SkillVariables:
    """The references of a job's ``skills.env`` options. Values are read at each use and stored only to be hidden.

    Every value is added to ``hidden`` before it is returned. Raises :class:`ConfigError`, which names the option, for a
    reserved variable.

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
        problems = []
        for key, reference in config.family(family).items():
            skill, _, name = key.rpartition(".")
            if problem := name_problem(name) or (_of_workspace(name) if name == _OUTPUT_DIR else ""):
                problems.append(f"option {family.prefix + key}: {problem}")
            self._references.setdefault(skill, {})[name] = reference
        if problems:
            raise ConfigError("; ".join(problems))

    def __contains__(self, skill: object) -> bool:
        return skill in self._references

    def names(self, skill: str | None) -> Container[str]:
        """Return the variable names of ``skill``."""
        return self._references.get(skill or "", {}).keys()

    def learn(self) -> None:
        """Read all values that can be read, to hide them. Blocks.

        This includes values that a command of another worker or of an earlier one wrote to a file. A reference that
        cannot be read is an error where it is used.
        """
        for skill in self._references:
            with suppress(ConfigError):
                self.values(skill)

    def values(self, skill: str | None) -> Mapping[str, str]:
        """Read and return the variables of ``skill``. Blocks.

        Raises :class:`ConfigError`, which names the option and the problem of its reference, and never a value.
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
                raise ConfigError(f"option {option}: the value of {reference} contains a NUL character: remove it")
            self._hidden.add(option, value)
            found[name] = value
        return found


def name_problem(name: str, taken: Container[str] = ()) -> str:
    """Return why a call cannot set the variable ``name``. Return an empty string if it can.

    >>> name_problem("HOME")
    'HOME is set for every command to a value of its workspace: leave it out, or choose another name'
    """
    if problem := command_variables.name_problem(name):
        return problem
    if name in taken:
        return f"{name} is set for this skill by the job: leave it out"
    return _of_workspace(name) if name in _RESERVED and name != _OUTPUT_DIR else ""


def _of_workspace(name: str) -> str:
    return f"{name} is set for every command to a value of its workspace: leave it out, or choose another name"


def call_variables(env: Mapping[str, str], workspace: Workspace, taken: Container[str] = ()) -> dict[str, str]:
    """Check and return the variables that a model requests for one call.

    ``taken`` are names that the job sets for the skill. ``OUTPUT_DIR`` can be another folder in the workspace that
    commands can write, also relative to the workspace. Raises :class:`ExecutionError`, which has all problems.

    >>> call_variables({"MODE": "fast", "OUTPUT_DIR": "out/today"}, workspace)
    {'MODE': 'fast', 'OUTPUT_DIR': '/tmp/job-7/ws_4f2a/out/today'}
    """
    problems = [problem for name in env if (problem := name_problem(name, taken))]
    problems += [f"the value of {name} contains a NUL character: remove it" for name in env if "\0" in env[name]]
    if problems:
        raise ExecutionError(f"env: {'; '.join(problems)}")
    found = dict(env)
    if _OUTPUT_DIR in found:
        value = found[_OUTPUT_DIR]
        found[_OUTPUT_DIR] = os.path.normpath(workspace.root / value)
        if not is_within(found[_OUTPUT_DIR], frozenset(workspace.writable)):
            raise ExecutionError(
                f"env: OUTPUT_DIR {value!r} is none of the folders that commands may write: choose one in out/ or work/"
            )
    return found
