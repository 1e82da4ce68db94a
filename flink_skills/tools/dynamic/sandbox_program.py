"""The program that runs a skill's tools, inside the sandbox: JSON lines as requests and responses.

Its text is sent to the ``python3`` of commands with the modules that it imports (:func:`program_argv` of
:mod:`flink_skills.tools.dynamic.skill_programs`). It imports them, the standard library and pydantic only.
"""

from __future__ import annotations

import base64
import importlib.util
import inspect
import itertools
import json
import math
import os
import sys
import traceback
import typing
import warnings
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import typing_extensions
from pydantic.json_schema import PydanticJsonSchemaWarning
from pydantic_core import to_jsonable_python

from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.function_arguments import FunctionArguments

_FILE = "tools.py"
_MAX_DEPTH = 60
_MAX_ITEMS = 1_000_000
_MAX_PROBLEMS = 100
_MAX_ERROR_LENGTH = 2_000


class _ToolFunction:
    """A function as a tool. A ``schema.json`` or a list ``TOOLS`` can declare its description and parameters."""

    def __init__(
        self, name: str, func: Any, description: str = "", parameters: Mapping[str, Any] | None = None
    ) -> None:
        if not callable(func):
            raise ValueError(f"{name!r} is not callable")
        self.name = name
        self._func = func
        self._arguments = FunctionArguments(name, func, is_lenient=True)
        self.spec: dict[str, Any] = {
            "name": name,
            "description": description or self._arguments.description or name,
            "parameters": self._arguments.schema if parameters is None else dict(parameters),
        }

    def mismatch(self) -> str:
        """Return how the declared parameters differ from those of the function. Empty: they match."""
        declared = self.spec["parameters"].get("properties")
        own = self._arguments.schema
        if not isinstance(declared, Mapping) or declared is own["properties"]:
            return ""
        unknown = [] if self._arguments.accepts_any else [name for name in declared if name not in own["properties"]]
        missing = [name for name in own.get("required", ()) if name not in declared]
        if unknown:
            return f"the tool {self.name!r} declares the parameter {unknown[0]!r}, which its function does not accept"
        return (
            f"the tool {self.name!r} does not declare the parameter {missing[0]!r} of its function" if missing else ""
        )

    def call(self, arguments: dict[str, Any], display_name: str) -> Any:
        """Call the function. Raise :class:`ArgumentError` if the arguments do not fit."""
        try:
            checked = self._arguments.read(arguments)
        except ArgumentError as error:
            raise ArgumentError((display_name or self.name) + str(error).removeprefix(self.name)) from None
        positional, named = self._arguments.bind(checked)
        return self._func(*positional, **named)


class _Tools:
    """The tools of ``tools.py``, which is imported for the first request."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._module: Any = None
        self._found: dict[str, tuple[dict[str, _ToolFunction], list[str]]] = {}
        self._loop: Any = None

    def describe(self, declared: list[Mapping[str, Any]] | None, limit: int) -> dict[str, Any]:
        """Return the tools' specs, at most ``limit`` bytes, and the others' problems."""
        found, known = self._functions(declared)
        problems = [*known, *filter(None, (tool.mismatch() for tool in found.values()))]
        specs = []
        for tool in found.values():
            try:
                spec = _plain(tool.spec)
                limit -= len(json.dumps(spec).encode())
            except Exception as error:
                problems.append(f"the tool {tool.name!r} cannot be described: {_message(error)}")
                continue
            if limit < 0:
                problems.append(f"the tool {tool.name!r} and later tools are omitted: their descriptions are too long")
                break
            specs.append(spec)
        return {"tools": specs, "problems": problems[:_MAX_PROBLEMS]}

    def call(
        self, name: str, arguments: dict[str, Any], declared: list[Mapping[str, Any]] | None, display_name: str
    ) -> Any:
        """Return a tool's result as JSON-like data. ``display_name`` is its name for the model."""
        found, _ = self._functions(declared)
        if name not in found:
            raise ArgumentError(f"{_FILE} has no tool {name!r}. Tools: {', '.join(found) or 'none'}")
        value = found[name].call(arguments, display_name)
        if inspect.isawaitable(value):
            value = self._awaited(value)
        try:
            return _plain(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the result of the tool cannot be converted to JSON: {error}") from None

    def _functions(self, declared: list[Mapping[str, Any]] | None) -> tuple[dict[str, _ToolFunction], list[str]]:
        key = json.dumps(declared)
        if key not in self._found:
            self._found[key] = _functions_of(self._imported(), declared)
        return self._found[key]

    def _imported(self) -> Any:
        if self._module is None:
            sys.path.insert(0, self._folder)
            spec = importlib.util.spec_from_file_location("tools", os.path.join(self._folder, _FILE))
            if spec is None or spec.loader is None:
                raise ImportError(f"{_FILE} cannot be read")
            module = importlib.util.module_from_spec(spec)
            sys.modules["tools"] = module  # dataclasses and annotations look here
            try:
                spec.loader.exec_module(module)
            except BaseException:
                del sys.modules["tools"]
                sys.path.remove(self._folder)
                raise
            self._module = module
        return self._module

    def _awaited(self, value: Any) -> Any:
        import asyncio  # plain functions do not need it, and it delays the start

        if self._loop is None:
            # One for all calls: what a tool keeps between them may belong to it.
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)

        async def wait() -> Any:
            return await value

        return self._loop.run_until_complete(wait())


