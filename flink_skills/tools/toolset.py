"""The tools that one chat model may call."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from flink_skills.errors import ConfigError, LimitError, UnknownNameError
from flink_skills.tools.base import Tool, ToolContext, ToolResult, ToolSpec, TurnInterruptedError
from flink_skills.tools.calling import CallGuard
from flink_skills.tools.other_tools import suggestion

__all__ = ["Speaker", "ToolSet"]

_log = logging.getLogger(__name__)

# What all model providers accept.
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FENCE = "```"
_SHOWN_NAMES = 40
_SHOWN_CHARS = 200


class Speaker(Protocol):
    """A tool, or a set of them, with something to say to models."""

    def prompt_addition(self) -> str:
        """The text, which may be empty."""


class ToolSet:
    """Tools by name. Raises :class:`ConfigError` for equal names and for names that no provider takes.

    ``guard`` keeps the limits of calls; without it tools are called as they are. ``is_streaming`` says whether any tool
    is.

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
        #: What has something to say to the model beside its tools (``prompt_addition``), by the name of a tool.
        self.speakers: dict[str, Speaker] = {}
        self._add(tools)

    def extended(
        self,
        tools: Iterable[Tool],
        not_there: Callable[[str], str | None],
        speakers: Mapping[str, Speaker] | None = None,
    ) -> ToolSet:
        """These tools, and ``tools`` behind them. ``speakers`` are tool sets with a ``prompt_addition`` of their own,
        by the names of their tools.

        ``not_there`` says why a name that is none of them is missing, or None where there is nothing better to say than
        which tools there are.
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
        """The tool ``name``; None if there is none."""
        return self._tools.get(name)

    def specs(self, names: Sequence[str] | None = None) -> list[ToolSpec]:
        """What a model is told, of all tools or of ``names``; raises :class:`UnknownNameError`."""
        if names is None:
            return list(self._specs.values())
        for name in names:
            if name not in self._specs:
                raise UnknownNameError("tool", name, self._specs)
        return [self._specs[name] for name in names]

    async def call(self, name: str, arguments: Mapping[str, Any] | str, context: ToolContext) -> ToolResult:
        """Call a tool as a model asked for it.

        ``arguments`` may be the model's raw text. Whatever is wrong with the call, and any error of the tool,
        is a result that says so. Raised are cancellation, and what ends or restarts the whole turn.
        """
        tool = self._tools.get(name)
        if tool is None:
            return ToolResult(self._not_there(name) or self._unknown(name), is_error=True)
        parsed = _parse(name, arguments)
        if isinstance(parsed, ToolResult):
            return parsed
        try:
            if self._guard is None:
                return await tool.call(parsed, context)
            return await self._guard.call(name, tool, parsed, context)
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


def _parse(tool: str, arguments: Mapping[str, Any] | str) -> Mapping[str, Any] | ToolResult:
    """The arguments as an object, or what to tell the model that wrote something else."""
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
            value = json.loads(text, strict=False)
        except (ValueError, RecursionError) as error:
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
    """``text`` without the code fence around it; by hand, as patterns for that can be kept busy for hours."""
    if len(text) < 2 * len(_FENCE) or not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return text
    return text[len(_FENCE) : -len(_FENCE)].removeprefix("json").strip()


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return {str: "string", int: "number", float: "number", list: "array"}.get(type(value), "value")
