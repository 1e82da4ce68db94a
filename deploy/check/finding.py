"""What a rule finds, and what it looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Finding", "Manifests", "Object", "Rule"]

Object = Mapping[str, Any]


class Finding(NamedTuple):
    """One thing that is wrong: where, and what to do about it."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


@dataclass(frozen=True)
class Manifests:
    """The objects of one overlay, as they would be applied."""

    name: str
    objects: tuple[Object, ...]

    def of_kind(self, kind: str) -> list[Object]:
        """All objects of a kind, in the order of the overlay."""
        return [found for found in self.objects if found.get("kind") == kind]

    def named(self, kind: str, name: str) -> Object | None:
        """The object of a kind with a name, if the overlay has it."""
        return next((found for found in self.of_kind(kind) if found["metadata"]["name"] == name), None)


Rule = Callable[[Manifests], Iterator[Finding]]
"""A rule looks at the objects of one overlay."""
