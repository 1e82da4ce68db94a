"""Faults of the tools that a skill brings, found without running any of its code."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from flink_skills.errors import ResourceError, near_misses
from flink_skills.skill import AgentSkill, Diagnostic, Limits, Report
from flink_skills.skill.body import read_body
from flink_skills.skill.tools_section import tool_lines
from flink_skills.tools.dynamic.schema_file import (
    MAX_FILE_BYTES,
    SCHEMA_FILE,
    DeclaredTool,
    SchemaFile,
    parse_schema_file,
)
from flink_skills.tools.dynamic.source import (
    MAX_SOURCE_BYTES,
    TOOLS_FILE,
    SourceFunction,
    ToolSource,
    ToolSourceError,
    parse_tools_file,
)
from flink_skills.tools.dynamic.specs import MAX_SCHEMA_BYTES, MAX_TOOLS, NAME, checked_parameters, shown
from flink_skills.tools.profiles import TOOL_NAMES
from flink_skills.tools.schemas import schema_problem

__all__ = ["OfferedTools", "check_tools", "inspect_tools", "tool_names_of", "tool_places"]

#: More tools than these are reported as advice.
MANY_TOOLS = 8
_DEFAULT_LIMITS = Limits()
_SHOWN_NAMES = 10


@dataclass(frozen=True)
class OfferedTools:
    """The tools that skills of an agent find there.

    Attributes:
        names: Names of the runtime's tools, of the agent's own and of its pool.
        agent: The agent; empty if none is known.
        toolsets: The tool sets of the agent, whose tools are only known in a turn.
        bundled_off: The reason why models are not offered the tools that skills bring; empty if they are.
    """

    names: Collection[str] = TOOL_NAMES
    agent: str = ""
    toolsets: tuple[str, ...] = ()
    bundled_off: str = ""


class _Files(NamedTuple):
    """The files that bring tools; None for one that is missing or unusable."""

    schema: SchemaFile | None
    source: ToolSource | None
    has_source: bool

    @property
    def declared(self) -> dict[str, DeclaredTool]:
        """The tools of ``schema.json``. Without any, the functions of ``tools.py`` are the tools."""
        return self.schema.tools if self.schema is not None else {}

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of all tools. None if only running ``tools.py`` determines them."""
        if self.declared:
            return tuple(self.declared)
        if not self.has_source:
            return ()
        return None if self.source is None else self.source.tools


def check_tools(
    skill: AgentSkill, *, strict: bool = False, offered: OfferedTools | None = None, limits: Limits = _DEFAULT_LIMITS
) -> list[Diagnostic]:
    """Return the faults of ``tools.py`` and ``schema.json``, and of the ``Tools:`` section if ``offered`` is given.

    Nothing of the skill runs. A file that cannot be read has a diagnostic of the skill's inspection.

    >>> skill = AgentSkill("geo", "Geography.", "How to.", {"tools.py": "def geo(:"})
    >>> [str(found) for found in check_tools(skill)]
    ["geo: error T02: tools.py, line 1: invalid syntax (fix the syntax)"]
    """
    report = Report(strict=strict)
    report.skill = skill.name
    try:
        check = _Check(skill, report)
        files = check.read()
        check.compare(files)
        if offered is not None:
            check.section(files, offered, limits)
            check.switched_off(offered.bundled_off)
    except (ResourceError, OSError):
        return report.diagnostics
    return report.diagnostics


def inspect_tools(skill: AgentSkill, strict: bool, *, off: str = "") -> list[Diagnostic]:
    """Return :func:`check_tools` of a skill of a job, without its ``Tools:`` section: a load reports that one.

    ``off`` is the reason why models are not offered these tools. The result is then a diagnostic with the reason.
    """
    if not off:
        return check_tools(skill, strict=strict)
    report = Report(strict=strict)
    report.skill = skill.name
    _Check(skill, report).switched_off(off)
    return report.diagnostics


def tool_names_of(skill: AgentSkill) -> list[str]:
    """Return the names of the tools that ``skill`` brings, as far as its files show them. Nothing of them runs.

    Raises :class:`ResourceError` if a file cannot be read.
    """
    return list(_Check(skill, Report()).read().names or ())


def tool_places(skill: AgentSkill) -> dict[str, str]:
    """Return the file and the line of each tool that ``skill`` brings, as far as its files show them.

    >>> tool_places(AgentSkill("geo", "Geography.", "How to.", {"tools.py": "def far(): ..."}))
    {'far': 'tools.py:1'}
    """
    try:
        check = _Check(skill, Report())
        files = check.read()
    except (ResourceError, OSError):
        return {}
    return {name: check.place_of(name, files) for name in files.names or (files.source or ToolSource()).callables}


