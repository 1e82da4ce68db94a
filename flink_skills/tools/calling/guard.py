"""A call of a tool within its limits, and its approval."""

from __future__ import annotations

import asyncio
import datetime as dt
import difflib
import inspect
import json
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeVar, Union

from pydantic import BaseModel, Field, field_validator, model_validator

from flink_skills.hints import none_is_default
from flink_skills.options import Option, OptionFamily, SkillConfig, SkillOptions
from flink_skills.tools.arguments import ArgumentError, Canonical, plain_name, unique_json
from flink_skills.tools.base import Tool, ToolContext, ToolResult
from flink_skills.tools.calling.truncation import truncate
from flink_skills.tools.function import result_of
from flink_skills.tools.tool_names import matches

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


T = TypeVar("T")


@dataclass(frozen=True)
class CallLimits:
    """Limits of the calls of one tool.

    Attributes:
        timeout: Maximum duration in seconds. 0: that of the turn.
        max_output: Maximum number of characters of a result. 0: no limit.
        max_concurrent: Maximum number of calls at the same time in a worker. 0: no limit.
        retries: Maximum number of retries after a failure that is ``retryable``.
        repeats: True if a call that may have run before a crash is repeated.
    """

    timeout: float = 0.0
    max_output: int = 0
    max_concurrent: int = 0
    retries: int = 0
    repeats: bool = True

    @classmethod
    def of(cls, name: str, tool: Tool, config: SkillConfig) -> CallLimits:
        """Return the limits of ``tool``. Models know it as ``name``.

        An option for the name takes precedence over the attributes of the tool, and these over options for all tools.

        >>> config = SkillConfig({"skills.tool.timeout.price": "5 s"})
        >>> CallLimits.of("price", FunctionTool(price), config).timeout
        5.0
        """

        def chosen(family: OptionFamily[T], own: T | None, of_all: Option[T]) -> T:
            named = config.family(family)
            if name in named:
                return named[name]
            return config.get(of_all) if own is None else own

        retries = chosen(SkillOptions.TOOL_RETRIES_OF, None, SkillOptions.TOOL_RETRIES) if tool.idempotent else 0
        lost = chosen(SkillOptions.TOOL_LOST_CALLS_OF, None, SkillOptions.TOOL_LOST_CALLS)
        return cls(
            timeout=chosen(SkillOptions.TOOL_TIMEOUT_OF, tool.timeout, SkillOptions.TOOL_TIMEOUT),
            max_output=chosen(SkillOptions.TOOL_MAX_OUTPUT_OF, tool.max_output, SkillOptions.TOOL_MAX_OUTPUT),
            max_concurrent=chosen(
                SkillOptions.TOOL_MAX_CONCURRENT_OF, tool.max_concurrent, SkillOptions.TOOL_MAX_CONCURRENT
            ),
            retries=retries,
            repeats=tool.idempotent or lost == "repeat",
        )


class Place:
    """A place of a call among the calls of its tool that run at the same time.

    The call has it in an ``async with`` block. A call that waits for an answer leaves the place, because the turn can
    stop only when no other call waits for one.

    Args:
        places: The places of the tool.
    """

    __slots__ = ("_is_taken", "_places")

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._is_taken = False

    async def __aenter__(self) -> Place:
        await self.take()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    async def take(self) -> None:
        """Wait for a place, if the call has none."""
        if not self._is_taken:
            await self._places.acquire()
            self._is_taken = True

    def leave(self) -> None:
        """Return the place to other calls."""
        if self._is_taken:
            self._is_taken = False
            self._places.release()


_log = logging.getLogger(__name__)
_FIRST_PAUSE = 0.5
_MAX_PAUSE = 10.0
# Seconds between two looks at the time of a call that waits.
_SHORTEST_WAIT = 0.05
# Maximum number of tools with cached limits. The tools of skills change.
_KEPT = 4096


