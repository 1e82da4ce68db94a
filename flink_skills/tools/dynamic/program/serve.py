"""Answers requests, a JSON line each, about the ``tools.py`` in the folder that the program runs in."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from .functions import ArgumentsError, ToolFunction, functions_of
from .results import plain

__all__ = ["serve"]

_FILE = "tools.py"
_SHOWN_ERROR_CHARS = 2_000


class Tools:
    """The tools of ``tools.py``, imported when they are first asked for."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._module: Any = None
        self._found: dict[str, tuple[dict[str, ToolFunction], list[str]]] = {}
        self._loop: Any = None

    def describe(self, declared: list[Mapping[str, Any]] | None, room: int) -> dict[str, Any]:
        """The specs of the tools, as many as fit into ``room`` bytes, and what is wrong with others."""
        found, known = self._functions(declared)
        problems = list(known)
        specs = []
        for tool in found.values():
            try:
                spec = plain(tool.spec())
                room -= len(json.dumps(spec).encode())
            except Exception as error:
                problems.append(f"the tool {tool.name!r} cannot be described: {_said(error)}")
                continue
            if room < 0:
                problems.append(f"the tool {tool.name!r} and later tools are omitted: their descriptions are too long")
                break
            specs.append(spec)
        return {"tools": specs, "problems": problems[:100]}

    def call(
        self, name: str, arguments: dict[str, Any], declared: list[Mapping[str, Any]] | None, shown: str = ""
    ) -> Any:
        """The result of a tool, as JSON knows it. ``shown`` is its name in what the model reads."""
        found, _ = self._functions(declared)
        tool: ToolFunction | None = found.get(name)
        if tool is None:
            raise ArgumentsError(f"{_FILE} has no tool {name!r}. Tools: {', '.join(found) or 'none'}")
        value = tool.call(arguments, shown)
        if inspect.isawaitable(value):
            value = self._awaited(value)
        try:
            return plain(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the result of the tool cannot be converted to JSON: {error}") from None

    def _functions(self, declared: list[Mapping[str, Any]] | None) -> tuple[dict[str, ToolFunction], list[str]]:
        key = json.dumps(declared)
        if key not in self._found:
            self._found[key] = functions_of(self._imported(), declared)
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
        import asyncio  # half of the time that the program would need to start

        if self._loop is None:
            # One for all calls: what a tool keeps between them may belong to it.
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)

        async def wait() -> Any:
            return await value

        return self._loop.run_until_complete(wait())


def serve() -> None:
    """Answer until there are no more requests."""
    requests, answers = _own_pipes()
    folder, process = os.getcwd(), os.getpid()
    sys.dont_write_bytecode = True  # the folder is read-only
    tools = Tools(folder)
    for line in requests:
        request = json.loads(line)
        os.environ["FLINK_SKILLS_CALL_ID"] = request.get("call_id", "")
        answer = _answer(tools, request)
        if os.getpid() != process:
            os._exit(0)  # a tool forked and came back: only one may answer
        text = _encoded(answer, request)
        _finish_output(request.get("mark", ""))
        answers.write(text)
        answers.flush()
        os.chdir(folder)


def _own_pipes() -> tuple[Any, Any]:
    """The standard input and output, for this program alone: tools get nothing to read, and print to stderr.

    Programs that tools start inherit neither.
    """
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    # In order with what programs print that the tools start.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return requests, answers


def _answer(tools: Tools, request: dict[str, Any]) -> dict[str, Any]:
    try:
        if request["op"] == "describe":
            return {"id": request["id"], "value": tools.describe(request.get("declared"), request["room"])}
        value = tools.call(request["tool"], request["arguments"], request.get("declared"), request.get("shown", ""))
        return {"id": request["id"], "value": value}
    except ArgumentsError as error:
        return {"id": request["id"], "error": str(error), "kind": "arguments"}
    except BaseException as error:  # a tool that ends the program, or was written with a syntax error
        return {"id": request["id"], "error": f"{_said(error)}{_place(error)}", "kind": "failed"}


def _encoded(answer: dict[str, Any], request: dict[str, Any]) -> bytes:
    room = request["room"]
    text = json.dumps(answer, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
    if len(text) > room:
        size, value = len(text), answer.get("value")
        text = b""
        if isinstance(value, str):
            # Of a long text the beginning is worth something; a part of an object is not.
            for share in (room * 3 // 4, room // 4, room // 8):
                cut = value[:share] + f"\n[{len(value) - share} characters of the result are left out here]"
                text = json.dumps({**answer, "value": cut}, ensure_ascii=False).encode("utf-8", "replace")
                if len(text) <= room:
                    break
        if not text or len(text) > room:
            said = (
                f"the result has {size} bytes, and the maximum is {room}: return less, or write it to a file in "
                "$OUTPUT_DIR and return its name"
            )
            text = json.dumps({"id": answer["id"], "error": said, "kind": "failed"}).encode()
    return text + b"\n"


def _finish_output(mark: str) -> None:
    """Have all that was printed in the pipe, and ``mark`` at the end of it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: S112
            continue  # a tool closed or replaced it
    if mark:
        try:
            os.write(2, f"\0{mark}\0\n".encode())
        except OSError:
            return  # closed by a tool: the worker waits for the mark a little, and then no more


def _said(error: BaseException) -> str:
    try:
        text = f"{type(error).__name__}: {error}".rstrip(": ")
    except Exception:
        text = type(error).__name__
    return text if len(text) <= _SHOWN_ERROR_CHARS else text[:_SHOWN_ERROR_CHARS] + "…"


def _place(error: BaseException) -> str:
    """Where in the skill's own files it was raised."""
    try:
        here = os.path.dirname(os.path.abspath(_FILE))
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(here)]
        return f" ({os.path.relpath(own[-1].filename, here)}, line {own[-1].lineno})" if own else ""
    except Exception:
        return ""
