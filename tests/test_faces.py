"""The public names of each package are pinned: what ``__all__`` lists is there, and nothing else is public."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import flink_skills

# Their names load modules when they are used first.
LAZY = (
    "flink_skills",
    "flink_skills.artifacts",
    "flink_skills.execution",
    "flink_skills.execution.workspace",
    "flink_skills.manager",
    "flink_skills.tools",
    "flink_skills.tools.calling",
    "flink_skills.tools.web",
    "flink_skills.documents",
    "flink_skills.agents",
    "flink_skills.models",
    "flink_skills.execution.backends",
    "flink_skills.execution.isolation",
    "flink_skills.flink",
    "flink_skills.integrations",
    "flink_skills.job",
    "flink_skills.prompts",
    "flink_skills.skill",
    "flink_skills.sources",
    "flink_skills.telemetry",
    "flink_skills.testing",
    "flink_skills.tools.dynamic",
    "flink_skills.tools.skills",
    "flink_skills.worker",
)
PACKAGES = ["flink_skills"] + [
    found.name for found in pkgutil.walk_packages(flink_skills.__path__, "flink_skills.") if found.ispkg
]
FACES = [name for name in PACKAGES if hasattr(importlib.import_module(name), "__all__")]


def tree(package: ModuleType) -> ast.Module:
    return ast.parse(Path(str(package.__file__)).read_text())


def imported(package: ModuleType) -> dict[str, str]:
    """The names that the file of a package imports from this package, and their modules."""
    outside = [node for node in tree(package).body if not isinstance(node, ast.FunctionDef)]
    return {
        alias.asname or alias.name: str(node.module)
        for top in outside
        for node in ast.walk(top)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("flink_skills")
        for alias in node.names
        if alias.name != "lazy_names"
    }


def defined(package: ModuleType) -> set[str]:
    nodes = tree(package).body
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return {name for name in functions if not name.startswith("_")}


@pytest.mark.parametrize("name", FACES)
def test_all_names_the_public_names(name: str) -> None:
    package = importlib.import_module(name)
    public = list(package.__all__)
    assert len(set(public)) == len(public)
    assert set(public) == imported(package).keys() | defined(package)
    assert set(public) <= set(dir(package))


@pytest.mark.parametrize("name", FACES)
def test_each_public_name_is_what_its_module_defines(name: str) -> None:
    package = importlib.import_module(name)
    for public, home in imported(package).items():
        assert getattr(package, public) is getattr(importlib.import_module(home), public)


@pytest.mark.parametrize("name", LAZY)
def test_no_module_takes_the_place_of_a_lazy_name(name: str) -> None:
    package = importlib.import_module(name)
    assert not {module.name for module in pkgutil.iter_modules(package.__path__)} & set(package.__all__)


@pytest.mark.parametrize("name", LAZY)
def test_a_name_that_is_not_there_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'no_such_thing'"):
        _ = importlib.import_module(name).no_such_thing


def test_importing_a_lazy_package_loads_nothing_but_its_parents() -> None:
    code = (
        "import importlib, json, sys\n"
        f"for name in {LAZY!r}:\n"
        "    before = set(sys.modules)\n"
        "    importlib.import_module(name)\n"
        "    print(json.dumps([name, sorted(m for m in set(sys.modules) - before if m.startswith('flink_skills'))]))\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = dict(json.loads(line) for line in printed.splitlines())
    for name in LAZY:
        if name.rpartition(".")[0] in ("", "flink_skills", *LAZY):
            assert set(loaded[name]) <= {name, "flink_skills.lazy"}


def test_modules_do_not_import_the_names_of_the_package_they_are_in() -> None:
    """Such an import would be a cycle."""
    root = Path(str(flink_skills.__file__)).parent
    found = []
    for path in sorted(root.rglob("*.py")):
        if path.name == "__init__.py":
            continue
        inside = ".".join(["flink_skills", *path.relative_to(root).parts[:-1]])
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or node.module not in FACES or node.module == "flink_skills":
                continue
            names = {alias.name for alias in node.names} & set(importlib.import_module(node.module).__all__)
            if f"{inside}.".startswith(f"{node.module}.") and names:
                found.append(f"{path.relative_to(root)}: {node.module}: {sorted(names)}")
    assert found == ["cli/__main__.py: flink_skills.cli: ['main']"]
