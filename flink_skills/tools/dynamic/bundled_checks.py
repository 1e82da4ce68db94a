"""Problems with bundled tools, found without running any code."""

from __future__ import annotations

import ast
import io
import json
import symtable
import threading
import tokenize
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flink_skills.errors import ResourceError, near_misses
from flink_skills.skill import AgentSkill, Diagnostic, Limits, Report
from flink_skills.skill.skill_body import read_body, tool_lines
from flink_skills.tools.dynamic.specs import (
    MAX_FILE_BYTES,
    MAX_SCHEMA_BYTES,
    MAX_TOOLS,
    SCHEMA_FILE,
    TOOLS_FILE,
    DeclaredTool,
    SchemaFile,
    check_name,
    checked_parameters,
    parse_schema_file,
    shown,
)
from flink_skills.tools.profiles import TOOL_NAMES
from flink_skills.tools.schemas import schema_problem

#: Maximum size of a file that is parsed, in bytes. Python's parser stops all threads, including the event loop.
MAX_SOURCE_BYTES = 65_536
# Before Python 3.12, the parser searches an f-string from its start for each of its expressions.
_MAX_BRACES = 4_000

# Some other codecs of Python take minutes for a file of this size.
_ENCODINGS = frozenset({"ascii", "cp1252", "iso-8859-1", "utf-8", "utf-8-sig"})
_TOOLS, _ALL = "TOOLS", "__all__"
# Scopes of expressions. Only the first name cannot be that of a function.
_EXPRESSIONS = frozenset({"lambda", "genexpr", "listcomp", "setcomp", "dictcomp"})
# Code that uses these names can define functions that no reader of the file sees.
_DEFINING = frozenset({"exec", "globals", "locals", "setattr", "vars"})
# warnings.catch_warnings changes the filters of the process.
_warnings_lock = threading.Lock()


