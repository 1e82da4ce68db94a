"""Rules about CONTRIBUTING.md: the map of packages, and the table of extension points."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from importlinter.api import read_configuration

from checks.findings import Finding

__all__ = ["extension_points", "may_import", "package_map", "read_layers"]

PAGE = "CONTRIBUTING.md"
_NAME = re.compile(r"`([^`]+)`")
_GROUP = re.compile(r'^_?[A-Z_]*GROUP = "([^"]+)"', re.MULTILINE)
_REGISTER = re.compile(r"^(?:async )?def (register_\w+)", re.MULTILINE)
_DEFINED = re.compile(r"^\s*(?:async )?(?:def|class) (\w+)", re.MULTILINE)


def read_layers(root: Path) -> list[tuple[str, ...]]:
    """Return the layers of the import contract in pyproject.toml, the highest first."""
    contracts = read_configuration(str(root / "pyproject.toml"))["contracts_options"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [tuple(name.strip() for name in layer.split("|")) for layer in layers]


def may_import(package: str, layers: Sequence[Sequence[str]]) -> str:
    """Return the cell "may import" of ``package``: the layer below it.

    >>> may_import("p.a", [["p.a"], ["p.b", "p.c"], ["p.d"]])
    '`b`, `c` and below'
    """
    below = next(number for number, layer in enumerate(layers) if package in layer) + 1
    if below == len(layers):
        return "no other package"
    names = ", ".join(f"`{name.partition('.')[2]}`" for name in layers[below])
    return names if below == len(layers) - 1 else f"{names} and below"


def package_map(root: Path, package: str) -> list[Finding]:
    """Return the packages that the map does not list as the layers have them, and the unknown ones that it lists."""
    layers = read_layers(root)
    wanted = {f"{package}.{path.parent.name}" for path in (root / package).glob("*/__init__.py")}
    wanted |= {f"{package}.{path.stem}" for path in (root / package).glob("[a-z]*.py")}
    listed = {name: row[-1] for row in _table(root, "Package map") for name in _NAME.findall(row[0])}
    found = []
    for name in sorted(wanted | set(listed)):
        if name not in wanted:
            found.append(_map(name, f"{name} is not a package", "Remove its row"))
        elif not any(name in layer for layer in layers):
            found.append(_map(name, f"{name} has no layer", "Add it to the layers in pyproject.toml"))
        elif listed.get(name) != may_import(name, layers):
            cell = may_import(name, layers)
            found.append(_map(name, f"{name} needs a row that ends in '{cell}'", "Correct the table"))
    return found


def _map(key: str, reason: str, fix: str) -> Finding:
    return Finding("map", key, f"map failed: {reason} ({PAGE}, Package map). {fix}.")


def extension_points(root: Path, package: str) -> list[Finding]:
    """Return the entry point groups and ``register_`` functions that the table of extension points lacks.

    Also return the names in the table that ``package`` does not define.
    """
    groups: set[str] = set()
    functions: set[str] = set()
    defined: set[str] = set()
    for path in (root / package).rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        defined |= set(_DEFINED.findall(text))
        functions |= set(_REGISTER.findall(text))
        if "entry_points(" in text:
            groups |= set(_GROUP.findall(text))
    listed = {name for row in _table(root, "Extension points") for cell in row for name in _NAME.findall(cell)}
    last = {name.rpartition(".")[2].partition("(")[0] for name in listed}
    found = [_point(name, f"{name} is missing", "Add a row") for name in sorted(groups - listed)]
    found += [_point(name, f"{name} is missing", "Add a row") for name in sorted(functions - last)]
    ours = {name for name in listed - groups if name.startswith(f"{package}.")}
    unknown = sorted(name for name in ours if name.rpartition(".")[2].partition("(")[0] not in defined)
    return found + [_point(name, f"{package} does not define {name}", "Correct the name") for name in unknown]


def _point(key: str, reason: str, fix: str) -> Finding:
    return Finding("extension-points", key, f"extension-points failed: {reason} ({PAGE}, Extension points). {fix}.")


def _table(root: Path, heading: str) -> Iterator[list[str]]:
    """Yield the cells of each row of the table below ``heading``."""
    text = (root / PAGE).read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    for line in section.splitlines():
        if line.startswith("|") and not line.startswith("|--"):
            yield [cell.strip() for cell in line.strip("|").split("|")]
