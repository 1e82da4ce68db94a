"""Tools of LangChain as tools of an agent. Needs the extra ``langchain`` and nothing else of LangChain."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from flink_skills.errors import ConfigError
from flink_skills.hints import is_class, none_is_default
from flink_skills.tools.arguments import ArgumentError, Arguments, Canonical, plain_schema
from flink_skills.tools.base import Tool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools.function import passes, result_of
from flink_skills.tools.schemas import fit_schema, one_spelling

_log = logging.getLogger(__name__)


@none_is_default
class LangChainTool(Tool):
    """A LangChain tool, with its own name, description and arguments.

    It is awaited (``ainvoke``); LangChain runs those without an asynchronous form in a thread. Its result may be
    anything: a text is given to the model as it is, objects, lists and documents as JSON. Of a ``content_and_artifact``
    tool models read the content, and code gets ``{"content": …, "artifact": …}``. A ``ToolException``, any other
    exception and arguments that do not fit are error results.

    ``injected`` are values for arguments that LangChain hides from models (``InjectedToolArg``): by name, each a value
    or a function of the :class:`ToolContext`. An ``InjectedToolCallId`` is the call id, the same on every retry. What
    a model gives for a hidden argument counts nothing. The other arguments are those of :class:`Tool`.

    Raises :class:`ConfigError` for what is no LangChain tool, without langchain-core, and for a hidden argument that
    nothing is given for.

    >>> LangChainTool(TavilySearch(max_results=3), injected={"user": lambda context: context.shown_key})
    """

    def __init__(
        self,
        tool: Any,
        name: str | None = None,
        description: str | None = None,
        *,
        injected: Mapping[str, Any] | None = None,
        idempotent: bool = True,
        timeout: float | None = None,
        max_output: int | None = None,
        max_concurrent: int | None = None,
        repeats: bool = False,
        approve: bool = False,
    ) -> None:
        base_tool, convert = _langchain()
        is_one: bool = isinstance(tool, base_tool)
        if not is_one:
            raise ConfigError(
                f"{tool!r:.100} is not a LangChain tool: pass an instance of langchain_core.tools.BaseTool; a "
                "plain function needs no adapter"
            )
        self.idempotent, self.timeout = idempotent, timeout
        self.max_output, self.max_concurrent = max_output, max_concurrent
        self.repeats, self.approve = repeats, approve
        self._tool = tool
        self._name: str = name or tool.name
        try:
            said = convert(tool)["function"]
        except Exception as error:  # what a tool says of its arguments is the user's
            raise ConfigError(
                f"tool {self._name!r}: LangChain cannot describe its arguments ({error}): give it an args_schema"
            ) from error
        schema = plain_schema(said.get("parameters") or {})
        self._spec = ToolSpec(self._name, description or said.get("description") or self._name, schema)
        self._shown = frozenset(schema["properties"])
        hidden = dict(_hidden(tool))
        self._call_id = [key for key, of in hidden.items() if of.is_call_id]
        self._injected = dict(injected or {})
        for key in self._injected:
            if key not in hidden:
                raise ConfigError(
                    f"tool {self._name!r} hides no argument {key!r} from models (it hides: "
                    f"{', '.join(hidden) or 'none'}): mark it with InjectedToolArg"
                )
        for key, of in hidden.items():
            if of.is_needed and not of.is_call_id and key not in self._injected:
                raise ConfigError(
                    f"tool {self._name!r}: models cannot give {key!r}, which LangChain injects: give "
                    f"injected={{{key!r}: …}}, a value or a function of the ToolContext"
                )
        self._arguments = _arguments(self._name, tool.tool_call_schema, self._shown)
        # Only a message tells a handled error from a result, and has an artifact. What a tool returns as it is, is
        # better data otherwise.
        self._as_message = bool(
            tool.response_format != "content" or tool.handle_tool_error or tool.handle_validation_error or self._call_id
        )

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def canonical(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        given = one_spelling(self._name, arguments, self._shown)
        given = {key: value for key, value in given.items() if key in self._shown}
        if self._arguments is None:
            return fit_schema(self._name, given, self._spec.parameters)
        return self._arguments.canonical(given)

    def rejected(self, arguments: Mapping[str, Any], error: Exception) -> ToolResult:
        handled = self._tool.handle_validation_error
        problem = error.__cause__
        if not handled or not isinstance(problem, ValidationError):
            return super().rejected(arguments, error)
        if callable(handled):
            handled = handled(problem)
        return ToolResult(handled if isinstance(handled, str) else "Tool input validation error", is_error=True)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        given = {key: value for key, value in arguments.items() if key in self._shown}
        try:
            if self._arguments is not None and not self._tool.handle_validation_error:
                self._arguments.read(arguments if isinstance(arguments, Canonical) else given)
            for key, value in self._injected.items():
                found = value(context) if callable(value) else value
                given[key] = await found if inspect.isawaitable(found) else found
            asked: Any = given
            if self._as_message:
                asked = {"type": "tool_call", "id": context.call_id or "call", "name": self._tool.name, "args": given}
            metadata = {"call_id": context.call_id, "attempt": context.attempt, "turn": context.turn}
            return self._result(await self._tool.ainvoke(asked, config={"metadata": metadata}))
        except ArgumentError as error:
            return ToolResult(str(error), is_error=True)
        except (Exception, SystemExit) as error:
            if type(error).__name__ != "ToolException":  # its own way to say what is wrong
                _log.exception("tool %s failed in turn %s (call %s)", self._name, context.turn, context.call_id)
                told = f"{self._name} failed: {type(error).__name__}: {error}"
            else:
                told = f"{self._name}: {error}"
            return ToolResult(told, is_error=True, retryable=passes(error))

    def _result(self, value: Any) -> ToolResult:
        if isinstance(value, list) and value and all(_is_message(item) for item in value):
            parts = [self._result(item) for item in value]
            return ToolResult(
                "\n".join(part.content for part in parts),
                is_error=any(part.is_error for part in parts),
                value=[part.value for part in parts],
            )
        if not _is_message(value):
            if type(value).__name__ == "Command" and type(value).__module__.startswith("langgraph"):
                return ToolResult(
                    f"{self._name} answered with a Command, which only a graph of LangGraph can follow", is_error=True
                )
            return result_of(value)
        text = _text(value.content)
        found = result_of(value.content) if text is None else ToolResult(text, value=_data(text))
        data = found.value
        if value.artifact is not None:
            data = {"content": data, "artifact": result_of(value.artifact).value}
        return ToolResult(found.content, is_error=value.status == "error", value=data)


def _langchain() -> tuple[type, Callable[[Any], Mapping[str, Any]]]:
    try:
        from langchain_core.tools import BaseTool
        from langchain_core.utils.function_calling import convert_to_openai_tool
    except ImportError as error:
        raise ConfigError("tools of LangChain need langchain-core: pip install 'flink-skills[langchain]'") from error
    return BaseTool, convert_to_openai_tool


class _Hidden:
    """An argument that models do not see."""

    def __init__(self, field: Any) -> None:
        self.is_needed = field is None or field.is_required()
        marks = () if field is None else (*field.metadata, field.annotation)
        self.is_call_id = any(_named(mark) == "InjectedToolCallId" for mark in marks)


def _named(mark: Any) -> str:
    return str((mark if isinstance(mark, type) else type(mark)).__name__)


def _hidden(tool: Any) -> Iterator[tuple[str, _Hidden]]:
    fields: Mapping[str, Any] = getattr(tool.get_input_schema(), "model_fields", {})
    shown: Mapping[str, Any] = getattr(tool.tool_call_schema, "model_fields", {})
    marked: frozenset[str] = getattr(tool, "_injected_args_keys", frozenset())
    for key in dict.fromkeys((*fields, *marked)):
        field = fields.get(key)
        marks = () if field is None else field.metadata
        if key not in shown and (key in marked or any(_named(mark).startswith("Injected") for mark in marks)):
            yield key, _Hidden(field)


def _arguments(name: str, model: Any, shown: Collection[str]) -> Arguments[Any] | None:
    """Checks what a model gives; None where LangChain has no model of just that (a JSON schema, a plain callable)."""
    if not (is_class(model) and issubclass(model, BaseModel)):
        return None
    found = Arguments(name, model)
    return found if set(found.schema["properties"]) == set(shown) else None


def _is_message(value: Any) -> bool:
    return hasattr(value, "tool_call_id") and hasattr(value, "artifact") and hasattr(value, "status")


def _text(content: Any) -> str | None:
    """The text of a message's content; None where it has other parts, too."""
    if isinstance(content, str):
        return content
    parts = [part if isinstance(part, str) else part.get("text") for part in content if isinstance(part, (str, dict))]
    if len(parts) != len(content) or any(not isinstance(part, str) for part in parts):
        return None
    return "\n".join(map(str, parts))


def _data(text: str) -> Any:
    """LangChain makes a text of whatever a message holds: objects and lists again as what they were."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