class ToolSourceError(ValueError):
    """``tools.py`` is not Python. ``line`` counts from 1; it is 0 if the error is in no single line."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


class ToolSource(NamedTuple):
    """The names in a ``tools.py``.

    Attributes:
        functions: The functions of the module, with their lines from 1.
        names: All names of the module.
        tools: The names that are tools in a skill without ``schema.json``. None if only running the file determines
            them.
        repeated: Functions with a second definition, and its line.
        is_complete: Whether ``names`` has all names. It is False after ``from x import *`` or with ``globals()``.
    """

    functions: Mapping[str, int] = {}
    names: Collection[str] = ()
    tools: tuple[str, ...] | None = None
    repeated: Sequence[tuple[str, int]] = ()
    is_complete: bool = False


def parse_tools_file(data: bytes) -> ToolSource:
    """Return the names in a ``tools.py``. No code runs.

    A file that is larger than 64 KiB, has more than 4,000 ``{``, or is not in a common encoding, is not read:
    ``tools`` is None.

    Raises:
        ToolSourceError: This version of Python cannot compile it.

    >>> parse_tools_file(b"def add(a, b=1): ...").tools
    ('add',)
    """
    is_small = len(data) <= MAX_SOURCE_BYTES and data.count(b"{") <= _MAX_BRACES
    parsed = _parsed(data) if is_small else None
    if parsed is None:
        return ToolSource()
    tree, table = parsed
    scopes = [scope for scope in table.get_children() if scope.get_type() == "function"]
    functions = {of.get_name(): of.get_lineno() for of in scopes if of.get_name() not in _EXPRESSIONS}
    values: dict[str, ast.expr] = {}
    for target, value in _assignments(tree):
        values[target.id] = value
        functions.pop(target.id, None)
        if isinstance(value, ast.Lambda) or (isinstance(value, ast.Name) and value.id in functions):
            functions[target.id] = target.lineno
    symbols = table.get_symbols()
    names = {of.get_name() for of in symbols if of.is_assigned() or of.is_imported() or of.is_namespace()}
    nodes = list(ast.walk(tree))
    used = Counter(node.id for node in nodes if isinstance(node, ast.Name))
    is_complete = not (
        "__getattr__" in names
        or any(used[name] for name in _DEFINING)
        or any(isinstance(node, ast.Attribute) and node.attr == "modules" for node in nodes)
        or any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in nodes)
    )
    tools = _tools(functions, values, used) if is_complete else None
    return ToolSource(functions, names, tools, _repeated(tree), is_complete)


def _parsed(data: bytes) -> tuple[ast.Module, symtable.SymbolTable] | None:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        if encoding not in _ENCODINGS:
            return None
        with _warnings_lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(data, TOOLS_FILE)
            # The symbol table finds errors that the parser does not. The compiler is not used: it takes minutes and all
            # memory for a short file with 'finally' in 'finally'.
            table = symtable.symtable(data.decode(encoding), TOOLS_FILE, "exec")
    except SyntaxError as error:
        raise ToolSourceError(error.msg, error.lineno or 0) from None
    except (RecursionError, MemoryError):
        raise ToolSourceError("the code is nested too deeply") from None
    except (ValueError, OverflowError) as error:
        raise ToolSourceError(str(error)) from None
    if returns := [node for node in tree.body if isinstance(node, ast.Return)]:
        raise ToolSourceError("'return' outside function", returns[0].lineno)
    return tree, table


def _assignments(tree: ast.Module) -> list[tuple[ast.Name, ast.expr]]:
    found: list[tuple[ast.Name, ast.expr]] = []
    for node in tree.body:
        if isinstance(node, ast.Assign):
            found += [(target, node.value) for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found.append((node.target, node.value))
    return found


def _tools(
    functions: Mapping[str, int], values: Mapping[str, ast.expr], used: Mapping[str, int]
) -> tuple[str, ...] | None:
    """Return the tools without ``schema.json``, as the program that runs them selects them."""
    listed = next((name for name in (_TOOLS, _ALL) if used[name]), "")
    if not listed:
        return tuple(name for name in functions if not name.startswith("_"))
    value = values.get(listed)
    # Other statements may change the list.
    if used[listed] > 1 or value is None:
        return None
    parts = (
        value.keys
        if isinstance(value, ast.Dict)
        else value.elts
        if isinstance(value, (ast.List, ast.Tuple))
        else [None]
    )
    names: list[str] = []
    for part in parts:
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            names.append(part.value)
        elif isinstance(part, ast.Name) and part.id in functions:
            names.append(part.id)
        else:
            return None
    if listed == _TOOLS:
        return tuple(names)
    # Only running the file determines whether an imported name is a function.
    return tuple(name for name in functions if name in names) if set(names) <= functions.keys() else None


def _repeated(tree: ast.Module) -> list[tuple[str, int]]:
    found: dict[str, int] = {}
    repeated: list[tuple[str, int]] = []
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.decorator_list:
            if node.name in found:
                repeated.append((node.name, node.lineno))
            found[node.name] = node.lineno
    return repeated


# More tools are reported as advice.
_MANY_TOOLS = 8
_MAX_LISTED = 10
_DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class OfferedTools:
    """The tools of an agent, which skills can name.

    Attributes:
        names: Names of the runtime's tools, of the agent's own and of its pool.
        agent: The agent; empty if none is known.
        toolsets: The tool sets of the agent, whose tools are only known in a turn.
        bundled_off: The reason why models are not offered the tools that skills bundle; empty if they are.
    """

    names: Collection[str] = TOOL_NAMES
    agent: str = ""
    toolsets: tuple[str, ...] = ()
    bundled_off: str = ""


class _Files(NamedTuple):
    """The files with tools. ``source`` is None if ``tools.py`` is missing or invalid."""

    schema: SchemaFile
    source: ToolSource | None
    has_source: bool

    @property
    def names(self) -> tuple[str, ...] | None:
        """All tool names. None if only running ``tools.py`` determines them."""
        if self.schema.tools:
            return tuple(self.schema.tools)
        if not self.has_source:
            return ()
        return None if self.source is None else self.source.tools

    @property
    def file(self) -> str:
        """The file that declares the tools. Without tools in ``schema.json``, these are the functions."""
        return SCHEMA_FILE if self.schema.tools else TOOLS_FILE

    def line(self, name: str) -> int:
        """Return a tool's line in :attr:`file`. Return 0 if it is unknown."""
        return self.schema.tools[name].line if self.schema.tools else self.function_line(name)

    def function_line(self, name: str) -> int:
        """Return a function's line. Return 0 if it is unknown."""
        return self.source.functions.get(name, 0) if self.source is not None else 0

    def location(self, name: str) -> str:
        """Return the file and the line of a tool, and those of its function if ``schema.json`` declares it."""
        place = f"{self.file}:{line}" if (line := self.line(name)) else self.file
        if not self.schema.tools:
            return place
        if command := self.schema.tools[name].command:
            return f"{place}, command {' '.join(command)}"
        return f"{place}, {TOOLS_FILE}:{line}" if (line := self.function_line(name)) else place


def check_tools(
    skill: AgentSkill, *, strict: bool = False, offered: OfferedTools | None = None, limits: Limits = _DEFAULT_LIMITS
) -> list[Diagnostic]:
    """Return the problems of ``tools.py`` and ``schema.json``, and of the ``Tools:`` section if ``offered`` is passed.

    No code runs. A file that cannot be read has a diagnostic of the skill's inspection.

    >>> skill = AgentSkill("geo", "Geography.", "How to.", {"tools.py": "def geo(:"})
    >>> [str(found) for found in check_tools(skill)]
    ["geo: error T02: tools.py, line 1: invalid syntax (fix the syntax)"]
    """
    check = _Check(skill, strict)
    try:
        files = check.read()
        check.compare(files)
        if offered is not None:
            check.section(files, offered, limits)
            check.switched_off(offered.bundled_off)
    except (ResourceError, OSError):
        return check.report.diagnostics
    return check.report.diagnostics


def inspect_tools(skill: AgentSkill, strict: bool, *, off: str = "") -> list[Diagnostic]:
    """Return :func:`check_tools` for a job's skill, without its ``Tools:`` section: a load reports that one.

    ``off`` is the reason why models are not offered these tools. The result is then a diagnostic with the reason.
    """
    if not off:
        return check_tools(skill, strict=strict)
    check = _Check(skill, strict)
    check.switched_off(off)
    return check.report.diagnostics


def tool_names_of(skill: AgentSkill) -> list[str]:
    """Return the tool names that the skill's files show. No code runs.

    Raises :class:`ResourceError` if a file cannot be read.
    """
    return list(_Check(skill).read().names or ())


def tool_places(skill: AgentSkill) -> dict[str, str]:
    """Return file and line for each tool that the skill's files show.

    >>> tool_places(AgentSkill("geo", "Geography.", "How to.", {"tools.py": "def far(): ..."}))
    {'far': 'tools.py:1'}
    """
    try:
        files = _Check(skill).read()
    except (ResourceError, OSError):
        return {}
    return {name: files.location(name) for name in files.names or (files.source.functions if files.source else ())}


class _Check:
    def __init__(self, skill: AgentSkill, strict: bool = False) -> None:
        self._skill = skill
        self.report = Report(strict=strict)
        self.report.skill = skill.name
        self._paths = skill.files.paths()

    def read(self) -> _Files:
        """Read the files, and report the invalid ones."""
        schema, source = SchemaFile({}, ()), None
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
        """Report names that do not match, and invalid parameters, tool names and numbers."""
        for tool in files.schema.tools.values():
            if self._parameters(tool) and not tool.command:
                self._function(tool, files)
        if files.source is not None:
            if files.schema.tools:
                self._undeclared(files.source, files.schema)
            else:
                self._functions(files.source)
        names = files.names or ()
        if len(names) > MAX_TOOLS:
            self._add("T10", f"the skill has {len(names)} tools: the first {MAX_TOOLS} count", TOOLS_FILE)
        elif len(names) > _MANY_TOOLS:
            self._add("T09", f"the skill has {len(names)} tools", files.file)
        for name in names:
            if _plain(name) == _plain(self._skill.name):
                self._add("T11", f"the tool {name!r} is named like its skill", files.file, files.line(name))

    def switched_off(self, reason: str) -> None:
        """Report that models are not offered the tools, if ``reason`` is not empty and the skill brings tools."""
        found = [path for path in (SCHEMA_FILE, TOOLS_FILE) if path in self._paths]
        if reason and found:
            self._add("U12", f"models are not offered the tools of {' and '.join(found)}: {reason}", found[0])

    def section(self, files: _Files, offered: OfferedTools, limits: Limits) -> None:
        """Report the names of the ``Tools:`` section that are unknown."""
        if files.names is None:
            return
        text, first_line, _, _ = read_body(self._skill.files, limits.skill_file)
        unknown = {
            name: line
            for name, line in tool_lines(text).items()
            if name not in files.names and name not in offered.names
        }
        known_names = [*files.names, *offered.names]
        who = f"neither the skill nor agent {offered.agent} has"
        if not offered.agent:
            who = "the skill does not bring: the pool of an agent has to have it"
        elif offered.toolsets:
            who += f", unless a tool set of the agent ({', '.join(offered.toolsets)}) has it"
        for name, line in unknown.items():
            near = near_misses(name, known_names)
            self._add(
                "T12",
                f"the 'Tools:' section names {shown(name)}, which {who}",
                self._skill.files.skill_file,
                first_line + line,
                f"did you mean {' or '.join(map(repr, near))}?" if near else "",
                is_certain=bool(offered.agent) and not offered.toolsets,
            )

    def _parameters(self, tool: DeclaredTool) -> bool:
        """Report unusable parameters. Return False if the tool is omitted because of them."""
        if tool.parameters is None:
            return True
        try:
            checked_parameters(tool.parameters)
        except ValueError as error:
            self._add("T03", f"{SCHEMA_FILE}: the tool {tool.name!r} is left out: {error}", SCHEMA_FILE, tool.line)
            return False
        size = len(json.dumps(tool.parameters, ensure_ascii=False).encode("utf-8", "replace"))
        # A larger one has keywords that are left out, and takes long to check.
        problem = schema_problem(tool.parameters) if size <= MAX_SCHEMA_BYTES else ""
        if not problem:
            properties, required = (tool.parameters.get(word) for word in ("properties", "required"))
            declared = properties if isinstance(properties, dict) else {}
            missing = [shown(name) for name in (required if isinstance(required, list) else ()) if name not in declared]
            more = f" and {len(missing) - _MAX_LISTED} more" if len(missing) > _MAX_LISTED else ""
            listed = ", ".join(missing[:_MAX_LISTED]) + more
            problem = f"'required' names {listed}, which 'properties' does not have" if missing else ""
        if problem:
            self._add(
                "T07",
                f"{SCHEMA_FILE}: the parameters of the tool {tool.name!r} are not a valid JSON schema: "
                f"{shown(problem, 200)[1:-1]}",
                SCHEMA_FILE,
                tool.line,
            )
        return True

    def _function(self, tool: DeclaredTool, files: _Files) -> None:
        """Report a declared function that ``tools.py`` does not define."""
        name, message = tool.name, ""
        if not files.has_source:
            message = f"{SCHEMA_FILE}: the tool {name!r} has no command, and there is no {TOOLS_FILE} with the function"
        elif files.source is not None:
            is_defined = name in files.source.names or not files.source.is_complete
            if name.startswith("_") or not is_defined:
                near = near_misses(name, [known for known in files.source.functions if not known.startswith("_")])
                hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
                message = f"{SCHEMA_FILE}: {TOOLS_FILE} has no public function {name!r}{hint}"
        if message:
            self._add("T04", message, SCHEMA_FILE, tool.line)

    def _undeclared(self, source: ToolSource, schema: SchemaFile) -> None:
        """Report functions that are not tools because ``schema.json`` does not declare them."""
        for name, line in source.functions.items():
            if not name.startswith("_") and name not in schema.tools:
                message = f"{TOOLS_FILE} defines {name!r}, which {SCHEMA_FILE} does not declare: it is not a tool"
                self._add("T05", message, TOOLS_FILE, line)

    def _functions(self, source: ToolSource) -> None:
        """Report function names that are tools without ``schema.json``."""
        seen: set[str] = set()
        for name in source.tools or ():
            line = source.functions.get(name, 0)
            try:
                if check_name(name) in seen:
                    self._add("T08", f"{TOOLS_FILE}: duplicate tool {name!r}: the first one is used", TOOLS_FILE, line)
            except ValueError as error:
                self._add("T03", f"{TOOLS_FILE}: {error}", TOOLS_FILE, line)
            seen.add(name)
        for name, line in source.repeated:
            if name in seen:
                message = f"{TOOLS_FILE} defines {name!r} twice: the last definition counts"
                self._add("T08", message, TOOLS_FILE, line)

    def _add(
        self, code: str, message: str, file: str, line: int = 0, fix: str = "", *, is_certain: bool = False
    ) -> None:
        path = ""
        if self._skill.path:
            # The path says which file it is.
            path, message = f"{self._skill.path}/{file}", message.removeprefix(f"{file}: ")
        self.report.add(code, message, fix=fix, line=line, path=path, severity="warning" if is_certain else None)


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_").replace(" ", "_")
