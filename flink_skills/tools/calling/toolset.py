"""The tools that one chat model may call."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, NamedTuple, Protocol

from flink_skills.errors import ConfigError, LimitError, UnknownNameError
from flink_skills.telemetry import Delta, Discarded, OnDelta, ToolCallDelta
from flink_skills.telemetry.activity import replace_surrogates
from flink_skills.tools.arguments import ArgumentError, Canonical, model_json
from flink_skills.tools.base import StreamedArguments, Tool, ToolContext, ToolResult, ToolSpec, TurnInterruptedError
from flink_skills.tools.calling.guard import CallGuard, read_canonical
from flink_skills.tools.function import result_of
from flink_skills.tools.tool_names import suggestion

_log = logging.getLogger(__name__)

# Names that all model providers accept.
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FENCE = "```"
_SHOWN_NAMES = 40
_SHOWN_CHARS = 200


class Speaker(Protocol):
    """A tool, or a set of tools, with an addition to the system text."""

    def prompt_addition(self) -> str:
        """Return the addition, which can be empty."""


class PreparedCall(NamedTuple):
    """A call with canonical arguments, or with the ``problem`` that prevents it. ``parsed`` are the arguments given."""

    name: str
    tool: Tool | None
    parsed: Mapping[str, Any] | str
    arguments: Canonical | None = None
    problem: ToolResult | None = None


class ToolSet:
    """Tools by name. Raises :class:`ConfigError` for duplicate names and for names that providers reject.

    ``guard`` enforces the limits of calls. Without it, calls have no limits. ``is_streaming`` is True if any tool is
    streaming.

    >>> def weather(city: str) -> str: ...
    >>> [spec.name for spec in ToolSet([FunctionTool(weather)]).specs()]
    ['weather']
    """

    def __init__(self, tools: Iterable[Tool], guard: CallGuard | None = None) -> None:
        self._guard = guard
        self._tools: dict[str, Tool] = {}
        self._specs: dict[str, ToolSpec] = {}
        self._not_there: Callable[[str], str | None] = _nothing
        self.is_streaming = False
        #: Tools and tool sets with a ``prompt_addition``, by the name of a tool.
        self.speakers: dict[str, Speaker] = {}
        self._add(tools)

    def extended(
        self,
        tools: Iterable[Tool],
        not_there: Callable[[str], str | None],
        speakers: Mapping[str, Speaker] | None = None,
    ) -> ToolSet:
        """Return these tools followed by ``tools``.

        ``not_there`` returns the reason why a name is missing, None if a list of the tools is the best answer.
        ``speakers`` are tool sets with a ``prompt_addition``, by the names of their tools.
        """
        found = ToolSet((), self._guard)
        found._tools, found._specs, found._not_there = self._tools.copy(), self._specs.copy(), not_there
        found.speakers, found.is_streaming = self.speakers.copy(), self.is_streaming
        added = list(tools)
        found._add(added)
        for tool in added if speakers else ():
            speaker = (speakers or {}).get(tool.spec.name)
            if speaker is not None and all(speaker is not other for other in found.speakers.values()):
                found.speakers[f"{tool.spec.name} and others"] = speaker
        return found

    def _add(self, tools: Iterable[Tool]) -> None:
        for tool in tools:
            spec = tool.spec
            if not _NAME.fullmatch(spec.name):
                raise ConfigError(
                    f"tool {spec.name!r}: a tool's name is 1 to 64 letters, digits, '_' and '-': rename it"
                )
            if spec.name in self._tools:
                raise ConfigError(f"duplicate tool {spec.name!r}: rename one of the two")
            self._tools[spec.name] = tool
            self._specs[spec.name] = spec
            self.is_streaming = self.is_streaming or tool.is_streaming
            if tool.speaks:
                self.speakers[spec.name] = tool

    @property
    def names(self) -> list[str]:
        return list(self._tools)

    def get(self, name: str) -> Tool | None:
        """Return the tool ``name``, None if it does not exist."""
        return self._tools.get(name)

    def specs(self, names: Sequence[str] | None = None) -> list[ToolSpec]:
        """Return the descriptions of all tools or of ``names``. Raises :class:`UnknownNameError`."""
        if names is None:
            return list(self._specs.values())
        for name in names:
            if name not in self._specs:
                raise UnknownNameError("tool", name, self._specs)
        return [self._specs[name] for name in names]

    async def call(self, name: str, arguments: Mapping[str, Any] | str, context: ToolContext) -> ToolResult:
        """Call a tool as a model requested it. ``arguments`` can be the JSON that the model wrote.

        An invalid call and an error of the tool return a result with the problem.

        Raises:
            LimitError, TurnInterruptedError: The turn ends or restarts.
        """
        return await self.run(self.prepare(name, arguments), context)

    def prepare(self, name: str, arguments: Mapping[str, Any] | str) -> PreparedCall:
        """Return a call with canonical arguments. ``arguments`` can be the JSON that the model wrote."""
        tool = self._tools.get(name)
        if tool is None:
            unknown = ToolResult(self._not_there(name) or self._unknown(name), is_error=True)
            return PreparedCall(name, None, arguments, problem=unknown)
        given = parsed(name, arguments)
        if isinstance(given, ToolResult):
            return PreparedCall(name, tool, arguments, problem=given)
        try:
            try:
                return PreparedCall(name, tool, given, read_canonical(tool, given))
            except (ArgumentError, ValueError) as error:
                return PreparedCall(name, tool, given, problem=tool.rejected(given, error))
        except Exception as error:  # from the user's tool
            _log.exception("tool %s failed to read its arguments", name)
            failed = f"{name} failed to read its arguments: {type(error).__name__}: {error}"
            return PreparedCall(name, tool, given, problem=ToolResult(failed, is_error=True))

    async def run(self, prepared: PreparedCall, context: ToolContext) -> ToolResult:
        """Run a call of :meth:`prepare`. Raises as :meth:`call` does."""
        name, tool, arguments = prepared.name, prepared.tool, prepared.arguments
        if tool is None or arguments is None:
            return prepared.problem or ToolResult(f"{name} was not called", is_error=True)
        context.arguments = arguments
        if context.control and (denial := _denial(name, tool, arguments, context)):
            return ToolResult(f"{name} was not called: {denial}", is_error=True)
        try:
            if self._guard is None:
                return result_of(await tool.call(arguments.passed(), context))
            return await self._guard.call(name, tool, arguments, context)
        except (LimitError, TurnInterruptedError):
            raise  # of an agent that is a tool: the limits and the journal are those of the whole turn
        except Exception as error:  # a turn survives a faulty tool
            _log.exception("tool %s failed in turn %s (call %s)", name, context.turn, context.call_id)
            return ToolResult(f"{name} failed: {type(error).__name__}: {error}", is_error=True)

    def _unknown(self, name: str) -> str:
        hint = suggestion(name, self._tools)
        shown = ", ".join(list(self._tools)[:_SHOWN_NAMES]) or "none"
        more = len(self._tools) - _SHOWN_NAMES
        return f"There is no tool {name!r}. {hint}{hint and ' '}Tools: {shown}" + (
            f" and {more} more" if more > 0 else ""
        )

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)


def _nothing(name: str) -> None:
    return None


def _denial(name: str, tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> str:
    """Return the reason of a control record why a call does not run, an empty string if it can."""
    control, agent = context.control, context.agent
    if control is None:
        return ""
    named = [("tool", name), *(("skill", skill) for skill in tool.skills_of(arguments, context))]
    return next(filter(None, (control.denial(target, of, agent) for target, of in named)), "")


def parsed(tool: str, arguments: Mapping[str, Any] | str) -> Mapping[str, Any] | ToolResult:
    """Return the arguments as an object, or the error result for a model that wrote something else."""
    if isinstance(arguments, Mapping):
        return arguments
    value: Any = arguments
    # Some models send the JSON as a JSON string, in a code fence, or both.
    for _ in range(3):
        if not isinstance(value, str):
            break
        text = _unfenced(value.strip())
        if not text:
            return {}
        try:
            # strict=False: line breaks inside a string are the usual slip in shell commands.
            value = model_json(text, strict=False)
        except ValueError as error:
            shown = text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
            return ToolResult(
                f"{tool}: the arguments are not valid JSON ({error}): {shown}\nSend one JSON object.",
                is_error=True,
            )
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return value
    return ToolResult(
        f"{tool}: the arguments are a JSON {_kind(value)}, not an object. Send one JSON object.",
        is_error=True,
    )


def _unfenced(text: str) -> str:
    """Return ``text`` without the code fence around it. A regular expression would take hours for some inputs."""
    if len(text) < 2 * len(_FENCE) or not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return text
    return text[len(_FENCE) : -len(_FENCE)].removeprefix("json").strip()


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return {str: "string", int: "number", float: "number", list: "array"}.get(type(value), "value")


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
    """Feed of the pieces of one answer: to ``on_delta``, and those of calls to their tools.

    Tools receive pieces one after another. A slow tool receives the pieces that arrived in the meantime as one. No
    tool receives anything after the end of the block. If an error ends the block, the pieces are withdrawn. An
    exception of a tool is logged, and does not end the feed.

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
