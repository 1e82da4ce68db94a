"""The versions of ``constraints-lowest.txt`` are the lowest ones that ``pyproject.toml`` allows."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]


def requirements() -> dict[str, Requirement]:
    found = map(Requirement, importlib.metadata.requires("flink-skills") or ())
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