def _functions_of(
    module: Any, declared: Iterable[Mapping[str, Any]] | None
) -> tuple[dict[str, _ToolFunction], list[str]]:
    """Return a module's tools by name, and the others' problems.

    They are those of ``declared`` (the entries of a ``schema.json``), else those of the list ``TOOLS``, else the public
    functions. An entry is a function, its name, or an object with ``name``, ``description`` and ``parameters``.
    """
    found: dict[str, _ToolFunction] = {}
    problems: list[str] = []
    for entry in _entries(module) if declared is None else declared:
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


def _entries(module: Any) -> Iterable[Any]:
    listed = getattr(module, "TOOLS", None)
    if isinstance(listed, Mapping):
        return listed.items()
    if isinstance(listed, (list, tuple)):
        return listed
    public = getattr(module, "__all__", None)
    functions = [(name, value) for name, value in vars(module).items() if inspect.isfunction(value)]
    if isinstance(public, (list, tuple)):
        return [(name, value) for name, value in functions if name in public]
    return [
        (name, value) for name, value in functions if not name.startswith("_") and value.__module__ == module.__name__
    ]


def _tool(entry: Any, module: Any) -> _ToolFunction:
    if isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str):
        return _ToolFunction(entry[0], entry[1])
    if isinstance(entry, str):
        return _ToolFunction(entry, _function(entry, module))
    if not isinstance(entry, Mapping):
        return _ToolFunction(getattr(entry, "__name__", None) or type(entry).__name__, entry)
    inner = entry.get("function")
    about = inner if isinstance(inner, Mapping) else entry
    func = inner if callable(inner) else entry.get("callable") or entry.get("func")
    name = about.get("name") or (inner if isinstance(inner, str) else getattr(func, "__name__", None))
    if not isinstance(name, str):
        raise ValueError(f"an entry of the tools has no name: {str(entry)[:100]}")
    if not callable(func):
        func = _function(inner if isinstance(inner, str) else name, module)
    parameters = about.get("parameters", about.get("input_schema"))
    return _ToolFunction(
        name, func, str(about.get("description") or ""), parameters if isinstance(parameters, Mapping) else None
    )


def _function(name: str, module: Any) -> Callable[..., Any]:
    func = getattr(module, name, None)
    if name.startswith("_") or not callable(func):
        raise ValueError(f"{_FILE} has no function {name!r}, which the list of its tools names")
    found: Callable[..., Any] = func
    return found


def _plain(value: Any, depth: int = 0) -> Any:
    """Return ``value`` as JSON-like data.

    Raise :class:`ValueError` for an object without a representation in JSON, and for deeper nesting than 60 levels.
    """
    if depth > _MAX_DEPTH:
        raise ValueError(f"the value is nested deeper than {_MAX_DEPTH} levels, or contains itself")
    if isinstance(value, Enum):
        return _plain(value.value, depth + 1)
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {
            str(name.value if isinstance(name, Enum) else name): _plain(part, depth + 1) for name, part in value.items()
        }
    if isinstance(value, (list, tuple, Set)) or inspect.isgenerator(value):
        return [_plain(part, depth + 1) for part in itertools.islice(value, _MAX_ITEMS)]
    if isinstance(value, (bytes, bytearray, memoryview)):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    found = to_jsonable_python(value, fallback=_text)
    return found if found is None or isinstance(found, (bool, int, float, str)) else _plain(found, depth + 1)


