"""A job's own tools that skills activate. None is offered before a loaded skill names it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, Union, overload

from flink_skills.errors import ConfigError, ExecutionError, SkillsError
from flink_skills.other_frameworks import advised
from flink_skills.tools.base import Tool, ToolContext
from flink_skills.tools.function import FunctionTool
from flink_skills.tools.profiles import TOOL_NAMES
from flink_skills.tools.toolset_base import BaseToolSet

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=Tool)

# A name that all model providers accept.
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass
class _Entry:
    """A registered tool. That of a function is created on first use: a module can define the names of its annotations
    later."""

    target: Any
    name: str
    description: str
    tool: Tool | None = None
    approve: bool | None = None

    def get(self) -> Tool:
        if self.tool is None:
            description = self.description or None
            self.tool = FunctionTool(self.target, name=self.name, description=description, approve=self.approve)
        return self.tool


_entries: dict[str, _Entry] = {}


@overload
def register_tool(
    target: str, tool: Callable[..., Any] | Tool, *, description: str = "", approve: bool | None = None
) -> None: ...
@overload
def register_tool(
    target: str = "", *, name: str = "", description: str = "", approve: bool | None = None
) -> Callable[[F], F]: ...
@overload
def register_tool(target: T) -> T: ...
@overload
def register_tool(target: F, *, name: str = "", description: str = "", approve: bool | None = None) -> F: ...
@advised
def register_tool(
    target: Any = "", tool: Any = None, *, name: str = "", description: str = "", approve: bool | None = None
) -> Any:
    """Register a function or a :class:`Tool` under a name, by which a pool may list it.

    ``approve`` is that of :class:`Tool`. None: that of the function's ``@tool``.

    As a decorator it returns the function. A function that the same module defines again replaces the earlier one.

    Raises :class:`ConfigError` for a name that is taken or that no provider accepts.

    >>> @register_tool
    ... def find_city(text: str) -> str:
    ...     "Find a city."
    >>> @register_tool("find_land", description="Find a country.")
    ... def find(text: str) -> str: ...
    >>> register_tool("shout", str.upper)
    >>> get_tool("find_land").spec.description
    'Find a country.'
    """
    if isinstance(target, str):
        wanted = target or name
        if tool is not None:
            _register(wanted, tool, description, approve)
            return None

        def decorate(function: Any) -> Any:
            _register(wanted, function, description, approve)
            return function

        return decorate
    _register(name, target, description, approve)
    return target


@advised
def register_tools(tools: Mapping[str, Callable[..., Any] | Tool]) -> None:
    """Register several tools by name: all, or none if one is invalid. Raises as :func:`register_tool`."""
    if not isinstance(tools, Mapping):
        raise ConfigError(f"register_tools: expected tools as a dict of name to tool, got {type(tools).__name__}")
    entries = [_entry(name, target, "") for name, target in tools.items()]
    _entries.update((entry.name, entry) for entry in entries)


def get_tool(name: str) -> Tool | None:
    """Return the registered tool ``name``. Return None if there is none.

    Raises :class:`ConfigError` for a function whose arguments cannot be described to a model.
    """
    entry = _entries.get(name)
    return None if entry is None else entry.get()


def tool_names() -> list[str]:
    """Return the names of the registered tools, sorted."""
    return sorted(_entries)


def check_tool_name(name: str) -> str:
    """Return ``name``. Raise :class:`ConfigError` if a provider does not accept it."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"tool {name!r}: a tool's name is 1 to 64 letters, digits, '_' and '-': give it a name")
    return name


def _register(name: str, target: Any, description: str, approve: bool | None) -> None:
    entry = _entry(name, target, description, approve)
    _entries[entry.name] = entry


def _entry(name: str, target: Any, description: str, approve: bool | None = None) -> _Entry:
    if isinstance(target, Tool):
        own = target.spec.name
        if name not in ("", own):
            raise ConfigError(
                f"tool {own!r} cannot be registered as {name!r}: only functions can be registered under another name"
            )
        if approve is not None:
            raise ConfigError(f"tool {own!r} has the attribute approve: set it there, and omit approve={approve!r}")
        entry = _Entry(target, own, "", target)
    elif callable(target) and not isinstance(target, type):
        entry = _Entry(target, name or getattr(target, "__name__", type(target).__name__), description, None, approve)
    else:
        raise ConfigError(
            f"tool {name or target!r}: a {type(target).__name__} is not a tool: pass a function or a Tool"
        )
    check_tool_name(entry.name)
    before = _entries.get(entry.name)
    if before is not None and before.target is not target and not _same_place(before.target, target):
        raise ConfigError(
            f"tool {entry.name!r} is already registered by {_place(before.target)}: register "
            f"{_place(target)} under another name"
        )
    return entry


def _same_place(one: Any, other: Any) -> bool:
    """Return True if both have the same definition in a module. Inner functions can be created many times."""
    place = _place(one)
    return place == _place(other) and "<" not in place and not isinstance(one, Tool)


