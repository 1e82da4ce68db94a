"""How well commands are kept apart from the rest of the machine, as ordered levels."""

from __future__ import annotations

from enum import IntEnum

from flink_skills.errors import ConfigError

__all__ = ["IsolationLevel"]


class IsolationLevel(IntEnum):
    """The levels, from none to most; a higher one stops all that a lower one stops.

    The names are what options, reports and metrics show; the numbers are what the gauge ``isolationLevel`` shows.

    >>> IsolationLevel.parse("landlock") > IsolationLevel.HYGIENE
    True
    """

    NONE = 0
    """Nothing: the command is a child process like any other."""
    HYGIENE = 10
    """Clean environment, limits, no network, no new privileges, no process left; files of the user are open."""
    LANDLOCK_PARTIAL = 20
    """Files are closed too; signals to the worker are open."""
    LANDLOCK = 30
    """Files, network and signals are closed; names and metadata of files of the same user are not."""
    NAMESPACE = 40
    """A view of its own: other files, processes and sockets do not exist for the command."""
    REMOTE = 50
    """Another pod, with a kernel or a node of its own."""

    @classmethod
    def parse(cls, text: object) -> IsolationLevel:
        """The level of a name in upper or lower case; raises :class:`ConfigError` that lists the names."""
        try:
            return cls[str(text).strip().upper()]
        except KeyError:
            names = ", ".join(level.name for level in cls)
            raise ConfigError(f"unknown isolation level {text!r}: expected one of {names}") from None
