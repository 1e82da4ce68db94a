"""Decorators that mark the parts of an agent class.

They mark and do not wrap: the function stays what it was, and may be a static method, a class method
or a method, in either order with ``@staticmethod``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from flink_skills.errors import ConfigError
from flink_skills.other_frameworks import advised
from flink_skills.resource import MARK_ATTRIBUTE, Mark

F = TypeVar("F", bound=Any)

#: Default arguments of ``@mcp_server``.
MCP_DEFAULTS: Mapping[str, Any] = {
    "prefix": "",
    "tool_filter": None,
    "prompts": False,
    "resources": False,
    "interval": 60.0,
    "required": True,
    "approve": False,
    "skills": False,
}


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
        setattr(function, MARK_ATTRIBUTE, mark)
    except (AttributeError, TypeError) as error:  # a class of Python itself, or an object with slots
        raise ConfigError(f"{place} cannot mark {target!r} ({error}): write {place} above a method") from None
    return target


def _check_bool(place: str, value: Any) -> None:
    """Raise :class:`ConfigError` for a value that is not true or false, such as the name of an approver."""
    if not isinstance(value, bool):
        raise ConfigError(f"{place} is {value!r}: write True or False")


def skills(target: F) -> F:
    """Mark a function that returns the agent's own skills, a ``ResourceDescriptor`` with paths, resources or urls."""
    return _set(target, Mark("skills"))


def chat_model_connection(target: F) -> F:
    """Mark a function that returns the connection to a provider. A setup refers to it in ``connection``."""
    return _set(target, Mark("chat_model_connection"))


def chat_model_setup(target: F) -> F:
    """Mark a function that returns a chat model. ``ctx.chat(model=…)`` refers to it by its name."""
    return _set(target, Mark("chat_model_setup"))


def prompt(target: F) -> F:
    """Mark a function that returns a prompt: a string or a :class:`flink_skills.Prompt`."""
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
    repeats: bool = False,
    approve: bool = False,
    around: Callable[..., Any] | None = None,
) -> Callable[[F], F]: ...
@advised
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
    repeats: bool = False,
    approve: bool = False,
    around: Callable[..., Any] | None = None,
) -> Any:
    """Mark a function or method as a tool that models may call.

    The schema follows from its annotations, the description from its docstring. The runtime
    passes a :class:`flink_skills.ToolContext` to a parameter with this annotation, and hides it from models. A method
    without arguments whose return annotation is a :class:`Tool` declares the returned tool, under that tool's name.

    Args:
        target: The function or method.
        name: Name for models. The default is the name of the function.
        description: Description for models.
        dynamic: True to put the tool into the agent's pool: models get it with a loaded skill that names it, see
            :func:`tool_pool`.
        idempotent: False if the tool must not be called twice for one call of a model.
        timeout: Maximum duration of a call in seconds.
        max_output: Maximum number of characters of a result that models read.
        max_concurrent: Maximum number of calls at the same time in a worker.
        repeats: True if a model may get the same result for the same call any number of times, such as a tool that
            polls. See ``skills.turn.max-repeats``.
        approve: True if :meth:`Agent.approve` decides about each call. Without that method all calls are refused.
        around: A function ``(call, ctx)`` that runs each call, as :meth:`Agent.around_tool` does for all tools. It runs
            inside that method.

    Raises:
        ConfigError: An argument is invalid, or the target cannot be marked.

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
    _check_bool("@tool: approve", approve)
    _check_bool("@tool: repeats", repeats)
    limits: dict[str, Any] = {key: value for key, value in said.items() if value is not None and value is not True}
    limits.update({key: True for key, value in (("repeats", repeats), ("approve", approve)) if value})
    if around is not None:
        if not callable(around):
            raise ConfigError(f"@tool: around is {around!r}: give a function (call, ctx)")
        limits["around"] = around
    if target is None:
        return lambda function: _set(function, Mark("tool", name, description, dynamic, limits))
    return _set(target, Mark("tool", name, description, dynamic, limits))


@advised
def tool_set(target: F) -> F:
    """Mark a method that returns tools which models always have.

    It returns one function, :class:`Tool`, :class:`BaseToolSet` or name of a registered tool, or a list of these. The
    runtime asks a tool set for its tools in each turn. A chat model has all of them, or those that its ``tools`` names,
    where ``shop_*`` is a pattern.

    >>> class Clerk(Agent):
    ...     @tool_set
    ...     def at_hand(self) -> list[PoolItem]:
    ...         return [FileToolSet(), "find_city"]
    """
    return _set(target, Mark("tool_set"))


@advised
def tool_pool(target: F) -> F:
    """Mark a method that returns tools which models get only through skills.

    It returns a list of functions, :class:`Tool` and :class:`BaseToolSet` objects, and names of registered tools
    (:func:`register_tool`). Models have a tool from the pool while a skill is loaded whose ``Tools:`` section names it,
    or for which the model selected it. An agent can have several pools. Their tools must have different names.

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
    approve: bool | Sequence[str] = False,
    skills: bool | Mapping[str, Any] = False,
) -> Callable[[F], F]: ...
@advised
def mcp_server(
    target: Any = None,
    *,
    prefix: str = "",
    tools: Sequence[str] | None = None,
    prompts: bool = False,
    resources: bool = False,
    interval: float = 60.0,
    required: bool = True,
    approve: bool | Sequence[str] = False,
    skills: bool | Mapping[str, Any] = False,
) -> Any:
    """Mark a method that returns the address of an MCP server, whose tools models then have.

    It returns a URL, a mapping, or parameters from :mod:`flink_skills.tools.mcp`. The arguments are those of
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
        "approve": approve if isinstance(approve, (bool, str)) else tuple(approve),
        "skills": skills,
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
    sessions: bool = False,
    approve: bool = False,
) -> Callable[[F], F]: ...
@advised
def agent_tool(
    target: Any = None,
    *,
    name: str = "",
    description: str = "",
    skip_summarization: bool = False,
    share_state: bool = False,
    max_steps: int = 0,
    max_tokens: int = 0,
    sessions: bool = False,
    approve: bool = False,
) -> Any:
    """Mark a method that returns an agent, which models can call as a tool.

    The agent has its own models, skills and tools. Each call is a new conversation within the turn of the caller. The
    model passes a ``request``, or the fields of the agent's ``input_type``, and receives the answer.

    Args:
        target: The method.
        name: Name for models. The default is the name of the method.
        description: Description for models. The default is the first paragraph of the docstring of the method, or of
            the agent.
        skip_summarization: True to return its answer as the answer of the caller, without another request to the model.
            This applies if the response has no other call, and the answer fits the caller's ``output_type``.
        share_state: True to begin with a copy of the caller's ``ctx.state``. The caller gets the changes after it.
        max_steps: Maximum number of steps of a call, including agents that it calls. 0: the limit of the turn applies.
        max_tokens: Maximum number of tokens of a call, in the same way.
        sessions: True to add the argument ``session_id``. Calls with the same id continue one conversation with the
            agent. It lasts for the turn, or for the session of a caller with ``session = "key"``.
        approve: True if :meth:`Agent.approve` of the caller decides about each call.

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
        "sessions": sessions,
        "approve": approve,
    }
    _check_bool("@agent_tool: approve", approve)
    if target is None:
        return lambda function: _set(function, Mark("agent_tool", name, description, arguments=said))
    return _set(target, Mark("agent_tool", name, description, arguments=said))
