"""Requirements of a skill (``requires``, in the forms that public skills use), and those that are missing."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from flink_skills.errors import ResourceError
from flink_skills.skill.model import AgentSkill

__all__ = ["RuntimeEnvironment", "missing_requirements"]

# The beginnings of what sys.platform may be.
_PLATFORMS: Mapping[str, tuple[str, ...]] = {
    "macos": ("darwin",),
    "mac": ("darwin",),
    "osx": ("darwin",),
    "windows": ("win32",),
    "win": ("win32",),
    "unix": ("linux", "darwin"),
    "posix": ("linux", "darwin"),
    **dict.fromkeys(("any", "all", "*"), ("",)),
}


@dataclass(frozen=True)
class RuntimeEnvironment:
    """What the commands of skills have where they run.

    ``path`` is where programs are looked up, None where that cannot be known from here. ``variables`` are the names
    that all commands have, ``of_skills`` those that the commands of one skill have besides; ``variables`` is None
    where no commands run, so that nothing can be missing for them. ``programs`` are names of programs that commands
    find besides those on ``path``.

    >>> Surroundings("linux", "/bin:/usr/bin", frozenset({"LANG"})).has_program("sh")
    True
    """

    platform: str = sys.platform
    path: str | None = None
    variables: Collection[str] | None = None
    of_skills: Mapping[str, Collection[str]] = field(default_factory=dict)
    programs: Collection[str] = ()

    @classmethod
    def of_this_process(cls) -> RuntimeEnvironment:
        """What this process has itself."""
        return cls(sys.platform, os.environ.get("PATH", os.defpath), frozenset(os.environ))

    def has_program(self, name: str) -> bool:
        """Whether a command would find the program ``name``; True where that cannot be known."""
        return self.path is None or name in self.programs or shutil.which(name, path=self.path) is not None

    def has_variable(self, name: str, skill: str) -> bool:
        """Whether commands of ``skill`` have the variable ``name``."""
        return self.variables is None or name in self.variables or name in self.of_skills.get(skill, ())


def missing_requirements(skill: AgentSkill, environment: RuntimeEnvironment | None = None) -> list[str]:
    """What ``requires`` and ``os`` ask for and is not there (by default: for this process), in a phrase each.

    Read from the top level, from ``metadata`` and from maps in it (as ``metadata: {openclaw: {requires: …}}``
    has it): ``bins`` and ``anyBins`` are looked up on the path and in the skill's own ``bin/``, ``env`` among the
    variables. With ``always: true`` nothing counts as missing. Other kinds, such as ``config``, belong to other
    runtimes and are passed over.

    >>> skill = AgentSkill("a", "Does it.", extra={"requires": {"bins": ["no-such-program"]}})
    >>> missing_requirements(skill)
    ["the program 'no-such-program' is not on the path"]
    """
    declared = list(_declarations(skill))
    if any(_is_true(one.get("always")) for one in declared):
        return []
    there = environment or RuntimeEnvironment.of_this_process()
    return list(dict.fromkeys(message for one in declared for message in _missing(one, skill, there)))


def _declarations(skill: AgentSkill) -> Iterator[Mapping[str, Any]]:
    yield skill.extra
    metadata = {key: _parsed(text) for key, text in skill.metadata.items()}
    yield metadata
    for value in metadata.values():
        if isinstance(value, dict):
            yield value


def _parsed(text: str) -> Any:
    """A metadata value: maps and lists are kept as JSON there."""
    if not text.startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _missing(declared: Mapping[str, Any], skill: AgentSkill, there: RuntimeEnvironment) -> Iterator[str]:
    systems = _names(declared.get("os"))
    if systems and not any(_is_platform(name, there.platform) for name in systems):
        yield f"the skill is for {' or '.join(systems)}"
    requires = declared.get("requires")
    if not isinstance(requires, Mapping):
        return
    for name in (*_names(requires.get("bins")), *_names(requires.get("binaries"))):
        if not _has_program(name, skill, there):
            yield f"the program {name!r} is not on the path"
    for key in ("anyBins", "any_bins"):
        names = _names(requires.get(key))
        if names and not any(_has_program(name, skill, there) for name in names):
            yield f"none of the programs {', '.join(map(repr, names))} is on the path"
    for name in _names(requires.get("env")):
        if not there.has_variable(name, skill.name):
            yield f"the environment variable {name} is not set"


def _is_platform(name: str, platform: str) -> bool:
    return platform.startswith(_PLATFORMS.get(name.lower(), (name.lower(),)))


def _has_program(name: str, skill: AgentSkill, there: RuntimeEnvironment) -> bool:
    return there.has_program(name) or _brings(skill, name)


def _brings(skill: AgentSkill, program: str) -> bool:
    # Commands of a skill have its bin/ at the end of their path.
    try:
        return f"bin/{program}" in skill.files.paths()
    except (ResourceError, OSError):
        return False


def _is_true(value: Any) -> bool:
    return value is True or (isinstance(value, str) and value.strip().lower() in ("true", "yes", "on"))


def _names(value: Any) -> list[str]:
    if isinstance(value, str):
        return [name for name in value.replace(",", " ").split() if name]
    if isinstance(value, (list, tuple)):
        return [item for item in value if isinstance(item, str) and item]
    return []
