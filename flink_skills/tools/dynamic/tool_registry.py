"""Registered tools by name, for the pools of all agents of a process.

Modules register tools when they are imported. A worker has the tools of the agent's module, and of the modules that it
imports. The main script of a job is not imported: its pools contain the functions themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from flink_skills.errors import ConfigError
from flink_skills.other_frameworks import advised
from flink_skills.tools.base import Tool
from flink_skills.tools.function import FunctionTool

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=Tool)

# What all model providers accept.
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
