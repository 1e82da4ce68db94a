"""Requests of a skill that this runtime does not support. They do not make a skill invalid."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from flink_skills.errors import ResourceError
from flink_skills.skill.agent_skill import AgentSkill
from flink_skills.skill.diagnostic import Diagnostic, Report
from flink_skills.skill.server_files import PluginServer
from flink_skills.skill.skill_body import read_body, without_code
from flink_skills.skill.skill_limits import Limits

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
_DEFAULT_LIMITS = Limits()
_COMMAND_TOOLS = frozenset({"bash", "shell", "sh", "execute_shell_command", "run_shell_command", "exec", "terminal"})
_SKILL_TOOLS = frozenset({"load_skill", "unload_skill", "load_skill_resource", "skill"})
# Tools that a model has with another profile, in the spelling of this runtime.
_PROFILE_TOOLS = frozenset(
    {"skill_list", "skill_load", "skill_unload", "skill_list_docs", "skill_select_docs", "skill_list_tools",
     "skill_select_tools", "skill_run", "skill_exec", "skill_write_stdin", "skill_poll_session", "skill_kill_session"}
)  # fmt: skip
# Tools of other agents, and the ready-made tool that does the same here for an agent that declares it.
_READY_MADE_TOOLS: Mapping[str, str] = {
    **dict.fromkeys(("read", "read_file", "view", "notebookread"), "Read"),
    **dict.fromkeys(("write", "write_file", "create"), "Write"),
    **dict.fromkeys(("edit", "multiedit", "str_replace", "notebookedit"), "Edit"),
    **dict.fromkeys(("glob", "ls", "list", "list_files"), "Glob"),
    **dict.fromkeys(("grep", "search"), "Grep"),
    **dict.fromkeys(("webfetch", "web_fetch", "fetch"), "web_fetch"),
    **dict.fromkeys(("websearch", "web_search"), "web_search"),
}
# Tools of other agents that have no counterpart here, and that a shell command replaces.
_PROCESS_TOOLS = frozenset({"bashoutput", "killshell", "killbash"})
_FILE_TOOLS = frozenset({"Read", "Write", "Edit", "Glob", "Grep"})
_INTERPRETERS: Mapping[str, tuple[str, ...]] = {
    ".py": ("python3", "python"), ".sh": ("sh",), ".bash": ("bash",), ".zsh": ("zsh",), ".fish": ("fish",),
    ".js": ("node", "bun", "deno"), ".mjs": ("node", "bun", "deno"), ".cjs": ("node", "bun"),
    ".ts": ("tsx", "ts-node", "bun", "deno", "node"), ".tsx": ("tsx", "bun", "deno"), ".rb": ("ruby",),
    ".pl": ("perl",), ".php": ("php",), ".r": ("Rscript",), ".jl": ("julia",), ".lua": ("lua",), ".go": ("go",),
    ".java": ("java",), ".jar": ("java",), ".scala": ("scala",), ".groovy": ("groovy",), ".swift": ("swift",),
    ".ex": ("elixir",), ".exs": ("elixir",), ".clj": ("clojure", "bb"), ".awk": ("awk",), ".tcl": ("tclsh",),
    ".ps1": ("pwsh",),
}  # fmt: skip
_ONLY_WINDOWS = frozenset({".bat", ".cmd", ".exe", ".vbs"})
_ONLY_MACOS = frozenset({".applescript", ".scpt"})
_SCRIPT_FOLDERS = ("scripts/", "bin/")
# mcp__SERVER__TOOL, in which a client adds "plugin_" and the name of the plugin to the server.
_SERVER_TOOL = re.compile(r"(?<![A-Za-z0-9_])mcp__[A-Za-z0-9_-]+")
_BODY_COMMAND = re.compile(r"(?:^|(?<=\s))!`[^`\n]+`")
_ARGUMENTS = re.compile(r"\$ARGUMENTS\b|\$\{ARGUMENTS\}")
# Only where the skill says that it takes arguments, and not in code: elsewhere these are prices and shell code.
_ARGUMENT = re.compile(r"(?:^|(?<=[\s\"'(]))\$[1-9](?![\w.,])")


@dataclass(frozen=True)
class RuntimeEnvironment:
    """Programs and variables for skills' commands.

    ``path`` lists the directories of programs, None if it is unknown. ``variables`` are the names that all commands
    have, and ``of_skills`` the additional ones for one skill. ``variables`` is None if no commands run,
    so that nothing can be missing for them. ``programs`` are names of programs in addition to those on ``path``.

    >>> RuntimeEnvironment("linux", "/bin:/usr/bin", frozenset({"LANG"})).has_program("sh")
    True
    """

    platform: str = sys.platform
    path: str | None = None
    variables: Collection[str] | None = None
    of_skills: Mapping[str, Collection[str]] = field(default_factory=dict)
    programs: Collection[str] = ()

    @classmethod
    def of_this_process(cls) -> RuntimeEnvironment:
        """Return this process's environment."""
        return cls(sys.platform, os.environ.get("PATH", os.defpath), frozenset(os.environ))

    def has_program(self, name: str) -> bool:
        """Return True if a command would find the program ``name``, or if that is unknown."""
        return self.path is None or name in self.programs or shutil.which(name, path=self.path) is not None

    def has_variable(self, name: str, skill: str) -> bool:
        """Return True if commands of ``skill`` have the variable ``name``."""
        return self.variables is None or name in self.variables or name in self.of_skills.get(skill, ())


