"""The names that a ``tools.py`` defines, read without running it."""

from __future__ import annotations

import ast
import io
import symtable
import threading
import tokenize
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from flink_skills.tools.dynamic.schema_file import TOOLS_FILE

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
