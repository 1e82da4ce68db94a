"""Arguments in the response of a model, passed to streaming tools while the response arrives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from types import TracebackType

from flink_skills.telemetry import Delta, Discarded, OnDelta, ToolCallDelta
from flink_skills.telemetry.activity import replace_surrogates
from flink_skills.tools.base import StreamedArguments, Tool, ToolContext
from flink_skills.tools.function import StreamingFunctionTool
from flink_skills.tools.toolset import ToolSet

__all__ = ["ArgumentFeed", "StreamedArguments", "StreamingFunctionTool"]

_log = logging.getLogger(__name__)

ContextOf = Callable[[Tool, int], Awaitable[ToolContext]]
"""The context of the call of a tool that has this number in its answer."""

# Seconds that a tool has for one piece, and all of them for what is left when the answer is there: turns wait for it.
_PIECE_TIMEOUT = 5.0
_LAST_TIMEOUT = 10.0
# Characters of one call that are handed on.
_MAX_LENGTH = 1 << 20
# A tool reads all arguments again with each piece. A piece has at least this share of them: the work is linear in their
# length.
_SHARE = 1 / 256


@dataclass(eq=False)
class _Call:
    tool: Tool
    index: int
    name: str
    model_call_id: str
    new: list[str] = field(default_factory=list)
    text: str = ""
    length: int = 0
    pending: int = 0
    told: bool = False
    discarded: bool = False
    is_too_long: bool = False
    failed: bool = False
    context: ToolContext | None = None

    def next_piece(self) -> StreamedArguments:
        """Return the text since the last notification."""
        delta = "".join(self.new)
        self.new.clear()
        self.pending = 0
        self.told = True
        self.text = "" if self.discarded else self.text + delta
        return StreamedArguments(
            self.name, self.model_call_id, replace_surrogates(delta), replace_surrogates(self.text), self.discarded
        )


class ArgumentFeed:
    """Takes the pieces of one answer, hands them on to ``on_delta``, and those of calls to their tools.

    Tools are told one after another. A tool that takes its time gets what came meanwhile in one piece, so nothing piles
    up. At the end of the block all has been told, and no tool is told anything later; if an error ends it, the tools
    are told that nothing counts. A tool cannot break it: what it raises is logged.

    >>> async with ArgumentFeed(tools, context_of) as feed:
    ...     response = await model.stream(request, feed)
    """

    def __init__(
        self,
        tools: ToolSet,
        context_of: ContextOf,
        on_delta: OnDelta | None = None,
        *,
        piece_timeout: float = _PIECE_TIMEOUT,
        last_timeout: float = _LAST_TIMEOUT,
    ) -> None:
        self._tools = tools
        self._context_of = context_of
        self._on_delta = on_delta
        self._timeouts = (piece_timeout, last_timeout)
        self._calls: dict[int, _Call | None] = {}
        self._waiting: dict[_Call, None] = {}
        self._task: asyncio.Task[None] | None = None

    def __call__(self, delta: Delta) -> None:
        if isinstance(delta, Discarded):
            self._withdraw()
        elif isinstance(delta, ToolCallDelta):
            call = self._call_of(delta)
            if call is not None:
                delta = replace(delta, is_streaming=True)
                self._add(call, delta.arguments)
        if self._on_delta is not None:
            self._on_delta(delta)

    async def __aenter__(self) -> ArgumentFeed:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self._withdraw()
        for call in self._calls.values() if error is None else ():
            if call is not None and call.new and not call.failed:
                self._tell_later(call)
        task = self._task
        if task is None:
            return
        try:
            # A turn that is cancelled waits for nothing.
            if error is None or isinstance(error, Exception):
                await asyncio.wait([task], timeout=self._timeouts[1])
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _call_of(self, delta: ToolCallDelta) -> _Call | None:
        """Return the call of a piece. Return None if its tool is not streaming."""
        if delta.index not in self._calls:
            tool = self._tools.get(delta.name)
            wants = tool is not None and tool.is_streaming
            self._calls[delta.index] = _Call(tool, delta.index, delta.name, delta.call_id) if tool and wants else None
        return self._calls[delta.index]

    def _add(self, call: _Call, arguments: str) -> None:
        call.length += len(arguments)
        if call.length > _MAX_LENGTH and not call.is_too_long:
            call.is_too_long = True
            _log.warning(
                "tool %s: the arguments of call %s are longer than %d characters; on_arguments is not called again "
                "until they are complete",
                call.name,
                call.model_call_id,
                _MAX_LENGTH,
            )
        if not (call.is_too_long or call.failed):
            call.new.append(arguments)
            call.pending += len(arguments)
            if call.pending >= call.length * _SHARE:
                self._tell_later(call)

    def _withdraw(self) -> None:
        for call in self._calls.values():
            if call is None:
                continue
            call.new.clear()
            call.discarded = True
            if call.told and not call.failed:
                self._tell_later(call)
            else:
                self._waiting.pop(call, None)
        self._calls = {}

    def _tell_later(self, call: _Call) -> None:
        self._waiting[call] = None
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._tell_all())

    async def _tell_all(self) -> None:
        while self._waiting:
            call = next(iter(self._waiting))
            del self._waiting[call]
            if call.failed:
                continue
            # Read before anything is awaited: a withdrawal in between is a separate notification.
            streamed = call.next_piece()
            try:
                await asyncio.wait_for(self._tell(call, streamed), self._timeouts[0])
            except (Exception, SystemExit) as error:  # hooks are the user's, and so is what they call
                call.failed = True
                problem = (
                    f"on_arguments took longer than {self._timeouts[0]:g} s"
                    if isinstance(error, asyncio.TimeoutError)
                    else f"{type(error).__name__}: {error}"
                )
                _log.warning(
                    "tool %s: on_arguments failed for call %s and is disabled for the rest of this call: %s",
                    call.name,
                    call.model_call_id,
                    problem,
                    exc_info=error,
                )

    async def _tell(self, call: _Call, streamed: StreamedArguments) -> None:
        if call.context is None:
            call.context = await self._context_of(call.tool, call.index)
        try:
            await call.tool.on_arguments(streamed, call.context)
        except SystemExit as error:  # in a task it would end the worker
            raise RuntimeError(f"on_arguments called sys.exit({error.code})") from error
