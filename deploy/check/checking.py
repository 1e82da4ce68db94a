"""Runs every rule on what an overlay renders to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from deploy.check.finding import Finding, Manifests, Rule
from deploy.check.render import component_alone, overlays, render, unused_components
from deploy.check.rules import RULES
from deploy.check.rules.references import expected

__all__ = ["check", "needs", "renderings"]

# What a rule ends in where manifests have another form than Kubernetes and Flink know.
_OTHER_FORM = (AttributeError, KeyError, TypeError, ValueError, IndexError)


def check(manifests: Manifests, rules: Iterable[Rule] = RULES) -> list[Finding]:
    """What is wrong with the objects of one overlay, each thing once."""
    return list(dict.fromkeys(finding for rule in rules for finding in _of_one(rule, manifests)))


def needs(manifests: Manifests) -> list[str]:
    """What must be in the namespace already; nothing where the manifests cannot be read, which is a finding."""
    try:
        return expected(manifests)
    except _OTHER_FORM:
        return []


def _of_one(rule: Rule, manifests: Manifests) -> Iterator[Finding]:
    """A rule that cannot read an object says so: what is wrong with its form is a finding of the schemas, above."""
    try:
        yield from rule(manifests)
    except _OTHER_FORM as error:
        what = f"{type(error).__name__}: {error}"
        yield Finding(
            _culprit(rule, manifests),
            f"the rule {rule.__name__} cannot read it ({what}): fix its format, and check again",
        )


def _culprit(rule: Rule, manifests: Manifests) -> str:
    """The object that a rule cannot read when it is alone, else the overlay."""
    for found in manifests.objects:
        try:
            list(rule(Manifests(manifests.name, (found,))))
        except _OTHER_FORM:
            name = found.get("metadata") if isinstance(found.get("metadata"), dict) else {}
            return f"{found.get('kind', 'object')} {(name or {}).get('name', '')}".strip()
    return f"overlay {manifests.name}"


def renderings(deploy: Path) -> Iterator[Manifests]:
    """The overlays of the project, and each component that no overlay has, on the base."""
    for overlay in overlays(deploy):
        yield render(overlay)
    for component in unused_components(deploy):
        with component_alone(component) as folder:
            yield render(folder)
