"""Command isolation: the levels, and what is known about it on this host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from flink_skills.errors import ConfigError
from flink_skills.execution.request import Limits


class IsolationLevel(IntEnum):
    """The levels in ascending order; a higher level stops all that a lower one stops.

    Options, reports and metrics contain the names; the gauge ``isolationLevel`` has the numbers.

    >>> IsolationLevel.parse("landlock") > IsolationLevel.HYGIENE
    True
    """

    NONE = 0
    """The command is an ordinary child process."""
    HYGIENE = 10
    """Clean environment, limits, no network, no new privileges, no remaining process; files of the user are open."""
    LANDLOCK_PARTIAL = 20
    """Files are closed too; signals to the worker are open."""
    LANDLOCK = 30
    """Files, network and signals are closed; names and metadata of files of the same user are not."""
    NAMESPACE = 40
    """A separate view: other files, processes and sockets do not exist for the command."""
    REMOTE = 50
    """Another pod, with a separate kernel or node."""

    @classmethod
    def parse(cls, text: object) -> IsolationLevel:
        """Return the level of a name in upper or lower case. Raises :class:`ConfigError` that lists the names."""
        try:
            return cls[str(text).strip().upper()]
        except KeyError:
            names = ", ".join(level.name for level in cls)
            raise ConfigError(f"unknown isolation level {text!r}: expected one of {names}") from None


@dataclass(frozen=True)
class IsolationReport:
    """The result of choosing a backend and proving its level.

    Attributes:
        level: Proved level; ``NONE`` if no backend can be used.
        backend: Chosen backend; empty if none can be used.
        proved: Actions that canaries found to be prevented, sorted.
        not_enforced: Actions that are known or were found to be possible, sorted.
        limits: The limits of each command.
        net: ``denied`` or ``allowed``.
        kernel: Release of the kernel.
        landlock_abi: Version of Landlock in the kernel. 0 means none.
        seccomp_outer: The seccomp mode of the worker itself: ``disabled``, ``strict``, ``filter`` or ``unknown``.
        uid: The user that commands run as.
        shortfall: Reason why the backend cannot reach its own level, with the fix. Empty if none is known.
        skipped: The reason and the fix for each backend that was tried and rejected, by name.
        milliseconds: Duration.
    """

    level: IsolationLevel
    backend: str = ""
    backend_version: str = ""
    proved: tuple[str, ...] = ()
    not_enforced: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    net: str = "denied"
    kernel: str = ""
    landlock_abi: int = 0
    seccomp_outer: str = "unknown"
    uid: int = 0
    shortfall: str = ""
    skipped: Mapping[str, str] = field(default_factory=dict)
    milliseconds: float = 0.0

    @property
    def acceptable(self) -> IsolationLevel | None:
        """The level with which jobs would open here. None if a lower requirement does not help."""
        if self.level > IsolationLevel.NONE:
            return self.level
        # Without isolation of files, if every backend that has it was tried.
        untried = "hygiene" not in self.skipped and {"bwrap", "landlock"} <= set(self.skipped)
        return IsolationLevel.HYGIENE if untried else None

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data, with the keys of ``flink-skills doctor --format json``."""
        return {
            **vars(self),
            "level": self.level.name,
            "proved": list(self.proved),
            "not_enforced": list(self.not_enforced),
            "limits": self.limits.to_json(),
            "skipped": dict(self.skipped),
            "milliseconds": round(self.milliseconds, 1),
        }

    def summary(self) -> str:
        """Return one line for logs."""
        gaps = ", ".join(self.not_enforced) or "nothing known"
        return (
            f"commands run at level {self.level.name} (backend {self.backend or 'none'}, uid {self.uid}, "
            f"network {self.net}); not enforced: {gaps}"
        )
