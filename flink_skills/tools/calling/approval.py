"""Calls that need a yes before they are made (``skills.tools.approve``)."""

from __future__ import annotations

import fnmatch
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

__all__ = ["Approval", "ApprovalRequest", "Approver", "needs_approval"]


@dataclass(frozen=True)
class ApprovalRequest:
    """A call that a model wants to be made: for somebody who says yes or no.

    ``call_id`` is the same whenever the same call is asked for again, after a failover too.
    """

    tool: str
    arguments: Mapping[str, Any]
    agent: str
    key: Any
    turn: int
    call_id: str
    model: str = ""


@dataclass(frozen=True)
class Approval:
    """A yes or a no. ``reason`` is told to the model; ``arguments`` take the place of those that it gave."""

    approved: bool
    reason: str = ""
    arguments: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, value: Any) -> Approval:
        """From what an approver returned: an approval, a bool, or a text, which is a no with its reason.

        Raises :class:`TypeError` for anything else: neither may be guessed.
        """
        if isinstance(value, Approval):
            return value
        if isinstance(value, bool):
            return cls(value)
        if isinstance(value, str):
            return cls(False, value)
        raise TypeError(f"an approver returned {type(value).__name__}: return True, False, a reason or an Approval")


#: Answers an :class:`ApprovalRequest`.
Approver = Callable[[ApprovalRequest], Union[Awaitable[Any], Any]]


def needs_approval(name: str, patterns: Sequence[str]) -> bool:
    """Whether a tool is among those that need a yes; patterns are those of shells.

    >>> needs_approval("files_Write", ["files_*"])
    True
    """
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
