"""The command environment: an allowlist, so that commands see only named secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from flink_skills.errors import ConfigError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ALWAYS = frozenset({"PATH", "LANG", "LANGUAGE", "TZ"})
# Variables with which one program has another load or run something.
_BLOCKED = frozenset(
    {
        *("BASH_ENV", "ENV", "IFS", "SHELLOPTS", "BASHOPTS", "PS0", "PS4", "PROMPT_COMMAND", "BASH_LOADABLES_PATH"),
        *("ZDOTDIR", "CDPATH", "GLOBIGNORE", "EXECIGNORE", "LESSOPEN", "LESSCLOSE", "MANPAGER"),
        *("GCONV_PATH", "GETCONF_DIR", "HOSTALIASES", "LOCALDOMAIN", "LOCPATH", "NIS_PATH", "NLSPATH", "RES_OPTIONS"),
        *("RESOLV_HOST_CONF", "TZDIR", "GLIBC_TUNABLES", "CLASSPATH", "PHPRC", "PHP_INI_SCAN_DIR", "TCLLIBPATH"),
        *("AWKPATH", "AWKLIBPATH", "GTK_MODULES", "GIO_EXTRA_MODULES", "DOTNET_STARTUP_HOOKS"),
        *("ERL_AFLAGS", "ERL_FLAGS"),
        *("R_PROFILE", "R_PROFILE_USER", "R_ENVIRON", "R_ENVIRON_USER", "SSLKEYLOGFILE"),
    }
)
_BLOCKED_PREFIXES = (
    *("LD_", "DYLD_", "BASH_FUNC_", "MALLOC_", "OPENSSL_"),
    *("PYTHON", "GIT_", "PERL5", "PERLLIB", "RUBYOPT", "RUBYLIB", "NODE_OPTIONS", "NODE_PATH", "NODE_REPL_"),
    *("NPM_CONFIG_", "npm_config_", "LUA_", "CORECLR_", "JAVA_TOOL_OPTIONS", "JDK_JAVA", "_JAVA_OPTIONS"),
    *("MAVEN_OPTS", "MAVEN_ARGS", "GRADLE_OPTS"),
)


def is_blocked(name: str) -> bool:
    """Return True if a variable is never passed to commands.

    >>> is_blocked("LD_PRELOAD"), is_blocked("API_TOKEN")
    (True, False)
    """
    return name in _BLOCKED or name.startswith(_BLOCKED_PREFIXES)


def name_problem(name: str) -> str:
    """Return why a variable is never passed to commands. Return an empty string for one that can be passed."""
    if not _NAME.fullmatch(name):
        return f"{name!r} is not a valid name of a variable: use letters, digits and '_'"
    if is_blocked(name):
        return (
            f"{name!r} is never passed on to commands, because variables of this name change what programs load or "
            "run: remove it, or choose another name"
        )
    return ""


def base_environment(source: Mapping[str, str], python: str = "") -> dict[str, str]:
    """Return the variables of ``source`` for every command: the path, the language and the time zone.

    The directory of the interpreter ``python`` is the last one of the path, for hosts without another interpreter.

    >>> base_environment({"PATH": "/bin", "API_KEY": "x", "TZ": "UTC"})
    {'LANG': 'C.UTF-8', 'PATH': '/bin', 'TZ': 'UTC'}
    """
    env = {"LANG": "C.UTF-8", "PATH": os.defpath}
    env.update((name, value) for name, value in source.items() if name in _ALWAYS or name.startswith("LC_"))
    folder = str(Path(python).parent) if python else ""
    if folder and folder not in env["PATH"].split(os.pathsep):
        env["PATH"] += os.pathsep + folder
    return env


def passed_on(source: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return those of the variables ``names`` that are set in ``source`` (option ``skills.shell.env``).

    Raises :class:`ConfigError` for all names that are never passed on.
    """
    wanted = list(names)
    if problems := [problem for name in wanted if (problem := name_problem(name))]:
        raise ConfigError(f"option skills.shell.env: {'; '.join(problems)}")
    return {name: source[name] for name in wanted if name in source}
