"""``tools.py`` of a skill, read without running it: which functions it defines, and which of them are tools."""

from __future__ import annotations

import ast
import io
import symtable
import threading
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

__all__ = ["MAX_SOURCE_BYTES", "TOOLS_FILE", "SourceFunction", "ToolSource", "ToolSourceError", "parse_tools_file"]

TOOLS_FILE = "tools.py"
#: Maximum size of a file that is parsed, in bytes. Python's parser stops all threads, the event loop too.
MAX_SOURCE_BYTES = 65_536
# Before Python 3.12, the parser searches an f-string from its start for each of its expressions.
_MAX_BRACES = 4_000

# Some other codecs of Python take minutes for a file of this size.
_ENCODINGS = frozenset({"ascii", "cp1252", "iso-8859-1", "utf-8", "utf-8-sig"})
_TOOLS, _ALL = "TOOLS", "__all__"
# Code that uses these names can define functions that no reader of the file sees.
_DEFINING = frozenset({"exec", "globals", "locals", "setattr", "vars"})
# warnings.catch_warnings changes the filters of the process.
_warnings_lock = threading.Lock()


class ToolSourceError(ValueError):
    """``tools.py`` is not Python. ``line`` counts from 1; it is 0 if the error is in no single line."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class SourceFunction:
    """A name of ``tools.py`` that can be called.

    Attributes:
        name: The name in the module.
        line: The line of its definition, from 1.
        parameters: The names of the parameters, without ``*args`` and ``**kwargs``.
        required: The parameters without a default.
        accepts_any: Whether there is ``**kwargs``.
        variadic: The name of ``*args``; empty if there is none.
        is_function: Whether a ``def`` or a ``lambda`` defines it.
        is_known: Whether the parameters are known. They are not for a decorated function, a class and an import.
    """

    name: str
    line: int
    parameters: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    accepts_any: bool = False
    variadic: str = ""
    is_function: bool = False
    is_known: bool = False


@dataclass(frozen=True)
class ToolSource:
    """The content of ``tools.py``.

    Attributes:
        callables: What the module defines or imports that can be called, by name.
        tools: The names that are tools in a skill without ``schema.json``; None if only running the file tells.
        repeated: Later definitions of a name that the module has before.
        is_complete: Whether ``callables`` has all names. It has not after ``from x import *`` or with ``globals()``.
    """

    callables: Mapping[str, SourceFunction] = field(default_factory=dict)
    tools: tuple[str, ...] | None = ()
    repeated: tuple[SourceFunction, ...] = ()
    is_complete: bool = True


def parse_tools_file(data: bytes) -> ToolSource:
    """Return the functions of a ``tools.py``. Nothing of it runs.

    A file that is larger than 64 KiB, has more than 4,000 ``{``, or is not in a common encoding, is not read:
    ``tools`` is None.

    Raises:
        ToolSourceError: This version of Python cannot compile it.

    >>> parse_tools_file(b"def add(a, b=1): ...").callables["add"].required
    ('a',)
    """
    is_small = len(data) <= MAX_SOURCE_BYTES and data.count(b"{") <= _MAX_BRACES
    tree = _parsed(data) if is_small else None
    if tree is None:
        return ToolSource(tools=None, is_complete=False)
    reader = _Reader()
    for node, is_nested in _statements(tree):
        reader.read(node, is_nested)
    nodes = list(ast.walk(tree))
    used = Counter(node.id for node in nodes if isinstance(node, ast.Name))
    is_complete = not (
        reader.imports_all or "__getattr__" in reader.callables or any(used[name] for name in _DEFINING)
    ) and not any(isinstance(node, ast.Attribute) and node.attr == "modules" for node in nodes)
    tools = reader.tools(used) if is_complete else None
    return ToolSource(reader.callables, tools, tuple(reader.repeated), is_complete)


def _parsed(data: bytes) -> ast.Module | None:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        if encoding not in _ENCODINGS:
            return None
        with _warnings_lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(data, TOOLS_FILE)
            # The symbol table finds errors that the parser does not. The compiler is not used: it takes minutes and all
            # memory for a short file with 'finally' in 'finally'.
            symtable.symtable(data.decode(encoding), TOOLS_FILE, "exec")
    except SyntaxError as error:
        raise ToolSourceError(error.msg, error.lineno or 0) from None
    except (RecursionError, MemoryError):
        raise ToolSourceError("the code is nested too deeply") from None
    except (ValueError, OverflowError) as error:
        raise ToolSourceError(str(error)) from None
    return tree


def _statements(tree: ast.Module) -> Iterator[tuple[ast.stmt, bool]]:
    """The statements that run when the module is imported, in order, and whether they are in a block."""
    # No recursion: an 'if' with many 'elif' is nested as deep.
    waiting: list[tuple[ast.stmt, bool]] = [(node, False) for node in reversed(tree.body)]
    while waiting:
        node, is_nested = waiting.pop()
        yield node, is_nested
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        inner = [
            *getattr(node, "body", ()),
            *(below for handler in getattr(node, "handlers", ()) for below in handler.body),
            *(below for case in getattr(node, "cases", ()) for below in case.body),
            *getattr(node, "orelse", ()),
            *getattr(node, "finalbody", ()),
        ]
        waiting += [(below, True) for below in reversed(inner)]


class _Reader:
    def __init__(self) -> None:
        self.callables: dict[str, SourceFunction] = {}
        self.repeated: list[SourceFunction] = []
        self.imports_all = False
        self._values: dict[str, ast.expr] = {}
        self._classes: set[str] = set()

    def read(self, node: ast.stmt, is_nested: bool) -> None:
        """Note what a statement defines."""
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found = _function(node.name, node.lineno, node.args)
            self._define(replace(found, is_known=not node.decorator_list), is_nested)
        elif isinstance(node, ast.Return):
            raise ToolSourceError("'return' outside function", node.lineno)
        elif isinstance(node, ast.ClassDef):
            self._classes.add(node.name)
            self._define(SourceFunction(node.name, node.lineno), is_nested)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                self.imports_all |= alias.name == "*"
                self._define(SourceFunction(alias.asname or alias.name.split(".")[0], node.lineno), is_nested)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value, is_nested)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.target, node.value, is_nested)
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self.callables.pop(target.id, None)

    def tools(self, used: Mapping[str, int]) -> tuple[str, ...] | None:
        """The tools of a skill without ``schema.json``, as the program that runs them chooses them."""
        if _TOOLS in self._values or used.get(_TOOLS):
            # A list that other statements may change is only known when the file has run.
            return self._listed(self._values[_TOOLS]) if used.get(_TOOLS) == 1 and _TOOLS in self._values else None
        if not used.get(_ALL):
            return tuple(name for name, of in self.callables.items() if of.is_function and not name.startswith("_"))
        value = self._values.get(_ALL)
        if used[_ALL] > 1 or not isinstance(value, (ast.List, ast.Tuple)):
            return None
        public = {part.value for part in value.elts if isinstance(part, ast.Constant)} - self._classes
        found = [of for name, of in self.callables.items() if name in public]
        # Whether an imported name is a function is only known when the file has run.
        return tuple(of.name for of in found) if all(of.is_function for of in found) else None

    def _listed(self, value: ast.expr) -> tuple[str, ...] | None:
        names: list[str] = []
        if isinstance(value, ast.Dict):
            parts = [key for key in value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
            return tuple(str(part.value) for part in parts) if len(parts) == len(value.keys) else None
        if not isinstance(value, (ast.List, ast.Tuple)):
            return None
        for part in value.elts:
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                names.append(part.value)
            elif isinstance(part, ast.Name) and (of := self.callables.get(part.id)) and of.is_function:
                names.append(part.id)
            else:
                return None
        return tuple(names)

    def _assign(self, target: ast.expr, value: ast.expr, is_nested: bool) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                if isinstance(part, ast.Name):
                    self._define(SourceFunction(part.id, part.lineno), is_nested)
        if not isinstance(target, ast.Name):
            return
        line = getattr(target, "lineno", 0)
        if isinstance(value, ast.Lambda):
            self._define(replace(_function(target.id, line, value.args), is_known=True), is_nested)
        elif isinstance(value, ast.Name) and value.id in self.callables:
            self._define(replace(self.callables[value.id], name=target.id, line=line), is_nested)
        elif isinstance(value, (ast.Name, ast.Attribute, ast.Call, ast.IfExp, ast.Subscript, ast.Await)):
            self._define(SourceFunction(target.id, line), is_nested)
        else:
            self.callables.pop(target.id, None)
            self._values[target.id] = value

    def _define(self, found: SourceFunction, is_nested: bool) -> None:
        before = self.callables.get(found.name)
        if before is not None:
            if is_nested:
                # Either of two branches may define the name.
                found = replace(found, is_known=False, is_function=found.is_function or before.is_function)
            elif before.is_function and before.is_known and found.is_function and found.is_known:
                self.repeated.append(found)
        self._values.pop(found.name, None)
        self.callables[found.name] = found


def _function(name: str, line: int, arguments: ast.arguments) -> SourceFunction:
    positional = [*arguments.posonlyargs, *arguments.args]
    without_default = positional[: len(positional) - len(arguments.defaults)]
    keywords = [
        argument
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is None
    ]
    return SourceFunction(
        name,
        line,
        tuple(argument.arg for argument in (*positional, *arguments.kwonlyargs)),
        tuple(argument.arg for argument in (*without_default, *keywords)),
        accepts_any=arguments.kwarg is not None,
        variadic=arguments.vararg.arg if arguments.vararg else "",
        is_function=True,
    )
