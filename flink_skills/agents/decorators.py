"""Decorators that mark the parts of an agent class.

They mark and do not wrap: the function stays what it was, and may be a static method, a class method
or a method, in either order with ``@staticmethod``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from flink_skills.errors import ConfigError

__all__ = [
    "MCP_DEFAULTS",
    "Mark",
    "agent_tool",
    "chat_model_connection",
    "chat_model_setup",
    "mark_of",
    "mcp_server",
    "prompt",
    "skills",
    "tool",
    "tool_pool",
    "tool_set",
]

F = TypeVar("F", bound=Any)
_ATTRIBUTE = "__flink_skills_mark__"

#: What ``@mcp_server`` says where nothing is given.
MCP_DEFAULTS: Mapping[str, Any] = {
    "prefix": "",
    "tool_filter": None,
    "prompts": False,
    "resources": False,
    "interval": 60.0,
    "required": True,
}


@dataclass(frozen=True)
class Mark:
    """What a decorated attribute is. ``name`` is empty where the attribute's own name counts."""

    kind: str
    name: str = ""
    description: str = ""
    dynamic: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)


def _set(target: F, mark: Mark) -> F:
    """Mark a function, a method or a callable object. Raises :class:`ConfigError` for anything else."""
    function = target.__func__ if isinstance(target, (staticmethod, classmethod)) else target
    place = f"@{mark.kind}"
    if isinstance(function, property):
        raise ConfigError(f"{place} is given a property: write {place} above a method")
    if not (callable(function) or hasattr(function, "__dict__")):
        raise ConfigError(
            f"{place} is given {target!r}, which is of type {type(target).__name__}: write {place} above a method"
        )
    try:
        setattr(function, _ATTRIBUTE, mark)
    except (AttributeError, TypeError) as error:  # a class of Python itself, or an object with slots
        raise ConfigError(f"{place} cannot mark {target!r} ({error}): write {place} above a method") from None
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
def tool(
    *,
    name: str = "",
    description: str = "",
    dynamic: bool = False,
    idempotent: bool = True,
    timeout: float | None = None,
    max_output: int | None = None,
    max_concurrent: int | None = None,
) -> Callable[[F], F]: ...
def tool(
    target: Any = None,
    *,
    name: str = "",
    description: str = "",
    dynamic: bool = False,
    idempotent: bool = True,
    timeout: float | None = None,
    max_output: int | None = None,
    max_concurrent: int | None = None,
) -> Any:
    """Mark a function or method as a tool that models may call.

    Its annotations become the schema, the first paragraph of its docstring the description. A parameter
    annotated with :class:`flink_skills.ToolContext` is filled in by the runtime and hidden from models. A tool that is
    ``dynamic`` belongs to the agent's pool: models get it with a loaded skill that names it, see :func:`tool_pool`.
    One that must not be called twice for one call of a model says ``idempotent=False``. ``timeout`` (seconds),
    ``max_output`` (characters) and ``max_concurrent`` (calls at once in a worker) are its own limits.

    A method without arguments whose return annotation is a :class:`Tool` gives that tool, under the tool's name.

    >>> class Shop(Agent):
    ...     @tool
    ...     def price(self, article: str) -> float:
    ...         "Price of an article in euro."
    """
    said = {
        "idempotent": idempotent,
        "timeout": timeout,
        "max_output": max_output,
        "max_concurrent": max_concurrent,
    }
    for key in ("timeout", "max_output", "max_concurrent"):
        limit = said[key]
        wanted = (int, float) if key == "timeout" else int
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, wanted) or limit <= 0):
            number = "a number of seconds" if key == "timeout" else "a whole number"
            raise ConfigError(f"@tool: {key} is {limit!r}: give {number} above 0, or None")
    if not isinstance(name, str) or not isinstance(description, str):
        raise ConfigError(f"@tool: name is {name!r} and description is {description!r}: give strings")
    limits = {key: value for key, value in said.items() if value not in (None, True)}
    if target is None:
        return lambda function: _set(function, Mark("tool", name, description, dynamic, limits))
    return _set(target, Mark("tool", name, description, dynamic, limits))


