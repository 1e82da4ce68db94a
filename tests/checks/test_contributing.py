"""The tables of CONTRIBUTING.md: packages with their layers, and extension points."""

from __future__ import annotations

import pytest

from checks.contributing import extension_points, package_map
from tests.checks.conftest import WriteTree

PROJECT = """
[tool.importlinter]
root_package = "sample"

[[tool.importlinter.contracts]]
name = "layers"
type = "layers"
layers = ["sample.a", "sample.b | sample.c", "sample.errors"]
"""
MAP = """
## Package map

| Package | Content | May import |
|---|---|---|
| `sample.a` | a | `b`, `c` and below |
| `sample.b` | b | `errors` |
| `sample.c` | c | `errors` |
| `sample.errors` | errors | no other package |

## Other
"""
POINTS = """
## Extension points

| Extension | Base class | Registration | Entry point group |
|---|---|---|---|
| thing | `sample.Thing` | `sample.a.register_thing` | `sample.things` |
"""
REGISTRY = """
_GROUP = "sample.things"

class Thing: ...

def register_thing(name): ...

def names():
    return entry_points(group=_GROUP)
"""


@pytest.mark.parametrize(
    ("old", "new", "problems"),
    [
        ("", "", []),
        ("`b`, `c` and below", "`b` and below", ["sample.a needs a row that ends in '`b`, `c` and below'"]),
        ("| `sample.b` | b | `errors` |\n", "", ["sample.b needs a row that ends in '`errors`'"]),
        ("`sample.c`", "`sample.c`, `sample.d`", ["sample.d is not a package"]),
    ],
    ids=["complete", "other layer", "missing", "unknown"],
)
def test_map_agrees_with_packages_and_layers(write_tree: WriteTree, old: str, new: str, problems: list[str]) -> None:
    packages = {f"sample/{name}.py": "" for name in ("__init__", "a/__init__", "b/__init__", "c/__init__", "errors")}
    root = write_tree({**packages, "pyproject.toml": PROJECT, "CONTRIBUTING.md": MAP.replace(old, new)})

    found = [finding.message for finding in package_map(root, "sample")]

    assert len(found) == len(problems)
    for message, problem in zip(found, problems, strict=True):
        assert message.startswith(f"map failed: {problem} (CONTRIBUTING.md, Package map).")


def test_a_package_needs_a_layer(write_tree: WriteTree) -> None:
    files = {"sample/new/__init__.py": "", "pyproject.toml": PROJECT, "CONTRIBUTING.md": ""}

    assert [finding.message for finding in package_map(write_tree(files), "sample")] == [
        "map failed: sample.new has no layer (CONTRIBUTING.md, Package map). Add it to the layers in pyproject.toml."
    ]


@pytest.mark.parametrize(
    ("old", "new", "problems"),
    [
        ("", "", []),
        ("`sample.things`", "none", ["sample.things is missing"]),
        ("`sample.a.register_thing`", "none", ["register_thing is missing"]),
        ("`sample.Thing`", "`sample.Thong`", ["sample does not define sample.Thong"]),
    ],
    ids=["complete", "group", "function", "unknown name"],
)
def test_table_lists_the_extension_points(write_tree: WriteTree, old: str, new: str, problems: list[str]) -> None:
    root = write_tree({"sample/registry.py": REGISTRY, "CONTRIBUTING.md": POINTS.replace(old, new)})

    found = [finding.message for finding in extension_points(root, "sample")]

    assert len(found) == len(problems)
    for message, problem in zip(found, problems, strict=True):
        assert message.startswith(f"extension-points failed: {problem} (CONTRIBUTING.md, Extension points).")