class CallGuard:
    """The guard of one agent in a worker.

    ``approver`` answers for the tools that ``skills.tools.approve`` or ``approve`` names, by name or pattern, and for
    those that have :attr:`Tool.approve`.
    """

    def __init__(self, config: SkillConfig, approver: Approver | None = None, approve: Sequence[str] = ()) -> None:
        self._config = config
        self._approver = approver
        self._approve = (*config.get(SkillOptions.TOOLS_APPROVE), *approve)
        self._limits: dict[str, tuple[Tool, CallLimits]] = {}
        self._places: dict[str, asyncio.Semaphore] = {}

    async def call(self, name: str, tool: Tool, arguments: Canonical, context: ToolContext) -> ToolResult:
        """The result of ``tool``, which models know as ``name``, or one that says why it was not called, or gave none.

        ``context.arguments`` become those that an approval changed. Raises what the tool raises.
        """
        limits = self._limits_of(name, tool)
        by = ""
        if tool.approve or matches(name, self._approve):
            approval = await self._approval(name, tool, arguments, context)
            if not approval.approved:
                why = f": {approval.reason}" if approval.reason else ""
                return ToolResult(f"{name} was not called: the call was not approved{why}", is_error=True)
            if approval.arguments is not None:
                try:
                    changed = read_canonical(tool, approval.arguments)
                except (ArgumentError, ValueError) as error:
                    return _unusable(name, approval.by, context, error)
                by = approval.by if changed != arguments else ""
                context.arguments = arguments = changed
        if context.begin is not None:
            context.attempt = await context.begin()
        lost = context.attempt > 1 and not limits.repeats
        context.max_output = limits.max_output
        if lost:
            result = ToolResult(
                f"{name} was not called: it may have been called with these arguments before the worker was lost, and "
                "must not be called twice. Check what was done before you continue.",
                is_error=True,
            )
        elif limits.max_concurrent:
            async with self._place(name, limits.max_concurrent) as place:
                if context.waits is not None:
                    context.waits.limited(place.leave, place.take)
                result = await self._attempts(name, tool, arguments, context, limits)
        else:
            result = await self._attempts(name, tool, arguments, context, limits)
        if by:
            shown = json.dumps(arguments, ensure_ascii=False, default=str)
            outcome = "did not run" if lost else "failed" if result.is_error else "ran"
            note = f"{by} approved the call with other arguments, and it {outcome} with these: {shown}"
            result = replace(result, content=f"{note}\n\n{result.content}", sections=())
        most = limits.max_output
        if not most or len(result.content) <= most:
            return result
        # In a thread, as a result may have many megabytes.
        content = await asyncio.to_thread(truncate, name, result.content, most, result.sections)
        return replace(result, content=content, sections=())

    def _limits_of(self, name: str, tool: Tool) -> CallLimits:
        found = self._limits.get(name)
        if found is None or found[0] is not tool:
            if len(self._limits) >= _KEPT:
                self._limits.clear()
            found = self._limits[name] = (tool, CallLimits.of(name, tool, self._config))
        return found[1]

    def _place(self, name: str, most: int) -> Place:
        if name not in self._places:
            self._places[name] = asyncio.Semaphore(most)
        return Place(self._places[name])

    async def _approval(self, name: str, tool: Tool, arguments: Canonical, context: ToolContext) -> Approval:
        if self._approver is None:
            return Approval(False, "this job has no approver")
        request = ApprovalRequest(
            tool=name,
            arguments=arguments.copied(),
            agent=context.agent,
            key=context.key,
            turn=context.turn,
            call_id=context.call_id,
            model=context.model,
            event=context.event,
            timestamp=context.timestamp,
            session_id=context.session_id,
            open_state=context.open_state,
        )
        waits = context.waits
        canonical = partial(read_canonical, tool)
        asked = None if waits is None else waits.asked_approval(name, arguments, canonical)
        try:
            if asked is None:
                answer = self._approver(request)
                asked = Approval.of(await answer if inspect.isawaitable(answer) else answer)
        except Exception as error:  # the approver is the user's; without a yes nothing is called
            _log.exception("approve() failed for tool %s (call %s); the call is denied", request.tool, context.call_id)
            return Approval(False, f"asking failed ({type(error).__name__})")
        if isinstance(asked, Approval):
            return asked
        if waits is None:
            return Approval(False, "the approver asks a person, and only a turn can wait for the answer")
        decided: Approval = await waits.approval(name, arguments, asked, canonical)
        return decided

    async def _attempts(
        self, name: str, tool: Tool, arguments: Canonical, context: ToolContext, limits: CallLimits
    ) -> ToolResult:
        given = arguments.passed()
        for retry in range(limits.retries + 1):
            result = await self._within(name, tool, given, context, limits.timeout)
            if not result.retryable or retry == limits.retries:
                break
            # Jitter, so that calls that failed together do not return together.
            pause = min(_FIRST_PAUSE * 2**retry, _MAX_PAUSE) * random.uniform(0.5, 1.0)
            _log.info("tool %s (call %s): %s; again in %.1f s", name, context.call_id, result.content, pause)
            await asyncio.sleep(pause)
            context.forget_state()
            # The tool can have changed the values of the attempt before.
            given = arguments.copied()
            if context.waits is not None:
                context.waits.begin_again()
        return result

    async def _within(
        self, name: str, tool: Tool, arguments: Mapping[str, Any], context: ToolContext, timeout: float
    ) -> ToolResult:
        if not timeout:
            return result_of(await tool.call(arguments, context))
        task = asyncio.ensure_future(tool.call(arguments, context))
        task.add_done_callback(_retrieve)
        now, waits = asyncio.get_running_loop().time, context.waits
        # The time of a call does not run while it waits for an answer.
        started = now() - (0.0 if waits is None else waits.waited)
        try:
            done, _ = await asyncio.wait([task], timeout=timeout)
            while not done and waits is not None:
                remaining = timeout - (now() - started - waits.waited)
                if remaining <= 0:
                    break
                done, _ = await asyncio.wait([task], timeout=max(remaining, _SHORTEST_WAIT))
        except BaseException:
            task.cancel()
            raise
        if done:
            return result_of(task.result())
        task.cancel()
        return ToolResult(
            f"{name} gave no result within {timeout:g} s. The call may still have effects. Request less per "
            "call, or continue without it.",
            is_error=True,
            retryable=True,
        )


def read_canonical(tool: Tool, arguments: Mapping[str, Any]) -> Canonical:
    """Return the canonical arguments of a call. Raises :class:`ArgumentError`, or what the tool raises."""
    found = tool.canonical(arguments)
    return found if isinstance(found, Canonical) else Canonical(found)


def _unusable(name: str, by: str, context: ToolContext, error: Exception) -> ToolResult:
    """Return the result of a call if an approver changed its arguments to invalid ones."""
    by = by or "approve()"
    _log.error(
        "%s changed the arguments of tool %s (call %s), and they do not fit; the call is denied: %s",
        by,
        name,
        context.call_id,
        error,
    )
    return ToolResult(
        f"{name} was not called: {by} approved the call with other arguments, and they do not fit", is_error=True
    )


def _retrieve(task: asyncio.Future[Any]) -> None:
    # Nobody waits any more for a call that was given up.
    if not task.cancelled():
        task.exception()
