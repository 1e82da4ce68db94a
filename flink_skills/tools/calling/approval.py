"""Approvals of calls before they run (``skills.tools.approve``)."""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Union

from pydantic import BaseModel, Field, field_validator, model_validator

from flink_skills.hints import none_is_default
from flink_skills.tools.arguments import plain_name, unique_json

_ARGUMENTS = frozenset({"args", "params", "parameters"})
_ALIKE = 0.8
# CAST writes a BOOLEAN in capitals, and JSON functions write it in small letters.
_TRUTHS = {"true": True, "TRUE": True, "false": False, "FALSE": False}


@dataclass(frozen=True)
class ApprovalRequest:
    """A tool call that needs approval.

    Attributes:
        tool: The name of the tool.
        arguments: A copy of the canonical arguments of the call: declared names, types and defaults.
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
        """A copy of the key's state, which an approver can read. Outside turns it is an empty dict."""
        return self.open_state() if self.open_state is not None else {}


@none_is_default
@dataclass(frozen=True)
class Approval:
    """The decision about a call.

    Attributes:
        approved: True to run the call.
        reason: The reason, which the model receives.
        arguments: The arguments that replace those of the model. None: no change.
        by: Who decided, if the decision came from outside.
    """

    approved: bool
    reason: str = ""
    arguments: Mapping[str, Any] | None = None
    by: str = ""

    @classmethod
    def of(cls, value: Any) -> Approval | Later:
        """Return the decision for what an approver returned: a decision, a bool, or the reason of a refusal.

        Raises :class:`TypeError` for anything else.
        """
        if isinstance(value, (Approval, Later)):
            return value
        if isinstance(value, bool):
            return cls(value)
        if isinstance(value, str):
            return cls(False, value)
        raise TypeError(
            f"an approver returned {type(value).__name__}: return True, False, a reason, an Approval or later(…)"
        )


@none_is_default
@dataclass(frozen=True)
class Later:
    """The decision of an approver to ask a person. See :func:`later`."""

    question: str = ""
    timeout: float | dt.timedelta | str | None = None
    on_timeout: Literal["refuse", "approve", "fail"] = "refuse"
    payload: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.question, str):
            raise ValueError(f"later: question is of type {type(self.question).__name__}: give a string")
        if self.on_timeout not in ("refuse", "approve", "fail"):
            raise ValueError(f"later: on_timeout is {self.on_timeout!r}: use 'refuse', 'approve' or 'fail'")


def later(
    question: str = "",
    *,
    timeout: float | dt.timedelta | str | None = None,
    on_timeout: Literal["refuse", "approve", "fail"] = "refuse",
    payload: Any = None,
) -> Later:
    """Ask a person about a call, and let the turn wait for the answer.

    The question is emitted to the side output ``waits``. The answer comes from the stream of ``.answers(…)``: a record
    with ``approved``, and optionally ``reason``, ``arguments`` (an object, or its JSON) and ``by``.

    Args:
        question: The question for people. The record also contains the tool and its arguments.
        timeout: The maximum time to wait: seconds, a ``timedelta``, or text such as ``"2 d"``. None: no limit.
        on_timeout: ``"refuse"`` or ``"approve"`` the call, or ``"fail"`` the turn, if no answer arrives in time.
        payload: JSON-like data for the person who answers.

    Raises:
        ValueError: ``on_timeout`` has another value, or ``question`` is not a string.

    Example:
        >>> def approve(self, request):
        ...     return request.arguments["cents"] < 5000 or later("Refund this order?", timeout="2 d")
    """
    return Later(question, timeout, on_timeout, payload)


class Decision(BaseModel):
    """The answer of a person about a call."""

    approved: bool = Field(strict=True)
    reason: str | None = None
    arguments: dict[str, Any] | None = None
    by: str | None = None
    cancel: bool | None = Field(None, strict=True)

    @field_validator("approved", "cancel", mode="before")
    @classmethod
    def _from_sql(cls, value: Any) -> Any:
        """Read the strings that SQL writes for a truth value."""
        return _TRUTHS.get(value, value) if isinstance(value, str) else value

    @field_validator("cancel")
    @classmethod
    def _beside_the_answer(cls, value: bool | None) -> bool | None:
        """Reject a cancellation inside the field ``answer``: the one of the record was read before the decision."""
        if value:
            raise ValueError("set cancel next to the field 'answer', not in it")
        return value

    @field_validator("arguments", mode="before")
    @classmethod
    def _from_json(cls, value: Any) -> Any:
        """Read the arguments of a table's column. An empty column has none."""
        if not isinstance(value, str):
            return value
        return unique_json(value) if value.strip() else None

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, value: Any) -> Any:
        """Accept true and false without a record, and reject misspelled fields. Other columns of a row are ignored."""
        if isinstance(value, str) and value.lstrip().startswith("{"):
            value = unique_json(value)
        if not isinstance(value, Mapping):
            return value if isinstance(value, cls) else {"approved": value}
        given = {str(name) for name, field in value.items() if field is not None}
        for name in sorted(given - {*cls.model_fields}):
            plain = plain_name(name)
            near = (
                ["arguments"] if plain in _ARGUMENTS else difflib.get_close_matches(plain, cls.model_fields, 1, _ALIKE)
            )
            # A column such as "approver" next to "approved" is intended.
            if near and (plain == near[0] or near[0] not in given):
                raise ValueError(f"there is no field {name!r}, did you mean {near[0]!r}?")
        return value

    def approval(self, by: str = "") -> Approval:
        """Return the decision. ``by`` is the person's name if the answer does not have it."""
        return Approval(self.approved, self.reason or "", self.arguments, self.by or by or "a person")


#: Answers an :class:`ApprovalRequest`.
Approver = Callable[[ApprovalRequest], Union[Awaitable[Any], Any]]
