"""The environment of commands: an allowlist, so that a secret has to be named to be seen."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from flink_skills.errors import ConfigError

__all__ = ["base_environment", "is_blocked", "passed_on"]

_ALWAYS = frozenset({"PATH", "LANG", "LANGUAGE", "TZ"})
# Variables by which one program makes another load or run something.
_BLOCKED = frozenset(
    {
        *("BASH_ENV", "ENV", "IFS", "SHELLOPTS", "BASHOPTS", "PS4"),
        *("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "NODE_OPTIONS"),
        *("PERL5OPT", "PERL5LIB", "RUBYOPT", "RUBYLIB"),
    }
)
_BLOCKED_PREFIXES = ("LD_", "DYLD_", "PYTHON", "GIT_", "BASH_FUNC_")


def is_blocked(name: str) -> bool:
    """Whether a variable is never passed on to commands, whoever asks."""
    return name in _BLOCKED or name.startswith(_BLOCKED_PREFIXES)


def base_environment(source: Mapping[str, str], python: str = "") -> dict[str, str]:
    """What every command sees of ``source``: the path, the language and the time zone.

    The folder of the interpreter ``python`` goes to the end of the path, for machines that have no other.

    >>> base_environment({"PATH": "/bin", "API_KEY": "x", "TZ": "UTC"})
    {'LANG': 'C.UTF-8', 'PATH': '/bin', 'TZ': 'UTC'}
    """
    kept = {"LANG": "C.UTF-8", "PATH": os.defpath}
    kept.update((name, value) for name, value in source.items() if name in _ALWAYS or name.startswith("LC_"))
    folder = str(Path(python).parent) if python else ""
    if folder and folder not in kept["PATH"].split(os.pathsep):
        kept["PATH"] += os.pathsep + folder
    return kept


def passed_on(source: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """The variables ``names`` of ``source``, as far as they are set (option ``skills.shell.env``).

    Raises :class:`ConfigError` for a name that is never passed on.
    """
    wanted = list(names)
    for name in wanted:
        if is_blocked(name):
            raise ConfigError(
                f"option skills.shell.env: {name!r} is never passed on to commands, because it changes what "
                "programs load or run: remove it"
            )
    return {name: source[name] for name in wanted if name in source}
