"""A job's own tools that skills activate: none is offered before a loaded skill names it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Union

from flink_skills.errors import ConfigError, ExecutionError, SkillsError
from flink_skills.tools.base import Tool, ToolContext
from flink_skills.tools.dynamic.tool_registry import check_tool_name, get_tool
from flink_skills.tools.dynamic.toolset_base import BaseToolSet
from flink_skills.tools.function import FunctionTool
from flink_skills.tools.profiles import TOOL_NAMES

__all__ = ["PoolItem", "PoolTools", "ToolPool"]

_log = logging.getLogger("flink_skills.tools")

#: A tool, a function, a tool set, or the name of a registered tool.
PoolItem = Union[Tool, BaseToolSet, str, Callable[..., Any]]

# Seconds. A turn waits for its tool sets, so one that hangs may not cost it much; starting may take longer.
_START_TIMEOUT = 30.0
_ASK_TIMEOUT = 10.0
# How long a tool set that could not start is left alone.
_RETRY_AFTER = 60.0
_MAX_TEXTS = 1000
_KEPT_TURNS = 256


class PoolTools(dict[str, Tool]):
    """Tools by name. ``speakers`` are the tool sets of those whose set has something to say to models that have them
    (:meth:`BaseToolSet.prompt_addition`), by the names of tools."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        super().__init__(tools)
        self.speakers: dict[str, BaseToolSet] = {}