def _text(value: Any) -> str:
    # Other classes show only their address.
    if not any("__str__" in vars(base) or "__repr__" in vars(base) for base in type(value).__mro__[:-1]):
        raise ValueError(f"the value contains an object of type {type(value).__name__}, which JSON cannot represent")
    return str(value)


def serve() -> None:
    """Respond until there are no more requests."""
    requests, responses = _own_pipes()
    folder, process = os.getcwd(), os.getpid()
    sys.dont_write_bytecode = True  # the folder is read-only
    # A model does not see such a default, and the function has it.
    warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
    # Before Python 3.12, pydantic supports only the TypedDict of this package.
    typing.TypedDict = typing_extensions.TypedDict
    tools = _Tools(folder)
    for line in requests:
        request = json.loads(line)
        os.environ["FLINK_SKILLS_CALL_ID"] = request.get("call_id", "")
        response = _response(tools, request)
        if os.getpid() != process:
            os._exit(0)  # a tool forked and returned twice: only one process may respond
        text = _encoded(response, request["limit"])
        _finish_output(request.get("mark", ""))
        responses.write(text)
        responses.flush()
        os.chdir(folder)


def _own_pipes() -> tuple[Any, Any]:
    """Return the standard input and output for this program alone: tools read nothing, and print to stderr.

    Programs that tools start inherit neither.
    """
    requests = os.fdopen(os.dup(0), "rb")
    responses = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    # In order with the output of programs that the tools start.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return requests, responses


def _response(tools: _Tools, request: dict[str, Any]) -> dict[str, Any]:
    try:
        if request["op"] == "describe":
            return {"id": request["id"], "value": tools.describe(request.get("declared"), request["limit"])}
        value = tools.call(
            request["tool"], request["arguments"], request.get("declared"), request.get("display_name", "")
        )
        return {"id": request["id"], "value": value}
    except ArgumentError as error:
        return {"id": request["id"], "error": str(error), "kind": "arguments"}
    except BaseException as error:  # a tool that exits, or a syntax error
        return {"id": request["id"], "error": f"{_message(error)}{_location(error)}", "kind": "failed"}


def _encoded(response: dict[str, Any], limit: int) -> bytes:
    text = json.dumps(response, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
    if len(text) > limit:
        size, value = len(text), response.get("value")
        text = b""
        if isinstance(value, str):
            # The beginning of a long string is useful; a part of an object is not.
            for length in (limit * 3 // 4, limit // 4, limit // 8):
                start = value[:length] + f"\n[{len(value) - length} characters of the result are left out here]"
                text = json.dumps({**response, "value": start}, ensure_ascii=False).encode("utf-8", "replace")
                if len(text) <= limit:
                    break
        if not text or len(text) > limit:
            error = (
                f"the result has {size} bytes, and the maximum is {limit}: return less, or write it to a file in "
                "$OUTPUT_DIR and return its name"
            )
            text = json.dumps({"id": response["id"], "error": error, "kind": "failed"}).encode()
    return text + b"\n"


def _finish_output(mark: str) -> None:
    """Flush the printed output into the pipe, with ``mark`` at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: S112
            continue  # a tool closed or replaced it
    if mark:
        try:
            os.write(2, f"\0{mark}\0\n".encode())
        except OSError:
            return  # a tool closed it: the worker waits a moment for the mark, and continues


def _message(error: BaseException) -> str:
    try:
        text = f"{type(error).__name__}: {error}".rstrip(": ")
    except Exception:
        text = type(error).__name__
    return text if len(text) <= _MAX_ERROR_LENGTH else text[:_MAX_ERROR_LENGTH] + "…"


def _location(error: BaseException) -> str:
    """Return the file and line of the skill that raised ``error``."""
    try:
        here = os.path.dirname(os.path.abspath(_FILE))
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(here)]
        return f" ({os.path.relpath(own[-1].filename, here)}, line {own[-1].lineno})" if own else ""
    except Exception:
        return ""
