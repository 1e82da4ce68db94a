"""Calls that need a yes before they are made (``skills.tools.approve``)."""

from __future__ import annotations

import fnmatch
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

__all__ = ["Approval", "ApprovalRequest", "Approver", "needs_approval"]


@dataclass(frozen=True)
class ApprovalRequest:
    """A tool call that needs approval.

    Attributes:
        tool: The name of the tool.
        arguments: The arguments of the call.
        agent: The name of the agent.
        key: The key of the event.
        turn: The number of the turn on its key.
        call_id: The id of the call. It is the same when the approval is requested again, for example after a failover.
        model: The name of the chat model that calls. It is empty for a call of the agent's code.
        event: The event of the turn.
        timestamp: The timestamp of the event in milliseconds since 1970. None: the stream has no event time.
        session_id: The id of the conversation, empty without a ``session_selector``.
        open_state: Returns a copy of the agent's state for :attr:`state`.
    """

    tool: str
    arguments: Mapping[str, Any]
    agent: str
    key: Any
    turn: int
    call_id: str
    model: str = ""
    event: Any = field(default=None, repr=False)
    timestamp: int | None = None
    session_id: str = ""
    open_state: Callable[[], Any] | None = field(default=None, repr=False, compare=False)

    @property
    def state(self) -> Any:
        """A copy of the state of the key, which an approver can read. Outside turns it is an empty dict."""
        return self.open_state() if self.open_state is not None else {}


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