def tool_set(target: F) -> F:
    """Mark a method that returns tools which models always have: one or a list of functions, of :class:`Tool` and
    :class:`BaseToolSet` objects, and of names of registered tools.

    A tool set is asked in each turn which tools it gives for the event's key. A chat model has all of them, or those
    that its ``tools`` names, where ``shop_*`` is a pattern.

    >>> class Clerk(Agent):
    ...     @tool_set
    ...     def at_hand(self) -> list[PoolItem]:
    ...         return [FileToolSet(), "find_city"]
    """
    return _set(target, Mark("tool_set"))


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
def mcp_server(target: F) -> F: ...
@overload
def mcp_server(
    *,
    prefix: str = "",
    tools: Sequence[str] | None = None,
    prompts: bool = False,
    resources: bool = False,
    interval: float = 60.0,
    required: bool = True,
) -> Callable[[F], F]: ...
def mcp_server(
    target: Any = None,
    *,
    prefix: str = "",
    tools: Sequence[str] | None = None,
    prompts: bool = False,
    resources: bool = False,
    interval: float = 60.0,
    required: bool = True,
) -> Any:
    """Mark a method that returns how to reach an MCP server, whose tools models then have: a URL, a mapping, or
    parameters of :mod:`flink_skills.tools.mcp`. The arguments are those of
    :class:`flink_skills.tools.mcp.McpToolSet`, where ``tools`` is ``tool_filter``.

    >>> class Clerk(Agent):
    ...     @mcp_server(prefix="shop_", tools=["price", "stock_*"])
    ...     def shop(self) -> str:
    ...         return "http://mcp.shop:8000/mcp"
    """
    if isinstance(tools, str):
        raise ConfigError(f"@mcp_server: tools is {tools!r}: give a list of names or patterns, such as [{tools!r}]")
    said = {
        "prefix": prefix,
        "tool_filter": None if tools is None else tuple(tools),
        "prompts": prompts,
        "resources": resources,
        "interval": interval,
        "required": required,
    }
    if target is None:
        return lambda function: _set(function, Mark("mcp_server", arguments=said))
    return _set(target, Mark("mcp_server", arguments=said))


@overload
def agent_tool(target: F) -> F: ...
@overload
def agent_tool(
    *,
    name: str = "",
    description: str = "",
    skip_summarization: bool = False,
    share_state: bool = False,
    max_steps: int = 0,
    max_tokens: int = 0,
) -> Callable[[F], F]: ...
def agent_tool(
    target: Any = None,
    *,
    name: str = "",
    description: str = "",
    skip_summarization: bool = False,
    share_state: bool = False,
    max_steps: int = 0,
    max_tokens: int = 0,
) -> Any:
    """Mark a method that returns an agent, which models may call as a tool of the method's name.

    The agent has its own models, skills and tools; each call is a new conversation within the turn of the caller. The
    model gives it a ``request``, or the fields of its ``input_type``, and gets its answer. The first paragraph of the
    method's docstring, or of the agent's, is what models are told of it.

    With ``skip_summarization`` its answer is that of the caller, where the model calls nothing else beside it and the
    answer fits the caller's ``output_type``: the model is not asked once more. With ``share_state`` it begins with a
    copy of the caller's ``ctx.state``, and what it changes there is changed for the caller when it has answered.
    ``max_steps`` and ``max_tokens`` are the most for one call, with those of agents that it calls itself; 0: what the
    turn has left.

    >>> class Desk(Agent):
    ...     @agent_tool(max_steps=20)
    ...     def researcher(self) -> Agent:
    ...         "Looks into one incident and says what caused it."
    ...         return Researcher()
    """
    said = {
        "skip_summarization": skip_summarization,
        "share_state": share_state,
        "max_steps": max_steps,
        "max_tokens": max_tokens,
    }
    if target is None:
        return lambda function: _set(function, Mark("agent_tool", name, description, arguments=said))
    return _set(target, Mark("agent_tool", name, description, arguments=said))
