"""Which functions of a ``tools.py`` are tools, what models are told of them, and how one is called."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING
from typing import Any

from .annotations import hints_of
from .docstrings import docstring_of, told
from .fitting import Problems, fit_members
from .shapes import object_schema

__all__ = ["ArgumentsError", "ToolFunction", "functions_of"]

_SHOWN_SCHEMA_CHARS = 1500


class ArgumentsError(Exception):
    """The arguments of a call do not fit; the text is for the model."""


class ToolFunction:
    """A function as a tool. ``description`` and ``parameters``, where they are given, say what models are told.

    Raises :class:`ValueError` for a function that no model could call.
    """

    def __init__(
        self, name: str, func: Callable[..., Any], description: str = "", parameters: Mapping[str, Any] | None = None
    ) -> None:
        if not callable(func):
            raise ValueError(f"{name!r} is not callable")
        self.name = name
        self._func = func
        try:
            signature = inspect.signature(func)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name!r} has no signature to read ({error})") from None
        inner = inspect.unwrap(func)
        inner = inner if inspect.isroutine(inner) or inspect.isclass(inner) else type(inner).__call__
        hints = hints_of(inner)
        self._members: dict[str, tuple[Any, Any]] = {}
        self._positional: list[str] = []
        self._takes_any = False
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.VAR_POSITIONAL:
                raise ValueError(f"{name!r}: models cannot give *{parameter.name}: name the arguments")
            if parameter.kind is parameter.VAR_KEYWORD:
                self._takes_any = True
                continue
            if parameter.kind is parameter.POSITIONAL_ONLY:
                self._positional.append(parameter.name)
            default = MISSING if parameter.default is parameter.empty else parameter.default
            self._members[parameter.name] = (hints.get(parameter.name, Any), default)
        summary, self._described = told(docstring_of(inner, inspect.unwrap(func)))
        self._description = description or summary or name
        self._declared = parameters

    def spec(self) -> dict[str, Any]:
        """Name, description and parameters as models get them."""
        return {"name": self.name, "description": self._description, "parameters": self._schema()}

    def call(self, arguments: dict[str, Any], shown: str = "") -> Any:
        """Call the function with a model's arguments; raises :class:`ArgumentsError` where they do not fit.

        ``shown`` is the name that the model knows it by.
        """
        problems: Problems = []
        given = fit_members(arguments, self._members, "", problems, more=self._takes_any)
        if problems:
            lines = [f"- {problem}" for problem in problems]
            raise ArgumentsError(
                "\n".join([f"{shown or self.name}: the arguments do not fit:", *lines, self._expected()])
            )
        positional = []
        for name in self._positional:
            if name not in given:
                break  # it has a default, and so has what comes after it
            positional.append(given.pop(name))
        for name in self._positional:
            given.pop(name, None)
        return self._func(*positional, **given)

    def _schema(self) -> dict[str, Any]:
        if self._declared is not None:
            return dict(self._declared)
        schema = object_schema(self._members)
        for name, member in schema["properties"].items():
            if self._described.get(name):
                member.setdefault("description", self._described[name])
        if self._takes_any:
            schema["additionalProperties"] = True
        return schema

    def _expected(self) -> str:
        text = json.dumps(self._schema(), ensure_ascii=False, default=str)
        if len(text) > _SHOWN_SCHEMA_CHARS:
            text = "properties " + ", ".join(self._members)
        return f"Expected: {text}"


def functions_of(
    module: Any, declared: Iterable[Mapping[str, Any]] | None
) -> tuple[dict[str, ToolFunction], list[str]]:
    """The tools of a module by name, and what is wrong with others.

    They are those of ``declared`` (the entries of a ``schema.json``), else those of its list ``TOOLS``, else its public
    functions. An entry is a function, the name of one, or an object with ``name``, ``description`` and ``parameters``.
    """
    found: dict[str, ToolFunction] = {}
    problems: list[str] = []
    for entry in _entries(module, declared):
        try:
            tool = _tool(entry, module)
        except Exception as error:  # an entry is the tool's own object
            problems.append(str(error) or type(error).__name__)
            continue
        if tool.name in found:
            problems.append(f"the tool {tool.name!r} is declared twice: the first declaration is used")
        else:
            found[tool.name] = tool
    return found, problems


def _entries(module: Any, declared: Iterable[Mapping[str, Any]] | None) -> Iterable[Any]:
    if declared is not None:
        return declared
    listed = getattr(module, "TOOLS", None)
    if isinstance(listed, Mapping):
        return [(name, value) for name, value in listed.items()]
    if isinstance(listed, (list, tuple)):
        return listed
    public = getattr(module, "__all__", None)
    return [
        (name, value)
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and (name in public if isinstance(public, (list, tuple)) else not name.startswith("_"))
        and (value.__module__ == module.__name__ or isinstance(public, (list, tuple)))
    ]


def _tool(entry: Any, module: Any) -> ToolFunction:
    if isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str):
        return ToolFunction(entry[0], entry[1])
    if isinstance(entry, str):
        return ToolFunction(entry, _function(entry, module))
    if not isinstance(entry, Mapping):
        name = getattr(entry, "__name__", None) or type(entry).__name__
        return ToolFunction(name, entry)
    inner = entry.get("function")
    said = inner if isinstance(inner, Mapping) else entry
    func = inner if callable(inner) else entry.get("callable") or entry.get("func")
    name = said.get("name") or (inner if isinstance(inner, str) else getattr(func, "__name__", None))
    if not isinstance(name, str):
        raise ValueError(f"an entry of the tools has no name: {str(entry)[:100]}")
    if not callable(func):
        func = _function(inner if isinstance(inner, str) else name, module)
    parameters = said.get("parameters", said.get("input_schema"))
    return ToolFunction(
        name, func, str(said.get("description") or ""), parameters if isinstance(parameters, Mapping) else None
    )


def _function(name: str, module: Any) -> Callable[..., Any]:
    func = getattr(module, name, None)
    if name.startswith("_") or not callable(func):
        raise ValueError(f"tools.py has no function {name!r}, which the list of its tools names")
    found: Callable[..., Any] = func
    return found
