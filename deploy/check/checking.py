"""Runs every rule on what an overlay renders to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from deploy.check.finding import Finding, Manifests, Rule
from deploy.check.render import component_alone, overlays, render, unused_components
from deploy.check.rules import RULES

__all__ = ["check", "renderings"]


def check(manifests: Manifests, rules: Iterable[Rule] = RULES) -> list[Finding]:
    """What is wrong with the objects of one overlay, each thing once."""
    return list(dict.fromkeys(finding for rule in rules for finding in rule(manifests)))


def renderings(deploy: Path) -> Iterator[Manifests]:
    """The overlays of the project, and each component that no overlay has, on the base."""
    for overlay in overlays(deploy):
        yield render(overlay)
    for component in unused_components(deploy):
        with component_alone(component) as folder:
            yield render(folder)
