"""The names that a ``tools.py`` defines, read without running it."""

from __future__ import annotations

import ast
import io
import symtable
import threading
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from flink_skills.tools.dynamic.schema_file import TOOLS_FILE

__all__ = ["MAX_SOURCE_BYTES", "SourceName", "ToolSource", "ToolSourceError", "parse_tools_file"]

#: Maximum size of a file that is parsed, in bytes. Python's parser stops all threads, including the event loop.
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


class SourceName(NamedTuple):
    """A name that can be called.

    Attributes:
        line: The line of its definition, from 1.
        is_function: Whether a ``def`` or a ``lambda`` defines it.
        is_plain: Whether this is the only definition: without decorators, and in no block.
    """

    line: int
    is_function: bool = False
    is_plain: bool = False


class ToolSource(NamedTuple):
    """The names of a ``tools.py``.

    Attributes:
        names: The names that can be called.
        tools: The names that are tools in a skill without ``schema.json``. None if only running the file determines
            them.
        repeated: Names with a second definition, and its line.
        is_complete: Whether ``names`` has all names. It is False after ``from x import *`` or with ``globals()``.
    """

    names: Mapping[str, SourceName]
    tools: tuple[str, ...] | None = None
    repeated: Sequence[tuple[str, int]] = ()
    is_complete: bool = False


def parse_tools_file(data: bytes) -> ToolSource:
    """Return the names of a ``tools.py``. Nothing of it runs.

    A file that is larger than 64 KiB, has more than 4,000 ``{``, or is not in a common encoding, is not read:
    ``tools`` is None.

    Raises:
        ToolSourceError: This version of Python cannot compile it.

    >>> parse_tools_file(b"def add(a, b=1): ...").tools
    ('add',)
    """
    is_small = len(data) <= MAX_SOURCE_BYTES and data.count(b"{") <= _MAX_BRACES
    tree = _parsed(data) if is_small else None
    if tree is None:
        return ToolSource({})
    reader = _Reader()
    for node, is_nested in _statements(tree):
        reader.read(node, is_nested)
    nodes = list(ast.walk(tree))
    used = Counter(node.id for node in nodes if isinstance(node, ast.Name))
    is_complete = not (
        reader.imports_all or "__getattr__" in reader.names or any(used[name] for name in _DEFINING)
    ) and not any(isinstance(node, ast.Attribute) and node.attr == "modules" for node in nodes)
    return ToolSource(reader.names, reader.tools(used) if is_complete else None, reader.repeated, is_complete)


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
    """Yield the statements that run when the module is imported, in order, and whether they are in a block."""
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
        self.names: dict[str, SourceName] = {}
        self.repeated: list[tuple[str, int]] = []
        self.imports_all = False
        self._values: dict[str, ast.expr] = {}
        self._classes: set[str] = set()

    def read(self, node: ast.stmt, is_nested: bool) -> None:
        """Store what a statement defines."""
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._define(node.name, SourceName(node.lineno, True, not node.decorator_list), is_nested)
        elif isinstance(node, ast.Return):
            raise ToolSourceError("'return' outside function", node.lineno)
        elif isinstance(node, ast.ClassDef):
            self._classes.add(node.name)
            self._define(node.name, SourceName(node.lineno), is_nested)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                self.imports_all |= alias.name == "*"
                self._define(alias.asname or alias.name.split(".")[0], SourceName(node.lineno), is_nested)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value, is_nested)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.target, node.value, is_nested)
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self.names.pop(target.id, None)

    def tools(self, used: Mapping[str, int]) -> tuple[str, ...] | None:
        """Return the tools of a skill without ``schema.json``, as the program that runs them selects them."""
        if _TOOLS in self._values or used.get(_TOOLS):
            # Other statements may change the list.
            return self._listed(self._values[_TOOLS]) if used.get(_TOOLS) == 1 and _TOOLS in self._values else None
        if not used.get(_ALL):
            return tuple(name for name, of in self.names.items() if of.is_function and not name.startswith("_"))
        value = self._values.get(_ALL)
        if used[_ALL] > 1 or not isinstance(value, (ast.List, ast.Tuple)):
            return None
        public = {part.value for part in value.elts if isinstance(part, ast.Constant)} - self._classes
        found = [name for name in self.names if name in public]
        # Only running the file determines whether an imported name is a function.
        return tuple(found) if all(self.names[name].is_function for name in found) else None

    def _listed(self, value: ast.expr) -> tuple[str, ...] | None:
        if isinstance(value, ast.Dict):
            parts: Sequence[ast.expr | None] = value.keys
        elif isinstance(value, (ast.List, ast.Tuple)):
            parts = value.elts
        else:
            return None
        names: list[str] = []
        for part in parts:
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                names.append(part.value)
            elif isinstance(part, ast.Name) and part.id in self.names and self.names[part.id].is_function:
                names.append(part.id)
            else:
                return None
        return tuple(names)

    def _assign(self, target: ast.expr, value: ast.expr, is_nested: bool) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                if isinstance(part, ast.Name):
                    self._define(part.id, SourceName(part.lineno), is_nested)
        if not isinstance(target, ast.Name):
            return
        if isinstance(value, ast.Lambda):
            self._define(target.id, SourceName(target.lineno, True, True), is_nested)
        elif isinstance(value, ast.Name) and value.id in self.names:
            self._define(target.id, self.names[value.id]._replace(line=target.lineno), is_nested)
        elif isinstance(value, (ast.Name, ast.Attribute, ast.Call, ast.IfExp, ast.Subscript, ast.Await)):
            self._define(target.id, SourceName(target.lineno), is_nested)
        else:
            self.names.pop(target.id, None)
            self._values[target.id] = value

    def _define(self, name: str, found: SourceName, is_nested: bool) -> None:
        before = self.names.get(name)
        if before is not None and is_nested:
            # Each of two branches can define the name.
            found = SourceName(found.line, found.is_function or before.is_function)
        elif before is not None and before.is_plain and found.is_plain:
            self.repeated.append((name, found.line))
        self._values.pop(name, None)
        self.names[name] = found
