"""Waits in a tool call: for an approval before the call, and for answers while it runs."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from flink_skills.agents.state.event import to_plain
from flink_skills.agents.state.waits import ANSWERED, APPROVAL, CANCELLED, OpenWait, WaitRequest, WaitResult
from flink_skills.agents.turn.wait_requests import AnswerReader, answer_of, milliseconds, plain_payload, wait_request
from flink_skills.errors import LimitError
from flink_skills.tools.arguments import Canonical
from flink_skills.tools.calling import Approval, Decision, Later

if TYPE_CHECKING:
    from flink_skills.agents.turn.agent_turn import AgentTurn

__all__ = ["CallWaits"]

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
        asked = self._agent_turn.attempt.steps.asked_wait(self._approval_step)
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
        asked = self._agent_turn.attempt.steps.asked_wait(self._approval_step)
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