def missing_requirements(skill: AgentSkill, environment: RuntimeEnvironment | None = None) -> list[str]:
    """Return a phrase for each missing requirement in ``requires`` and ``os``, by default for this process.

    They are read from the top level, from ``metadata`` and from maps in it, such as
    ``metadata: {openclaw: {requires: …}}``. ``bins`` and ``anyBins`` are searched on the path and in the skill's
    ``bin/``, ``env`` among the variables. With ``always: true`` nothing is missing. Other requirements, such as
    ``config``, belong to other runtimes and are ignored.

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


def check_support(
    skill: AgentSkill,
    *,
    commands: bool = True,
    tools: Collection[str] = (),
    limits: Limits = _DEFAULT_LIMITS,
    environment: RuntimeEnvironment | None = None,
    servers: Callable[[], Iterable[PluginServer]] = tuple,
    started: Collection[str] = (),
) -> list[Diagnostic]:
    """Return a diagnostic for each request that does not work here.

    ``commands`` states whether models can run shell commands, ``tools`` are names of further tools that exist,
    ``environment`` is the commands' one, by default this process's. ``servers`` returns the MCP servers of plugins, and
    ``started`` has the full names of those that the job starts.

    >>> skill = AgentSkill("a", "Does it.", allowed_tools=("Bash(git *)", "Task", "WebFetch"))
    >>> [diagnostic.message for diagnostic in check_support(skill)]
    ["allowed-tools names 'Task', which does not exist here",
     "allowed-tools names 'WebFetch': an agent that declares web_fetch has this tool"]
    """
    report = Report(f"{skill.path}/{skill.files.skill_file}" if skill.path else "", skill=skill.name)
    there = environment or RuntimeEnvironment.of_this_process()
    _fields(skill, report)
    try:
        own = _named_servers(skill, servers)
        for name in dict.fromkeys(own.values()):
            if name not in started:
                message = f"the skill names tools of the MCP server {name!r} of its plugin, which is not started"
                report.add("U13", message, fix=f"add {name!r} to skills.plugins.servers")
        _tools(skill, report, commands, {*tools, *own})
        _scripts(skill.files.paths(), report, commands, there)
        _body(skill, report, limits)
    except (ResourceError, OSError) as error:
        report.add("D05", str(error))
    for message in missing_requirements(skill, there):
        report.add("U09", message)
    return report.diagnostics


def _named_servers(skill: AgentSkill, servers: Callable[[], Iterable[PluginServer]]) -> dict[str, str]:
    """Return the names of tools of its plugin's servers in the fields of a skill, each with its server's full name."""
    fields = (skill.description, skill.allowed_tools, skill.compatibility, dict(skill.metadata), dict(skill.extra))
    names = set(_SERVER_TOOL.findall(str(fields))) if skill.plugin else set()
    found: dict[str, str] = {}
    for server in servers() if names else ():
        if server.plugin == skill.plugin:
            full = f"plugin_{server.plugin}_{server.name}"
            starts = tuple(f"mcp__{re.sub(r'[^A-Za-z0-9_-]', '_', name)}__" for name in (server.name, full))
            found |= {name: server.full_name for name in names if f"{name}__".startswith(starts)}
    return found


def _tools(skill: AgentSkill, report: Report, commands: bool, tools: Collection[str]) -> None:
    here = _SKILL_TOOLS | ((_COMMAND_TOOLS | _PROCESS_TOOLS) if commands else frozenset())
    here |= {name.lower() for name in tools}
    here |= {name.lower() for name in skill.tools} if skill.allowed_tools else frozenset()
    unknown: list[str] = []
    ready: dict[str, str] = {}
    profile: list[str] = []
    for allowed in skill.allowed_tools or ():
        name = allowed.split("(")[0]
        if not name or name == "*" or name.lower() in here:
            continue
        if name in _PROFILE_TOOLS:
            profile.append(name)
        elif name.lower() in _READY_MADE_TOOLS:
            ready[name] = _READY_MADE_TOOLS[name.lower()]
        else:
            unknown.append(name)
    if unknown:
        report.add("U01", f"allowed-tools names {_listed(unknown)}, which {_do(unknown)} not exist here")
    if ready:
        ours = list(dict.fromkeys(ready.values()))
        has = "this tool" if len(ours) == 1 else "these tools"
        also = ", and shell commands read and write files" if commands and _FILE_TOOLS.issuperset(ours) else ""
        names = ", ".join(ours)
        report.add("U02", f"allowed-tools names {_listed(ready)}: an agent that declares {names} has {has}{also}")
    if profile:
        them = "it" if len(set(profile)) == 1 else "them"
        report.add("U02", f"allowed-tools names {_listed(profile)}: a model has {them} if skills.tools names {them}")


def _fields(skill: AgentSkill, report: Report) -> None:
    if skill.extra.get("hooks"):
        report.add("U05", "the skill declares hooks, which are never run")
    for name in ("context", "agent", "model"):
        value = skill.extra.get(name)
        if value and value not in ("inherit", "inline", "default"):
            report.add("U06", f"{name!r} ({_short(value)}) changes nothing: the skill runs in the agent that loads it")


def _scripts(paths: Collection[str], report: Report, commands: bool, there: RuntimeEnvironment) -> None:
    scripts = [path for path in paths if path.startswith(_SCRIPT_FOLDERS)]
    by_suffix: dict[str, list[str]] = {}
    for path in scripts:
        by_suffix.setdefault(os.path.splitext(path)[1].lower(), []).append(path)
    runnable = [path for suffix, below in by_suffix.items() if _language(suffix) for path in below]
    if runnable and not commands:
        report.add("U04", f"{_listed(runnable)} cannot be run: models have no shell commands here")
        return
    reasons = {suffix: _missing_interpreter(suffix, there) for suffix in by_suffix}
    # A skill with run.sh and run.bat works if one of them can run.
    served = {
        os.path.splitext(path)[0]
        for suffix, below in by_suffix.items()
        if _language(suffix) and not reasons[suffix]
        for path in below
    }
    for suffix, reason in sorted(reasons.items()):
        unserved = [path for path in by_suffix[suffix] if os.path.splitext(path)[0] not in served]
        if reason and unserved:
            report.add("U03", f"{_listed(unserved)} cannot be run: {reason}")


def _language(suffix: str) -> bool:
    return suffix in _INTERPRETERS or suffix in _ONLY_WINDOWS or suffix in _ONLY_MACOS


def _missing_interpreter(suffix: str, there: RuntimeEnvironment) -> str:
    if suffix in _ONLY_WINDOWS and there.platform != "win32":
        return "this is for Windows"
    if suffix in _ONLY_MACOS and there.platform != "darwin":
        return "this is for macOS"
    names = _INTERPRETERS.get(suffix, ())
    if not names or any(there.has_program(name) for name in names):
        return ""
    return f"there is no {' or '.join(names)} on this machine"


def _body(skill: AgentSkill, report: Report, limits: Limits) -> None:
    text, first_line, _, _ = read_body(skill.files, limits.skill_file)
    lines = text.split("\n")
    if found := _first(_BODY_COMMAND, lines):
        report.add("U07", f"{_short(found[0])} is kept as text and not run", line=first_line + found[1])
    found = _first(_ARGUMENTS, lines)
    if not found and ("argument-hint" in skill.extra or "arguments" in skill.extra):
        found = _first(_ARGUMENT, without_code(text))
    if found:
        message = f"{found[0]} is kept as text: there are no arguments to fill in"
        report.add("U08", message, line=first_line + found[1])


def _first(pattern: re.Pattern[str], lines: list[str]) -> tuple[str, int] | None:
    for number, line in enumerate(lines):
        if match := pattern.search(line):
            return match.group(), number
    return None


def _listed(names: Collection[str]) -> str:
    shown = list(dict.fromkeys(names))
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    return ", ".join(repr(name) for name in shown[:5]) + more


def _do(names: Collection[str]) -> str:
    return "does" if len(set(names)) == 1 else "do"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"
