"""Tests that import given files: ``python -m checks.affected FILE…`` prints them, one per line.

A test imports a file if it imports the module, or a name that a package publishes from it. A test is its own test.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["affected"]

ROOT = Path(__file__).resolve().parent.parent


def affected(root: Path, files: Iterable[str]) -> list[str]:
    """Return the test files below ``root`` that import one of ``files``, as paths from ``root``."""
    changed = {Path(file).resolve().relative_to(root) for file in files}
    modules = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in changed}
    faces: dict[str, dict[str, str]] = {}
    found = []
    for test in sorted((root / "tests").rglob("test_*.py")):
        place = test.relative_to(root)
        if place in changed or modules & set(_imported(root, test, faces)):
            found.append(place.as_posix())
    return found


def _imported(root: Path, path: Path, faces: dict[str, dict[str, str]]) -> Iterator[str]:
    """Yield the modules that a file imports. A published name counts as its module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            published = _face(root, node.module, faces)
            for alias in node.names:
                yield published.get(alias.name, f"{node.module}.{alias.name}")


def _face(root: Path, package: str, faces: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the modules of the names that a package publishes."""
    if package not in faces:
        init = root.joinpath(*package.split("."), "__init__.py")
        tree = ast.parse(init.read_text(encoding="utf-8") if init.is_file() else "")
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
        faces[package] = {alias.asname or alias.name: str(of.module) for of in imports for alias in of.names}
    return faces[package]


if __name__ == "__main__":
    print(*affected(ROOT, sys.argv[1:]), sep="\n")