def _place(target: Any) -> str:
    named = target if hasattr(target, "__qualname__") else type(target)
    return f"{named.__module__}.{named.__qualname__}"


_log = logging.getLogger("flink_skills.tools")

#: A tool, a function, a tool set, or the name of a registered tool.
PoolItem = Union[Tool, BaseToolSet, str, Callable[..., Any]]

# Seconds. A turn waits for its tool sets, so the limit is short. A start can take longer.
_START_TIMEOUT = 30.0
_ASK_TIMEOUT = 10.0
# Seconds after which a tool set that could not start is started again.
_RETRY_AFTER = 60.0
_MAX_MESSAGES = 1000
_MAX_TURNS = 256


class PoolTools(dict[str, Tool]):
    """Tools by name. ``speakers`` has the tool set of each tool whose set has a :meth:`BaseToolSet.prompt_addition`."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        super().__init__(tools)
        self.speakers: dict[str, BaseToolSet] = {}


class ToolPool:
    """Tools of the job that a model gets only through skills. Call :meth:`initialize`, then :meth:`tools`.

    Tools of the pool take precedence over those of tool sets, and these over registered ones.

    Args:
        items: The tools.
        owner: Name of the agent, for logs.
        start_timeout: Maximum time in seconds for the start of a tool set.
        ask_timeout: Maximum time in seconds in which a tool set returns its tools.

    Raises :class:`ConfigError` for an item that is not a tool, and for two tools of one name.

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
        # A tool set can create its functions for each turn, so this must not grow.
        self._function_tool = functools.lru_cache(maxsize=512)(FunctionTool)
        self._logged: set[str] = set()
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
        """All tool names, except those from tool sets."""
        return tuple(dict.fromkeys((*self._tools, *self._registered)))

    def known_tools(self) -> list[Tool]:
        """Return the tools in :attr:`names`. Names that are not registered are omitted."""
        return [*self._tools.values(), *filter(None, map(self._from_registry, self._registered))]

    def __len__(self) -> int:
        return len(self.names) + len(self._members)

    async def initialize(self) -> None:
        """Start the tool sets, and log how many tools there are.

        Raises :class:`SkillsError` for required tool sets that cannot start, after the others are closed. Optional ones
        are started again later.
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
        """Return one error for all tool sets that could not start."""
        skills = [error for error in errors if isinstance(error, SkillsError)]
        if len(skills) < len(errors):
            return next(error for error in errors if not isinstance(error, SkillsError))
        # A restart helps only if it helps all of them.
        found = ExecutionError("\n".join(f"{self._owner}{error}" for error in skills))
        found.retryable = all(error.retryable for error in skills)
        found.__cause__ = skills[0]
        return found

    async def tools(self, context: ToolContext) -> PoolTools:
        """Return the tools that skills can activate now, by name. Tool sets are queried one time in a turn.

        A tool set that fails, or returns anything but tools, is a warning in the log; its tools are absent.
        """
        if not self._initialized:
            await self.initialize()
        turn = (context.agent, repr(context.key), context.turn, context.attempt)
        found = self._by_turn.get(turn) if self._members and context.turn else None
        if found is None:
            found = await self._ask_all(context)
            if self._members and context.turn:
                self._by_turn[turn] = found
                if len(self._by_turn) > _MAX_TURNS:
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
                    self._warn(f"tool {name!r} of {member.label} is named like one of the runtime's and is omitted")
                elif found.setdefault(name, tool) is not tool:
                    self._warn(f"tool {name!r} of {member.label} is omitted: the pool already has a tool of this name")
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
        """Return the result of :meth:`tools` if no tool set has to be queried, otherwise None."""
        if self._members or not self._initialized:
            return None
        if not self._registered:
            return self._tools
        found = self._tools.copy()
        self._add_registered(found)
        return found

    def note(self, notes: Iterable[str]) -> None:
        """Log the notes of :func:`~flink_skills.tools.dynamic.active.active_tools`, each one time."""
        for text in notes:
            self._warn(text)

    async def close(self) -> None:
        """Close the tool sets. Their errors are logged."""
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
            items = await _within(self._ask_timeout, functools.partial(member.toolset.get_tools, context))
            tools = [self._as_tool(item) for item in items]
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
        # One warning for each outage instead of each turn.
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
            self._warn(f"Tool {name!r} of the pool could not be resolved: {error}")
            return None
        if tool is None and name not in self._tools:
            self._warn(
                f"Tool {name!r} of the pool could not be resolved: it is not in the pool, a tool set or the registry; "
                "call register_tool in a module that the agent's module imports"
            )
        return tool

    def _warn(self, text: str) -> None:
        if text not in self._logged and len(self._logged) < _MAX_MESSAGES:
            self._logged.add(text)
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
        except SystemExit as error:  # inside a task it would end the worker
            raise RuntimeError(f"the tool set called sys.exit({error.code})") from error

    try:
        return await asyncio.wait_for(run(), seconds)
    except asyncio.TimeoutError:
        raise TimeoutError(f"the tool set did not respond within {seconds:g} s") from None
