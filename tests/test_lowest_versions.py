"""The versions of ``constraints-lowest.txt`` are the lowest ones that ``pyproject.toml`` allows."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

try:
    import tomllib
except ImportError:  # Python 3.10
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]


def requirements() -> dict[str, Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    found = [Requirement(text) for texts in lists for text in texts]
    return {str(each): each for each in found if each.name != "flink-skills"}


@pytest.mark.parametrize("name", requirements())
def test_lower_bound_is_the_tested_version(name: str) -> None:
    requirement = requirements()[name]
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    [pinned] = [line for line in lines if line.startswith(f"{requirement.name}==")]
    [bound] = [Version(each.version) for each in requirement.specifier if each.operator == ">="]
    version = Version(pinned.partition("==")[2].partition(" ")[0])
    # A bound of two numbers has no patch release in it.
    assert version.release[: len(bound.release)] == bound.release, "change the bound, or run .ci/lowest"
