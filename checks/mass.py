"""Size of the package: ``python -m checks.mass``.

``checks/mass.yaml`` has the logic lines and files of each package, the number of small files with one user, and the
file names that occur more than once. The numbers may only fall: the command lowers them, and fails if one has grown.
A change that needs more raises the number of its package by hand and says so in its commit.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grimp
import yaml

__all__ = ["grown", "logic_lines", "main", "measure"]

ROOT = Path(__file__).resolve().parent.parent
LIST = "checks/mass.yaml"
PACKAGE = "flink_skills"
#: A file with one user and fewer lines belongs to its user.
SMALL = 150

_NO_CODE = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


def logic_lines(source: str) -> int:
    """Return the number of lines with code that are not part of a docstring.

    >>> logic_lines('"Text."' + chr(10) + "a = 1  # one" + chr(10) + chr(10) + "b = (" + chr(10) + ")")
    3
    """
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) or not node.body:
            continue
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docstrings)


def measure(root: Path, graph: grimp.ImportGraph, package: str = PACKAGE) -> dict[str, Any]:
    """Return the content of ``checks/mass.yaml`` for the files of ``package`` below ``root``."""
    logic: Counter[str] = Counter()
    files: Counter[str] = Counter()
    names: Counter[str] = Counter()
    small = 0
    for path in sorted((root / package).rglob("*.py")):
        place = path.relative_to(root)
        part = place.parts[1] if len(place.parts) > 2 else package
        source = path.read_text(encoding="utf-8")
        logic[part] += logic_lines(source)
        files[part] += 1
        if path.name == "__init__.py":
            continue
        names[path.name] += 1
        small += len(source.splitlines()) < SMALL and _has_one_user(graph, ".".join(place.with_suffix("").parts))
    return {
        "logic": dict(sorted(logic.items())),
        "files": dict(sorted(files.items())),
        "small-files-with-one-user": small,
        "names": {name: number for name, number in sorted(names.items()) if number > 1},
    }


def _has_one_user(graph: grimp.ImportGraph, module: str) -> bool:
    """Return whether one file of the folder imports a module, and no other file of the package. Faces do not count."""
    folder = module.rpartition(".")[0]
    importers = graph.find_modules_that_directly_import(module)
    users = [name for name in importers if not graph.find_children(name)]
    return len(users) == 1 and users[0].rpartition(".")[0] == folder


def grown(found: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    """Return a message for each number that is larger than in the list."""
    messages = []
    for rule in ("logic", "files", "names"):
        for key, number in found[rule].items():
            if number > (most := known.get(rule, {}).get(key, 0)):
                messages.append(
                    f"mass failed: {rule} of {key} is {number}, and at most {most} are allowed ({LIST}). Merge or "
                    "delete something, or raise the number in the commit that explains it."
                )
    small, most = found["small-files-with-one-user"], known.get("small-files-with-one-user", 0)
    if small > most:
        messages.append(
            f"mass failed: {small} files have one user and fewer than {SMALL} lines, and at most {most} are allowed "
            f"({LIST}). Move the content to its user."
        )
    return messages


def main() -> int:
    """Compare the package with the list, lower the list, and return the exit code."""
    path = ROOT / LIST
    known: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    found = measure(ROOT, grimp.build_graph(PACKAGE, cache_dir=None))
    messages = grown(found, known)
    for message in messages:
        print(message)
    if not messages and found != known:
        head = "".join(line for line in path.read_text(encoding="utf-8").splitlines(True) if line.startswith("#"))
        path.write_text(head + yaml.safe_dump(found, sort_keys=False), encoding="utf-8")
        print(f"The package has become smaller: {LIST} is lowered. Commit it with the change.")
    logic, files = sum(found["logic"].values()), sum(found["files"].values())
    print(f"{logic:,} logic lines in {files:,} files")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
