"""Requests of waits and sleeps, and the validation of their answers."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from flink_skills.agents.state.codec import adapter_of
from flink_skills.agents.state.event import to_plain
from flink_skills.agents.state.waits import (
    ANSWERED,
    APPROVAL,
    CANCELLED,
    SLEEP,
    TIMED_OUT,
    WAIT,
    OpenWait,
    WaitRequest,
    WaitResult,
    is_wait_id,
)
from flink_skills.errors import ConfigError, LimitError, TurnError, WaitCancelled, WaitTimeout
from flink_skills.options.option import parse_duration
from flink_skills.tools.arguments import Canonical, unique_json
from flink_skills.tools.calling import Approval, Decision, Later

if TYPE_CHECKING:
    from flink_skills.agents.turn.agent_turn import AgentTurn

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
# Tables, pages and terminals show times until the end of the year 9999.
_TIMES = range(-62_135_596_800_000, 253_402_300_800_000)
_MAX_SPAN = 1000 * 365 * 24 * 3600 * 1000


class AnswerReader:
    """Validates answers, and creates the value that the code receives.

    Args:
        answer_type: A type that pydantic can validate. None: any JSON-like value.
        place: The call, for messages.

    Raises:
        TurnError: pydantic cannot validate the type.
    """

    def __init__(self, answer_type: Any, place: str) -> None:
        self._adapter = None if answer_type is None else adapter_of(answer_type)
        # A type that names an unknown class has an adapter that rejects each value.
        if answer_type is not None and (self._adapter is None or not self._adapter.pydantic_complete):
            raise TurnError(f"{place}: pydantic cannot validate answer_type {answer_type!r}")

    def __call__(self, value: Any) -> Any:
        """Return the answer of a JSON-like value. A text that does not fit is read as JSON, which columns contain.

        Raises:
            ValueError: The value does not fit. The message has the reason.
        """
        if self._adapter is None:
            return value
        try:
            return self._adapter.validate_python(value)
        except ValidationError as error:
            if isinstance(value, str):
                with contextlib.suppress(ValidationError):
                    found = self._adapter.validate_json(value)
                    unique_json(value)
                    return found
            problems = [f"{'.'.join(map(str, of['loc'])) or 'the answer'}: {of['msg']}" for of in error.errors()[:5]]
            raise ValueError("; ".join(problems)) from None
        except Exception as error:  # The type can contain a validator of the user.
            raise ValueError(f"{type(error).__name__}: {error}") from error


def wait_request(
    name: str, *, question: str, payload: Any, timeout: Any, event_time: bool, timestamp: int | None
) -> WaitRequest:
    """Return the request of ``ctx.wait``. Raises :class:`TurnError` for an argument that cannot be used."""
    place = f"ctx.wait({name!r})"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise TurnError(f"{place}: a name has up to 100 letters, digits, '_', '-' and '.', and no '-' or '.' first")
    if is_wait_id(name):
        raise TurnError(
            f"{place}: the name has the form of a wait's id, 32 digits of 0-9 and a-f: put a letter before it"
        )
    if not isinstance(question, str):
        raise TurnError(f"{place}: question is of type {type(question).__name__}: give a string")
    if timeout is None:
        return WaitRequest(WAIT, name, question, plain_payload(payload, place))
    span = milliseconds(timeout, f"{place}: timeout")
    until = _event_time_after(span, timestamp, place) if event_time else None
    return WaitRequest(
        WAIT,
        name,
        question,
        plain_payload(payload, place),
        timeout=None if event_time else span,
        until=until,
        event_time=event_time,
    )


def sleep_request(span: Any, *, event_time: bool, timestamp: int | None) -> WaitRequest:
    """Return the request of ``ctx.sleep``. Raises :class:`TurnError` for an argument that cannot be used."""
    length = milliseconds(span, "ctx.sleep")
    if event_time:
        until = _event_time_after(length, timestamp, "ctx.sleep")
        return WaitRequest(SLEEP, "sleep", until=until, event_time=True)
    return WaitRequest(SLEEP, "sleep", timeout=length)


def milliseconds(span: Any, place: str) -> int:
    """Return a time in milliseconds: of seconds, a ``timedelta``, or text such as ``2 d``.

    Raises :class:`TurnError` for anything else.
    """
    try:
        if isinstance(span, dt.timedelta):
            seconds = span.total_seconds()
        elif isinstance(span, str):
            seconds = parse_duration(span)
        else:
            seconds = float(span)
        found = round(seconds * 1000)
    except (TypeError, ValueError, OverflowError, ConfigError):
        raise TurnError(f"{place} is {span!r}: give seconds, a timedelta, or text such as '2 d'") from None
    if isinstance(span, bool) or not 0 <= found <= _MAX_SPAN:
        raise TurnError(f"{place} is {span!r}: give a time from 0 seconds to 1,000 years")
    return found


def time_in_milliseconds(when: Any) -> int:
    """Return the argument of ``ctx.sleep_until`` in milliseconds since 1970. Raises :class:`TurnError`."""
    if isinstance(when, dt.datetime):
        if when.tzinfo is None:
            raise TurnError("ctx.sleep_until: the datetime has no time zone: give one, such as timezone.utc")
        return round(when.timestamp() * 1000)
    if isinstance(when, (int, float)) and not isinstance(when, bool) and math.isfinite(when):
        found = round(when)
        if found in _TIMES:
            return found
    raise TurnError(f"ctx.sleep_until({when!r}): give a datetime, or milliseconds since 1970 until the year 9999")


def _event_time_after(span: int, timestamp: int | None, place: str) -> int:
    if timestamp is None:
        raise TurnError(f"{place}: event_time=True needs events with timestamps: assign them with a WatermarkStrategy")
    if timestamp + span not in _TIMES:
        raise TurnError(
            f"{place}: the end is not in the years 1 to 9999, because the timestamp of the event is {timestamp}"
        )
    return timestamp + span


def plain_payload(payload: Any, place: str) -> Any:
    """Return ``payload`` as JSON-like data. Raises :class:`TurnError` if that is not possible."""
    try:
        plain = to_plain(payload, fallback=_reject)
        json.dumps(plain, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TurnError(
            f"{place}: the payload is not JSON-like ({error}): give dicts, lists, strings and numbers"
        ) from None
    return plain


def _reject(value: Any) -> Any:
    raise TypeError(f"a value is of type {type(value).__name__}")


def answer_of(wait: str, result: WaitResult, read: Callable[[Any], Any]) -> Any:
    """Return the answer of an ended wait.

    Raises:
        WaitTimeout: The wait had no answer in time.
        WaitCancelled: The wait was cancelled.
        TurnError: The type of the answer has changed since it was stored.
    """
    if result.status == ANSWERED:
        try:
            return read(result.value)
        except ValueError as error:
            raise TurnError(
                f"the stored answer of {wait} does not fit its answer_type any more ({error}): "
                "accept the earlier type as well, or cancel the turn"
            ) from None
    if result.status == CANCELLED:
        by = f" by {result.by}" if result.by else ""
        raise WaitCancelled(f"{wait} was cancelled{by}")
    if result.status == TIMED_OUT:
        raise WaitTimeout(f"{wait} had no answer in time")
    raise WaitTimeout(f"{wait} received no answer before the inputs of the job ended")


_NO_DECISION = "There was no decision before the deadline."


class CallWaits:
    """Waits in one tool call. The journal stores them as steps inside the call's step.

    Args:
        agent_turn: The calling agent.
        step: The call's step.
    """

    # Few calls wait, so these are not set for each call.
    _numbers: Mapping[str, int] = MappingProxyType({})
    _waiting = 0
    _since = _waited = 0.0
    _leave: Callable[[], None] | None = None
    _take: Callable[[], Awaitable[None]] | None = None

    def __init__(self, agent_turn: AgentTurn, step: str) -> None:
        self._agent_turn = agent_turn
        self._step = step

    @property
    def waited(self) -> float:
        """The time in seconds that the call has waited for answers."""
        return self._waited + (time.monotonic() - self._since if self._waiting else 0.0)

    def limited(self, leave: Callable[[], None], take: Callable[[], Awaitable[None]]) -> None:
        """Leave the call's place among those of its tool while it waits, and take one before it continues."""
        self._leave, self._take = leave, take

    def begin_again(self) -> None:
        """Report that the tool is called again. Waits of the earlier call that have ended return the same answers."""
        self._numbers = {}

    @property
    def _approval_step(self) -> str:
        return f"{self._step}/approval"

    def asked_approval(
        self, tool: str, arguments: Mapping[str, Any], canonical: Callable[[Mapping[str, Any]], Canonical]
    ) -> Later | None:
        """Return the question about this call that an earlier attempt has asked, None if it has asked none.

        After a restart, a model can make another call in the same step. The question about it has not been asked.
        """
        asked = self._agent_turn.steps.journal.asked_wait(self._approval_step)
        if asked is None or self._asked_arguments(tool, arguments, canonical) is not asked.request.arguments:
            return None
        return _later(asked)

    def _asked_arguments(
        self, tool: str, arguments: Mapping[str, Any], canonical: Callable[[Mapping[str, Any]], Canonical]
    ) -> Mapping[str, Any]:
        """Return the question's arguments.

        An earlier release asked with the arguments that the model wrote. It is the same
        question if its arguments are read as the same call.
        """
        plain: Mapping[str, Any] = to_plain(dict(arguments))
        asked = self._agent_turn.steps.journal.asked_wait(self._approval_step)
        if asked is None or asked.request.tool != tool or asked.request.arguments is None:
            return plain
        try:
            is_same = asked.request.arguments == plain or canonical(asked.request.arguments) == arguments
        except Exception:
            is_same = False
        return asked.request.arguments if is_same else plain

    async def approval(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        asked: Later,
        canonical: Callable[[Mapping[str, Any]], Canonical],
    ) -> Approval:
        """Return the decision of a person about this call. ``canonical`` reads the arguments that a person changes.

        Raises:
            LimitError: The decision is not made in time, and ``asked`` then fails the turn.
            TurnError: The timeout or the payload cannot be used.
        """
        place = f"later(…) for tool {tool}"
        payload = {} if asked.payload is None else {"payload": plain_payload(asked.payload, place)}
        request = WaitRequest(
            APPROVAL,
            "approval",
            asked.question,
            {"on_timeout": asked.on_timeout, **payload},
            tool,
            self._asked_arguments(tool, arguments, canonical),
            timeout=None if asked.timeout is None else milliseconds(asked.timeout, f"{place}: timeout"),
        )
        read = _DecisionReader(tool, canonical, place)
        result = await self._run(self._approval_step, request, read)
        if result.status != ANSWERED:
            return _undecided(tool, result, asked)
        try:
            return read(result.value).approval(result.by)
        except ValueError as error:  # an earlier release accepted the answer, or the tool has changed
            return Approval(False, f"the stored answer cannot be used ({error})")

    async def wait(self, name: str, payload: Any, *, question: str, timeout: Any, answer_type: Any) -> Any:
        """See :meth:`flink_skills.ToolContext.wait`."""
        request = wait_request(
            name, question=question, payload=payload, timeout=timeout, event_time=False, timestamp=None
        )
        read = AnswerReader(answer_type, f"context.wait({name!r})")
        number = self._numbers.get(name, 0)
        self._numbers = {**self._numbers, name: number + 1}
        result = await self._run(f"{self._step}/wait:{name}#{number}", request, read)
        return answer_of(f"wait {name!r}", result, read)

    async def _run(self, step: str, request: WaitRequest, read: Any) -> WaitResult:
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting += 1
        if self._leave is not None:
            self._leave()
        try:
            result = await self._agent_turn.wait(step, request, read)
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._waited += time.monotonic() - self._since
        if self._take is not None:
            await self._take()
        return result


