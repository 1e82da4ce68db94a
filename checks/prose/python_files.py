"""Passages of prose in Python files."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator

from checks.prose.passages import Passage

__all__ = ["read_python"]

# Strings are matched so that a number sign in them does not start a comment.
_TOKEN = re.compile(
    r"""(?P<string>\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"|(?P<comment>#[^\n]*)",
    re.DOTALL,
)
_NO_PROSE = re.compile(r"^(?:noqa|type:|pragma|!/|fmt:|ruff:|mypy:)|^$")
_WORD = re.compile(r"[A-Za-z]{2,}")
MIN_WORDS = 3

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def read_python(source: str) -> Iterator[Passage]:
    """Yield the docstrings, messages, names of tests, comments and exceptions of ``source``."""
    yield from _Reader().read(ast.parse(source))
    yield from _comments(source)


class _Reader:
    """Visitor of a syntax tree, which does not visit the parts of a literal."""

    def __init__(self) -> None:
        self._docstrings: set[int] = set()

    def read(self, tree: ast.AST) -> Iterator[Passage]:
        stack: list[ast.AST] = [tree]
        while stack:
            node = stack.pop()
            if isinstance(node, Documented):
                yield from self._documented(node)
            if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp) and (text := _literal(node)) is not None:
                if id(node) not in self._docstrings and " " in text.strip() and len(_WORD.findall(text)) >= MIN_WORDS:
                    yield Passage("message", node.lineno, node.end_lineno or node.lineno, text)
                continue
            for name in node._fields:
                child = getattr(node, name)
                if isinstance(child, list):
                    stack.extend(item for item in child if isinstance(item, ast.AST))
                elif isinstance(child, ast.AST) and child._fields:
                    stack.append(child)

    def _documented(self, node: Documented) -> Iterator[Passage]:
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield Passage("test-name", node.lineno, node.lineno, node.name)
        before: ast.stmt | None = None
        for statement in node.body:
            first = before is None
            if isinstance(statement, ast.Expr) and (first or isinstance(before, ast.Assign | ast.AnnAssign)):
                value = statement.value
                text = _literal(value) if isinstance(value, ast.Constant) else None
                if text is not None:
                    self._docstrings.add(id(value))
                    kind = "function" if first and is_function else "docstring"
                    yield Passage(kind, value.lineno, value.end_lineno or value.lineno, inspect.cleandoc(text))
            before = statement


def _literal(node: ast.AST) -> str | None:
    """Return the text of a literal, with an X for each inserted value. Return None if ``node`` is not a string."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _literal(node.left), _literal(node.right)
        return None if left is None or right is None else left + right
    return None


def _comments(source: str) -> Iterator[Passage]:
    """Yield the comments. Comments that alone fill successive lines are one passage."""
    if "#" not in source:
        return
    lines: list[str] = []
    start, offset, line = 0, 0, 1
    for match in _TOKEN.finditer(source):
        if match["comment"] is None:
            continue
        line += source.count("\n", offset, match.start())
        offset = match.start()
        text = match["comment"].lstrip("#:").strip()
        alone = not source[source.rfind("\n", 0, offset) + 1 : offset].strip()
        allows = text.startswith("prose:")
        if lines and (not alone or allows or line != start + len(lines) or _NO_PROSE.match(text)):
            yield Passage("comment", start, start + len(lines) - 1, "\n".join(lines))
            lines = []
        if _NO_PROSE.match(text):
            continue
        if not alone or allows:
            yield Passage("allowance" if allows else "comment", line, line, text)
        else:
            start = start if lines else line
            lines.append(text)
    if lines:
        yield Passage("comment", start, start + len(lines) - 1, "\n".join(lines))
