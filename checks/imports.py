"""Rules about imports: cycles in the package, and private modules in tests.

All imports count: those for types, and those inside functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import grimp

from checks.findings import Finding

__all__ = ["cycles", "faces", "folder_cycles", "private_imports", "read_graph"]

_PUBLIC = re.compile(r"^(?:    )?__all__\b", re.MULTILINE)


def read_graph(package: str, *others: str) -> grimp.ImportGraph:
    """Return the imports of ``package`` and ``others``, which have to be importable."""
    return grimp.build_graph(package, *others, cache_dir=None)


def cycles(graph: grimp.ImportGraph, package: str) -> list[Finding]:
    """Return the import cycles by file.

    The ``__init__`` of a package is a file like any other. The ``__init__`` of the root does not count: it loads the
    public names of all packages on first use, and imports them for types only.
    """
    nodes = graph.find_descendants(package)
    edges = {node: graph.find_modules_directly_imported_by(node) & nodes for node in nodes}
    return [_cycle("cycles", "modules", found, edges) for found in _components(edges)]


def folder_cycles(graph: grimp.ImportGraph, package: str) -> list[Finding]:
    """Return the import cycles by folder. A folder consists of the modules directly in it.

    Imports of an ``__init__`` from inside its package do not count: it publishes the names of its folders and does not
    depend on them.
    """
    nodes = graph.find_descendants(package)
    packages = {node for node in nodes if graph.find_children(node)}
    edges: dict[str, set[str]] = {node: set() for node in packages}
    for node in nodes:
        for imported in graph.find_modules_directly_imported_by(node) & nodes:
            ours, theirs = _folder(node, packages), _folder(imported, packages)
            is_face = node in packages and imported.startswith(f"{node}.")
            if ours != theirs and not is_face and ours in packages and theirs in packages:
                edges[ours].add(theirs)
    return [_cycle("folder-cycles", "folders", found, edges) for found in _components(edges)]


def faces(root: Path, package: str) -> set[str]:
    """Return the public modules: the root and its own modules, ``testing``, and each package with ``__all__``."""
    found = {_name(path, root) for path in (root / package).glob("*.py")}
    found |= {_name(path, root) for path in (root / package / "testing").glob("*.py")}
    for init in (root / package).rglob("__init__.py"):
        if _PUBLIC.search(init.read_text(encoding="utf-8")):
            found.add(_name(init, root))
    return found


def private_imports(graph: grimp.ImportGraph, package: str, tests: str, public: Iterable[str]) -> list[Finding]:
    """Return the number of import statements in ``tests`` by which a test imports a private module of ``package``.

    A statement that imports two modules counts twice.
    """
    private = graph.find_descendants(package) - set(public)
    found = [
        (detail["importer"], detail["imported"], detail["line_number"])
        for module in graph.find_descendants(tests) | {tests}
        for imported in graph.find_modules_directly_imported_by(module) & private
        for detail in graph.get_import_details(importer=module, imported=imported)
    ]
    if not found:
        return []
    importer, imported, line = max(found)
    message = (
        f"private-imports failed: the list allows fewer than {len(found)} imports of "
        f"{len({entry[1] for entry in found})} private modules ({importer}, line {line}, imports {imported}). "
        "Import the name from the package that publishes it, or test the effect."
    )
    return [Finding("private-imports", "private-imports", message, len(found))]


def _cycle(rule: str, kind: str, found: frozenset[str], edges: Mapping[str, set[str]]) -> Finding:
    names = sorted(found)
    pairs = [f"{node} -> {imported}" for node in names for imported in sorted(edges[node] & found)]
    message = (
        f"{rule} failed: {len(names)} {kind} import each other ({', '.join(pairs)}). "
        "Move the definition that both need into the lower one, or let the lower one accept a protocol."
    )
    return Finding(rule, " ".join(names), message)


def _folder(module: str, packages: set[str]) -> str:
    return module if module in packages else module.rpartition(".")[0]


def _name(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _components(edges: Mapping[str, set[str]]) -> Iterator[frozenset[str]]:
    """Yield the sets of nodes that reach each other: the strongly connected components of two nodes or more."""
    reached = {node: _reached(node, edges) for node in edges}
    seen: set[str] = set()
    for node in sorted(edges):
        if node not in seen and node in reached[node]:
            found = frozenset(other for other in reached[node] if node in reached[other])
            seen |= found
            yield found


def _reached(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    ahead = [start]
    while ahead:
        for node in edges[ahead.pop()] - found:
            found.add(node)
            ahead.append(node)
    return found
