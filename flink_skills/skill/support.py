"""Requests of a skill that this runtime does not support. They do not make a skill invalid."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from flink_skills.errors import ResourceError
from flink_skills.skill.body import read_body
from flink_skills.skill.diagnostic import Diagnostic, Report
from flink_skills.skill.limits import Limits
from flink_skills.skill.markdown import without_code
from flink_skills.skill.model import AgentSkill
from flink_skills.skill.requirements import RuntimeEnvironment, missing_requirements

__all__ = ["check_support"]

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
_BODY_COMMAND = re.compile(r"(?:^|(?<=\s))!`[^`\n]+`")
_ARGUMENTS = re.compile(r"\$ARGUMENTS\b|\$\{ARGUMENTS\}")
# Only where the skill says that it takes arguments, and not in code: elsewhere these are prices and shell code.
_ARGUMENT = re.compile(r"(?:^|(?<=[\s\"'(]))\$[1-9](?![\w.,])")


def check_support(
    skill: AgentSkill,
    *,
    commands: bool = True,
    tools: Collection[str] = (),
    limits: Limits = _DEFAULT_LIMITS,
    environment: RuntimeEnvironment | None = None,
) -> list[Diagnostic]:
    """Say what of a skill will not work here, each with the reason.

    ``commands`` is whether models can run shell commands, ``tools`` are names of further tools that exist,
    ``environment`` is what commands have (by default: what this process has).

    >>> skill = AgentSkill("a", "Does it.", allowed_tools=("Bash(git *)", "Task", "WebFetch"))
    >>> [diagnostic.message for diagnostic in check_support(skill)]
    ["allowed-tools names 'Task', which does not exist here",
     "allowed-tools names 'WebFetch': an agent that declares web_fetch has this tool"]
    """
    report = Report(f"{skill.path}/{skill.files.skill_file}" if skill.path else "")
    report.skill = skill.name
    there = environment or RuntimeEnvironment.of_this_process()
    _fields(skill, report)
    try:
        _tools(skill, report, commands, tools)
        _scripts(skill.files.paths(), report, commands, there)
        _body(skill, report, limits)
    except (ResourceError, OSError) as error:
        report.add("D05", str(error))
    for message in missing_requirements(skill, there):
        report.add("U09", message)
    return report.diagnostics


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
    for field in ("context", "agent", "model"):
        value = skill.extra.get(field)
        if value and value not in ("inherit", "inline", "default"):
            report.add("U06", f"{field!r} ({_short(value)}) changes nothing: the skill runs in the agent that loads it")


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
    shown = list(_each_once(names))
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    return ", ".join(repr(name) for name in shown[:5]) + more


def _each_once(names: Collection[str]) -> Iterator[str]:
    return iter(dict.fromkeys(names))


def _do(names: Collection[str]) -> str:
    return "does" if len(set(names)) == 1 else "do"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"