class _Check:
    def __init__(self, skill: AgentSkill, report: Report) -> None:
        self._skill = skill
        self._report = report
        self._paths = skill.files.paths()

    def read(self) -> _Files:
        """Read the files, and report what is unusable."""
        schema: SchemaFile | None = None
        source: ToolSource | None = None
        if SCHEMA_FILE in self._paths:
            schema = parse_schema_file(self._skill.files.read(SCHEMA_FILE, 0, MAX_FILE_BYTES + 1).data)
            for problem in schema.problems:
                self._add(problem.code, problem.text, SCHEMA_FILE, problem.line)
        if TOOLS_FILE in self._paths:
            try:
                source = parse_tools_file(self._skill.files.read(TOOLS_FILE, 0, MAX_SOURCE_BYTES + 1).data)
            except ToolSourceError as error:
                place = f"{TOOLS_FILE}, line {error.line}" if error.line and not self._skill.path else TOOLS_FILE
                self._add("T02", f"{place}: {shown(error, 120)[1:-1]}", TOOLS_FILE, error.line)
        return _Files(schema, source, TOOLS_FILE in self._paths)

    def compare(self, files: _Files) -> None:
        """Report what does not match, and names and numbers of tools."""
        if files.schema is not None:
            for tool in files.declared.values():
                line = files.schema.lines.get(tool.name, 0)
                if self._parameters(tool, line) and not tool.command:
                    self._function_of(tool, files, line)
        if files.declared:
            self._undeclared(files)
        elif files.source is not None:
            self._functions(files.source)
        names = files.names or ()
        if len(names) > MAX_TOOLS:
            self._add("T10", f"the skill has {len(names)} tools: the first {MAX_TOOLS} count", TOOLS_FILE)
        elif len(names) > MANY_TOOLS:
            self._add("T09", f"the skill has {len(names)} tools", self._tools_file(files))
        for name in names:
            if _plain(name) == _plain(self._skill.name):
                line = self._line_of(name, files)
                self._add("T11", f"the tool {name!r} is named like its skill", self._tools_file(files), line)

    def switched_off(self, reason: str) -> None:
        """Report that models are not offered the tools, if ``reason`` is not empty and the skill brings tools."""
        found = [path for path in (SCHEMA_FILE, TOOLS_FILE) if path in self._paths]
        if reason and found:
            self._add("U12", f"models are not offered the tools of {' and '.join(found)}: {reason}", found[0])

    def section(self, files: _Files, offered: OfferedTools, limits: Limits) -> None:
        """Report the names of the ``Tools:`` section that nothing has."""
        if files.names is None:
            return
        text, first_line, _, _ = read_body(self._skill.files, limits.skill_file)
        unknown = {
            name: line
            for name, line in tool_lines(text).items()
            if name not in files.names and name not in offered.names
        }
        known = [*files.names, *offered.names]
        who = f"neither the skill nor agent {offered.agent} has"
        if not offered.agent:
            who = "the skill does not bring: the pool of an agent has to have it"
        elif offered.toolsets:
            who += f", unless a tool set of the agent ({', '.join(offered.toolsets)}) has it"
        for name, line in unknown.items():
            near = near_misses(name, known)
            self._add(
                "T12",
                f"the 'Tools:' section names {shown(name)}, which {who}",
                self._skill.files.skill_file,
                first_line + line,
                f"did you mean {' or '.join(map(repr, near))}?" if near else "",
                is_certain=bool(offered.agent) and not offered.toolsets,
            )

    def _parameters(self, tool: DeclaredTool, line: int) -> bool:
        """Report unusable parameters. Return False if the tool is omitted because of them."""
        if tool.parameters is None:
            return True
        try:
            checked_parameters(tool.parameters)
        except ValueError as error:
            self._add("T03", f"{SCHEMA_FILE}: the tool {tool.name!r} is left out: {error}", SCHEMA_FILE, line)
            return False
        size = len(json.dumps(tool.parameters, ensure_ascii=False).encode("utf-8", "replace"))
        # A larger one has keywords that are left out, and takes long to check.
        problem = schema_problem(tool.parameters) if size <= MAX_SCHEMA_BYTES else ""
        if not problem:
            required = tool.parameters.get("required")
            missing = _without(required if isinstance(required, list) else (), _properties(tool))
            problem = f"'required' names {_listed(missing)}, which 'properties' does not have" if missing else ""
        if problem:
            self._add(
                "T07",
                f"{SCHEMA_FILE}: the parameters of the tool {tool.name!r} are not a valid JSON schema: "
                f"{shown(problem, 200)[1:-1]}",
                SCHEMA_FILE,
                line,
            )
        return True

    def _function_of(self, tool: DeclaredTool, files: _Files, line: int) -> None:
        if not files.has_source:
            message = (
                f"{SCHEMA_FILE}: the tool {tool.name!r} has no command, and there is no {TOOLS_FILE} with the function"
            )
            self._add("T04", message, SCHEMA_FILE, line)
            return
        source = files.source
        if source is None:
            return
        function = source.callables.get(tool.name)
        if function is None or tool.name.startswith("_"):
            if source.is_complete or tool.name.startswith("_"):
                near = near_misses(tool.name, [name for name in source.callables if not name.startswith("_")])
                hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
                message = f"{SCHEMA_FILE}: {TOOLS_FILE} has no public function {tool.name!r}{hint}"
                self._add("T04", message, SCHEMA_FILE, line)
        elif function.is_known:
            self._match(tool, function, line)

    def _match(self, tool: DeclaredTool, function: SourceFunction, line: int) -> None:
        if function.variadic:
            self._variadic(function, is_declared=True)
            return
        if tool.parameters is None:
            return
        properties = _properties(tool)
        where = f"{SCHEMA_FILE}: the tool {tool.name!r}"
        unknown = [] if function.accepts_any else _without(properties, function.parameters)
        if unknown:
            near = near_misses(unknown[0], _without(function.parameters, properties))
            hint = f"; did you mean {near[0]!r}?" if near else ""
            message = f"{where} has {_parameter(unknown)}, which the function does not accept{hint}"
            self._add("T06", message, SCHEMA_FILE, line)
        missing = _without(function.required, properties)
        if missing:
            self._add(
                "T06", f"{where} does not have {_parameter(missing)}, which the function requires", SCHEMA_FILE, line
            )
        required = tool.parameters.get("required")
        optional = _without(function.required, [*missing, *(required if isinstance(required, list) else ())])
        if optional:
            message = f"{where} does not list {_parameter(optional)} in 'required', and the function requires it"
            self._add("T06", message, SCHEMA_FILE, line, is_certain=True)

    def _undeclared(self, files: _Files) -> None:
        """Report functions that are not tools because ``schema.json`` does not declare them."""
        if files.source is None:
            return
        # A command of schema.json may be in tools.py as well.
        for function in files.source.callables.values():
            if function.is_function and not function.name.startswith("_") and function.name not in files.declared:
                self._add(
                    "T05",
                    f"{TOOLS_FILE} defines {function.name!r}, which {SCHEMA_FILE} does not declare: it is not a tool",
                    TOOLS_FILE,
                    function.line,
                )

    def _functions(self, source: ToolSource) -> None:
        """Report faults of functions that are tools without ``schema.json``."""
        seen: set[str] = set()
        for name in source.tools or ():
            function = source.callables.get(name)
            line = function.line if function is not None else 0
            if name in seen:
                self._add("T08", f"{TOOLS_FILE}: duplicate tool {name!r}: the first one is used", TOOLS_FILE, line)
            elif not NAME.fullmatch(name):
                message = (
                    f"{TOOLS_FILE}: the tool {shown(name)} is left out: a name is 1 to 64 letters, digits, '_' and '-'"
                )
                self._add("T03", message, TOOLS_FILE, line)
            elif function is not None and function.is_known and function.variadic:
                self._variadic(function, is_declared=False)
            seen.add(name)
        for function in source.repeated:
            if function.name in seen:
                message = f"{TOOLS_FILE} defines {function.name!r} twice: the last definition counts"
                self._add("T08", message, TOOLS_FILE, function.line)

    def _variadic(self, function: SourceFunction, *, is_declared: bool) -> None:
        message = f"{TOOLS_FILE}: the tool {function.name!r} is left out: models cannot give *{function.variadic}"
        # A function that is not declared may be a helper of the others.
        fix = "name the arguments" if is_declared else "name the arguments, or begin the name with '_'"
        self._add("T03", message, TOOLS_FILE, function.line, fix, is_certain=not is_declared)

    def _tools_file(self, files: _Files) -> str:
        return SCHEMA_FILE if files.declared else TOOLS_FILE

    def place_of(self, name: str, files: _Files) -> str:
        """Return the file and the line of a tool, and those of its function if ``schema.json`` declares it."""
        line = self._line_of(name, files)
        place = f"{self._tools_file(files)}:{line}" if line else self._tools_file(files)
        if name not in files.declared:
            return place
        if files.declared[name].command:
            return f"{place}, command {' '.join(files.declared[name].command)}"
        function = files.source.callables.get(name) if files.source is not None else None
        return f"{place}, {TOOLS_FILE}:{function.line}" if function is not None else place

    def _line_of(self, name: str, files: _Files) -> int:
        if files.schema is not None and name in files.declared:
            return files.schema.lines.get(name, 0)
        function = files.source.callables.get(name) if files.source is not None else None
        return function.line if function is not None else 0

    def _add(
        self, code: str, message: str, file: str, line: int = 0, fix: str = "", *, is_certain: bool = False
    ) -> None:
        path = ""
        if self._skill.path:
            # The path says which file it is.
            path, message = f"{self._skill.path}/{file}", message.removeprefix(f"{file}: ")
        self._report.add(code, message, fix=fix, line=line, path=path, severity="warning" if is_certain else None)


def _properties(tool: DeclaredTool) -> list[str]:
    properties = (tool.parameters or {}).get("properties")
    return [str(name) for name in properties] if isinstance(properties, dict) else []


def _without(names: Iterable[object], others: Collection[str]) -> list[str]:
    return [str(name) for name in names if name not in others]


def _parameter(names: list[str]) -> str:
    return f"the parameter{'s' if len(names) > 1 else ''} {_listed(names)}"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(shown(name) for name in names[:_SHOWN_NAMES]) + more


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_").replace(" ", "_")
