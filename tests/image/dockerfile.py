"""Dockerfiles as data, as far as tests ask: stages and their instructions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Stage:
    """A stage: what it is made from, its name, and its instructions with their arguments in order."""

    base: str
    name: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def of(self, *kinds: str) -> list[str]:
        """The arguments of the instructions of these kinds."""
        return [arguments for kind, arguments in self.instructions if kind in kinds]


@dataclass(frozen=True)
class Dockerfile:
    """A whole file. ``arguments`` are those before the first stage, None for one without a default."""

    arguments: dict[str, str | None]
    stages: list[Stage]

    def stage(self, name: str) -> Stage:
        """The stage of this name."""
        (found,) = [stage for stage in self.stages if stage.name == name]
        return found

    def line(self, stage: Stage) -> list[Stage]:
        """The stage and those that it is made from, which are all that is in its image."""
        bases = [other for other in self.stages if other.name and other.name == stage.base]
        return [stage, *(self.line(bases[0]) if bases else [])]


def read(path: Path) -> Dockerfile:
    """Parse a Dockerfile without here-documents."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE)
    text = re.sub(r"\\\n\s*", "", text)
    found = Dockerfile({}, [])
    for line in filter(None, map(str.strip, text.splitlines())):
        kind, _, rest = line.partition(" ")
        kind, rest = kind.upper(), re.sub(r"\s+", " ", rest.strip())
        if kind == "FROM":
            words = [word for word in rest.split() if not word.startswith("--")]
            found.stages.append(Stage(words[0], words[2] if words[1:2] in (["AS"], ["as"]) else ""))
        elif not found.stages:
            assert kind == "ARG", f"{kind} before the first stage"
            name, given, default = rest.partition("=")
            found.arguments[name] = default if given else None
        else:
            found.stages[-1].instructions.append((kind, rest))
    return found
