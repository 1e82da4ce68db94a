"""Decorators that mark the parts of an agent class.

They mark and do not wrap: the function stays what it was, and may be a static method, a class method
or a method, in either order with ``@staticmethod``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

__all__ = [
    "Mark",
    "agent_tool",
    "chat_model_connection",
    "chat_model_setup",
    "mark_of",
    "prompt",
    "skills",
    "tool",
    "tool_pool",
]

F = TypeVar("F", bound=Any)
_ATTRIBUTE = "__flink_skills_mark__"


@dataclass(frozen=True)
class Mark:
    """What a decorated attribute is. ``name`` is empty where the attribute's own name counts."""

    kind: str
    name: str = ""
    description: str = ""
    dynamic: bool = False


def _set(target: F, mark: Mark) -> F:
    function = target.__func__ if isinstance(target, (staticmethod, classmethod)) else target
    setattr(function, _ATTRIBUTE, mark)
    return target


def mark_of(attribute: object) -> Mark | None:
    """The mark of a class attribute, or None."""
    function = attribute.__func__ if isinstance(attribute, (staticmethod, classmethod)) else attribute
    mark = getattr(function, _ATTRIBUTE, None)
    return mark if isinstance(mark, Mark) else None


def skills(target: F) -> F:
    """Mark a function that returns the agent's own skills, a ``ResourceDescriptor`` with paths, resources or urls."""
    return _set(target, Mark("skills"))


def chat_model_connection(target: F) -> F:
    """Mark a function that returns how to reach a provider; its name is what a setup's ``connection`` names."""
    return _set(target, Mark("chat_model_connection"))


def chat_model_setup(target: F) -> F:
    """Mark a function that returns a chat model; its name is what ``ctx.chat(model=…)`` names."""
    return _set(target, Mark("chat_model_setup"))


def prompt(target: F) -> F:
    """Mark a function that returns a prompt: a text or a :class:`flink_skills.Prompt`."""
    return _set(target, Mark("prompt"))


@overload
def tool(target: F) -> F: ...
@overload
def tool(*, name: str = "", description: str = "", dynamic: bool = False) -> Callable[[F], F]: ...
def tool(target: Any = None, *, name: str = "", description: str = "", dynamic: bool = False) -> Any:
    """Mark a function or method as a tool that models may call.

    Its annotations become the schema, the first paragraph of its docstring the description. A parameter
    annotated with :class:`flink_skills.ToolContext` is filled in by the runtime and hidden from models. A tool that is
    ``dynamic`` belongs to the agent's pool: models get it with a loaded skill that names it, see :func:`tool_pool`.

    >>> class Shop(Agent):
    ...     @tool
    ...     def price(self, article: str) -> float:
    ...         "Price of an article in euro."
    """
    if target is None:
        return lambda function: _set(function, Mark("tool", name, description, dynamic))
    return _set(target, Mark("tool", name, description, dynamic))


def tool_pool(target: F) -> F:
    """Mark a method that returns tools which models get through skills only: a list of functions, of :class:`Tool` and
    :class:`BaseToolSet` objects, and of names of registered tools (:func:`register_tool`).

    A tool of the pool is offered while a skill is loaded whose ``Tools:`` section names it, or for which the model
    selected it. An agent may have several pools; their tools must have different names.

    >>> class Shop(Agent):
    ...     @tool_pool
    ...     def business_tools(self) -> list[PoolItem]:
    ...         return [price, discount, StockTools(), "find_city"]
    """
    return _set(target, Mark("tool_pool"))


@overload
def agent_tool(target: F) -> F: ...
@overload
def agent_tool(*, name: str = "", description: str = "") -> Callable[[F], F]: ...
def agent_tool(target: Any = None, *, name: str = "", description: str = "") -> Any:
    """Mark a method that returns an agent, which models may call as a tool of the method's name.

    The agent has its own models, skills and tools; each call is a new conversation within the turn of the caller. The
    model gives it a ``request``, or the fields of its ``input_type``, and gets its answer. The first paragraph of the
    method's docstring, or of the agent's, is what models are told of it.

    >>> class Desk(Agent):
    ...     @agent_tool
    ...     def researcher(self) -> Agent:
    ...         "Looks into one incident and says what caused it."
    ...         return Researcher()
    """
    if target is None:
        return lambda function: _set(function, Mark("agent_tool", name, description))
    return _set(target, Mark("agent_tool", name, description))
