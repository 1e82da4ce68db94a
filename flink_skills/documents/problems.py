"""Problems of a document, each with its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from flink_skills.errors import ConfigError

__all__ = ["DocumentError", "Path", "Place", "Problem", "path_text"]

Path = tuple["str | int", ...]
"""A place inside of a document: keys of mappings and positions in lists, from the outermost one."""


@dataclass(frozen=True, order=True)
class Place:
    """Line and column of a file, both from 1; column 0: the line as a whole."""

    line: int
    column: int = 0


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. ``path`` is where in the document, ``place`` where in the file. ``not_here`` is the kind
    and the name of a connector or format that is all there is to it: its jar is not on this machine.

    >>> str(Problem("job.yaml", "unknown key 'tabels'", ("input",), Place(3, 5)))
    "job.yaml:3:5: input: unknown key 'tabels'"
    """

    file: str
    message: str
    path: Path = ()
    place: Place | None = None
    not_here: tuple[str, str] | None = None

    def __str__(self) -> str:
        where = self.file
        if self.place is not None:
            where += f":{self.place.line}" + (f":{self.place.column}" if self.place.column else "")
        return f"{where}: " + (f"{path_text(self.path)}: " if self.path else "") + self.message


class DocumentError(ConfigError):
    """A file that cannot be used; ``problems`` are in the order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.place or Place(0)))
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def redacted(self, hide: Callable[[str], str]) -> DocumentError:
        """The same error with ``hide`` over every message."""
        return DocumentError([replace(problem, message=hide(problem.message)) for problem in self.problems])


def path_text(path: Path) -> str:
    """A path for people.

    >>> path_text(("agent", "tools", 0))
    'agent.tools[0]'
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