class _DecisionReader:
    """Reads a decision about a call. An approval has arguments that fit the tool."""

    def __init__(self, tool: str, canonical: Callable[[Mapping[str, Any]], Canonical], place: str) -> None:
        self._tool = tool
        self._canonical = canonical
        self._read = AnswerReader(Decision, place)

    def __call__(self, value: Any) -> Decision:
        """Return the decision. Raises :class:`ValueError` with the reason why it cannot be used."""
        decision: Decision = self._read(value)
        if decision.approved and decision.arguments is not None:
            try:
                self._canonical(decision.arguments)
            except Exception as error:
                raise ValueError(f"arguments: {error}") from error
        return decision


def _later(asked: OpenWait) -> Later:
    """Return the question of the journal. Its deadline is in the journal as well."""
    payload = asked.request.payload
    return Later(asked.request.question, on_timeout=payload["on_timeout"], payload=payload.get("payload"))


def _undecided(tool: str, result: WaitResult, asked: Later) -> Approval:
    if result.status == CANCELLED:
        return Approval(False, "the question was cancelled", by=result.by)
    if asked.on_timeout == "fail":
        raise LimitError(f"the call of tool {tool} had no decision in time, and on_timeout is fail")
    return Approval(asked.on_timeout == "approve", _NO_DECISION)