class ToolPool:
    """Tools of the job that a model gets only through skills. Make it, :meth:`initialize` it, ask it for :meth:`tools`.

    Of equal names a tool of the pool counts before one of a tool set, and this before a registered one. ``owner`` is
    whose pool it is, for logs. ``start_timeout`` and ``ask_timeout`` are the seconds that a tool set may take.

    Raises :class:`ConfigError` for an item that is no tool and for two tools of one name.

    >>> pool = ToolPool([weather, traffic, ShopTools(), "registered_tool"])
    >>> pool.names
    ('weather', 'traffic', 'registered_tool')
    """

    def __init__(
        self,
        items: Iterable[PoolItem],
        *,
        owner: str = "",
        start_timeout: float = _START_TIMEOUT,
        ask_timeout: float = _ASK_TIMEOUT,
    ) -> None:
        self._owner = f"agent {owner}: " if owner else ""
        self._tools: dict[str, Tool] = {}
        self._registered: dict[str, None] = {}
        self._members: list[_Member] = []
        # A tool set may make its functions anew for each turn, so this must not grow.
        self._function_tool = functools.lru_cache(maxsize=512)(FunctionTool)
        self._said: set[str] = set()
        self._initialized = False
        self._by_turn: OrderedDict[tuple[object, ...], PoolTools] = OrderedDict()
        self._ask_timeout = ask_timeout
        functions: list[Any] = []
        for item in items:
            if isinstance(item, BaseToolSet):
                if all(member.toolset is not item for member in self._members):
                    self._members.append(_Member(item, start_timeout))
            elif isinstance(item, str):
                self._registered[check_tool_name(item)] = None
            elif not any(item == function for function in functions):
                functions.append(item)
                self._add(self._as_tool(item))

    def _add(self, tool: Tool) -> None:
        name = check_tool_name(tool.spec.name)
        if self._tools.setdefault(name, tool) is not tool:
            raise ConfigError(f"tool {name!r} is in the pool twice: rename one of the two")

    @property
    def names(self) -> tuple[str, ...]:
        """Names that are known beforehand: all but those of the tools of tool sets."""
        return tuple(dict.fromkeys((*self._tools, *self._registered)))

    def known_tools(self) -> list[Tool]:
        """Return the tools of :attr:`names`, as far as they are registered."""
        return [*self._tools.values(), *filter(None, map(self._from_registry, self._registered))]

    def __len__(self) -> int:
        return len(self.names) + len(self._members)

    async def initialize(self) -> None:
        """Start the tool sets and log what there is.

        Raises :class:`SkillsError` for tool sets that are required and cannot start, after those that started were
        closed. Others are started again later.
        """
        self._initialized = True
        started = await asyncio.gather(*(self._start(member) for member in self._members), return_exceptions=True)
        if errors := [error for error in started if isinstance(error, BaseException)]:
            await self.close()
            raise self._start_error(errors)
        _log.info("%stool pool initialized: %d tools, %d toolsets", self._owner, len(self.names), len(self._members))
        if not self._members:
            for name in self._registered:
                self._from_registry(name)

    def _start_error(self, errors: Sequence[BaseException]) -> BaseException:
        """One error for all tool sets that could not start."""
        skills = [error for error in errors if isinstance(error, SkillsError)]
        if len(skills) < len(errors):
            return next(error for error in errors if not isinstance(error, SkillsError))
        # A restart helps only if it helps all of them.
        found = ExecutionError("\n".join(f"{self._owner}{error}" for error in skills))
        found.retryable = all(error.retryable for error in skills)
        found.__cause__ = skills[0]
        return found

    async def tools(self, context: ToolContext) -> PoolTools:
        """The tools that skills can activate now, by name. Tool sets are asked once in a turn, whoever asks.

        A tool set that fails, or answers with what is no tool, is a warning in the log; its tools are absent.
        """
        if not self._initialized:
            await self.initialize()
        turn = (context.agent, repr(context.key), context.turn, context.attempt)
        found = self._by_turn.get(turn) if self._members and context.turn else None
        if found is None:
            found = await self._ask_all(context)
            if self._members and context.turn:
                self._by_turn[turn] = found
                if len(self._by_turn) > _KEPT_TURNS:
                    self._by_turn.popitem(last=False)
        return found

    async def _ask_all(self, context: ToolContext) -> PoolTools:
        found = PoolTools(self._tools)
        for member, tools in zip(
            self._members, await asyncio.gather(*(self._ask(m, context) for m in self._members)), strict=True
        ):
            for tool in tools:
                name = tool.spec.name
                if name in TOOL_NAMES:
                    self._say(f"tool {name!r} of {member.label} is named like one of the runtime's and is omitted")
                elif found.setdefault(name, tool) is not tool:
                    self._say(f"tool {name!r} of {member.label} is omitted: the pool already has a tool of this name")
                elif member.speaks:
                    found.speakers[name] = member.toolset
        self._add_registered(found)
        return found

    def _add_registered(self, found: dict[str, Tool]) -> None:
        for name in self._registered:
            if name not in found:
                registered = self._from_registry(name)
                if registered is not None:
                    found[name] = registered

    def fixed(self) -> Mapping[str, Tool] | None:
        """What :meth:`tools` would give, where no tool set has to be asked for it; otherwise None."""
        if self._members or not self._initialized:
            return None
        if not self._registered:
            return self._tools
        found = self._tools.copy()
        self._add_registered(found)
        return found

    def note(self, notes: Iterable[str]) -> None:
        """Log what :func:`~flink_skills.tools.dynamic.active.active_tools` found odd, each text once."""
        for text in notes:
            self._say(text)

    async def close(self) -> None:
        """Close the tool sets; what they raise is logged."""
        await asyncio.gather(*(self._stop(member) for member in self._members))
        self._initialized = False

    async def _start(self, member: _Member) -> bool:
        async with member.lock:
            if member.started:
                return True
            if asyncio.get_running_loop().time() < member.next_try:
                return False
            try:
                if member.toolset.required:
                    await _called(member.toolset.initialize)
                else:
                    await _within(member.start_timeout, member.toolset.initialize)
            except Exception as error:  # tool sets are the user's
                if member.toolset.required:
                    if isinstance(error, SkillsError):
                        raise
                    raise ExecutionError(f"{member.label} cannot start: {type(error).__name__}: {error}") from error
                member.next_try = asyncio.get_running_loop().time() + _RETRY_AFTER
                self._failed(member, "cannot start", error)
                return False
            member.started = True
            return True

    async def _ask(self, member: _Member, context: ToolContext) -> list[Tool]:
        if not await self._start(member):
            return []
        try:
            given = await _within(self._ask_timeout, functools.partial(member.toolset.get_tools, context))
            tools = [self._as_tool(item) for item in given]
            for tool in tools:
                check_tool_name(tool.spec.name)
        except Exception as error:
            self._failed(member, "returned no tools", error)
            return []
        member.problem = ""
        return tools

    async def _stop(self, member: _Member) -> None:
        async with member.lock:
            if not member.started:
                return
            member.started = False
            try:
                await _within(member.start_timeout, member.toolset.close)
            except Exception:
                _log.exception("%s%s did not close", self._owner, member.label)

    def _failed(self, member: _Member, what: str, error: Exception) -> None:
        # Once for each outage and not once for each turn of it.
        problem = f"{what}: {type(error).__name__}: {error}"
        level = logging.DEBUG if problem == member.problem else logging.WARNING
        member.problem = problem
        shown = None if isinstance(error, SkillsError) else error
        _log.log(level, "%s%s %s; its tools are absent", self._owner, member.label, problem, exc_info=shown)

    def _as_tool(self, item: Any) -> Tool:
        if isinstance(item, Tool):
            return item
        if not callable(item) or isinstance(item, type):
            shown = f"class {item.__qualname__}" if isinstance(item, type) else repr(item)
            raise ConfigError(f"{shown} is not a tool: pass a function, a Tool, a BaseToolSet or the name of a tool")
        try:
            hash(item)
        except TypeError:
            return FunctionTool(item)
        return self._function_tool(item)

    def _from_registry(self, name: str) -> Tool | None:
        try:
            tool = get_tool(name)
        except SkillsError as error:
            self._say(f"Tool {name!r} of the pool could not be resolved: {error}")
            return None
        if tool is None and name not in self._tools:
            self._say(
                f"Tool {name!r} of the pool could not be resolved: it is not in the pool, a tool set or the registry; "
                "call register_tool in a module that the agent's module imports"
            )
        return tool

    def _say(self, text: str) -> None:
        if text not in self._said and len(self._said) < _MAX_TEXTS:
            self._said.add(text)
            _log.warning("%s%s", self._owner, text)


class _Member:
    """A tool set of a pool."""

    def __init__(self, toolset: BaseToolSet, start_timeout: float) -> None:
        self.toolset = toolset
        self.label = f"tool set {toolset.name or type(toolset).__name__!r}"
        self.start_timeout = start_timeout
        self.lock = asyncio.Lock()
        self.started = False
        self.next_try = 0.0
        self.problem = ""
        self.speaks = toolset.speaks


async def _called(call: Callable[[], Any]) -> Any:
    """Return the result of a tool set's method. A plain method runs in a thread."""
    if inspect.iscoroutinefunction(call):
        return await call()
    result = await asyncio.to_thread(call)
    return await result if inspect.isawaitable(result) else result


async def _within(seconds: float, call: Callable[[], Any]) -> Any:
    """Return the result of ``call``. Raises what it raises."""

    async def run() -> Any:
        try:
            return await _called(call)
        except SystemExit as error:  # inside of a task it would end the worker
            raise RuntimeError(f"the tool set called sys.exit({error.code})") from error

    try:
        return await asyncio.wait_for(run(), seconds)
    except asyncio.TimeoutError:
        raise TimeoutError(f"the tool set did not respond within {seconds:g} s") from None
