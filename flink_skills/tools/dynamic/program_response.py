"""Responses from programs that run bundled tools: untrusted output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flink_skills.execution import Limits
from flink_skills.manager.menu import escape
from flink_skills.skill.text import clean_line
from flink_skills.tools.base import ToolResult
from flink_skills.tools.commands.hidden import HiddenValues
from flink_skills.tools.dynamic.schema_file import read_json
from flink_skills.tools.dynamic.skill_programs import UNUSABLE_PYTHON, Reply
from flink_skills.tools.dynamic.specs import MAX_TOOLS

_MAX_DEPTH = 100
_MAX_PROBLEMS = 100
_MAX_PROBLEM_LENGTH = 300
# Shells' exit codes for a program that is missing or cannot be executed.
_NO_PYTHON = (126, 127)


@dataclass(frozen=True)
class Response:
    """A value or an ``error``, and the text that the tool ``printed``. ``is_rejected``: no function was called."""

    value: Any = None
    error: str = ""
    is_rejected: bool = False
    printed: str = ""

    @property
    def tools(self) -> list[Any]:
        """The described tools."""
        found = self.value.get("tools") if isinstance(self.value, dict) else None
        return found if isinstance(found, list) else []

    @property
    def problems(self) -> list[str]:
        """The described problems, as text for a prompt."""
        if self.error:
            printed = self.printed.strip().splitlines()[-1:]
            texts = [self.error, *(f"printed: {line}" for line in printed)]
        else:
            found = self.value.get("problems") if isinstance(self.value, dict) else None
            some = found[:_MAX_PROBLEMS] if isinstance(found, list) else []
            texts = [text for text in some if isinstance(text, str)]
        return [escape(clean_line(text[:_MAX_PROBLEM_LENGTH])) for text in texts]


def read_response(line: bytes, printed: bytes, hidden: HiddenValues, *, describes: bool = False) -> Response:
    """Return the response in a line of JSON, or an error for any other line. This takes long: not for an event loop.

    Args:
        line: The line of the program.
        printed: The printed text.
        hidden: Values to hide.
        describes: Whether the response describes tools. The lists in it are read up to their limits.
    """
    shown = hidden.in_text(printed.decode("utf-8", "replace"))
    try:
        read = read_json(line.decode("utf-8"))
        if not isinstance(read, dict) or not ({"value", "error"} & read.keys()):
            raise ValueError("the response has neither a value nor an error")
        value = read.get("value")
        value = _cleaned(_limited(value) if describes else value, hidden, 0)
        error = read.get("error")
    except (ValueError, RecursionError) as wrong:
        return Response(
            error=f"the response of the program is not valid: {clean_line(str(wrong))[:200]}", printed=shown
        )
    if error is None:
        return Response(value, printed=shown)
    text = _cleaned(error, hidden, 0) if isinstance(error, str) else ""
    text = text or "the program reported an error without a message"
    return Response(error=text, is_rejected=read.get("kind") == "arguments", printed=shown)


def command_response(stdout: bytes, stderr: bytes, hidden: HiddenValues) -> Response:
    """Return a command's response: its output as JSON if it is JSON, otherwise as a string.

    The outputs contain no hidden values. JSON can still contain one in an escaped form.
    """
    text = stdout.decode("utf-8", "replace")
    value: Any = text
    if text.lstrip()[:1] in ("{", "["):
        try:
            value = _cleaned(read_json(text), hidden, 0)
        except (ValueError, RecursionError):
            value = text  # it only resembled JSON
    return Response(value, printed=stderr.decode("utf-8", "replace"))


def missing_response(
    reply: Reply, skill: str, printed: bytes, *, timeout: float, limit: int, limits: Limits
) -> Response:
    """Return the reason why there is no response."""
    shown, ended = printed.decode("utf-8", "replace"), reply.ended
    if reply.timed_out or (ended is not None and ended.timed_out):
        message = f"the program ran longer than {timeout:g} s and was terminated. Do the work in parts."
    elif reply.too_long:
        message = f"the program printed too much, or its result has more than {limit} bytes, the maximum of this job"
    elif ended is None:
        message = "the program ended without a result"
    elif ended.error is not None:
        message = f"the program could not be run safely: {ended.error}"
    elif ended.limit is not None:
        message = f"the program reached the limit {ended.limit} ({getattr(limits, ended.limit, '')}) of this job"
    elif ended.exit_code in _NO_PYTHON and "python3: " in shown:
        return Response(
            error=f"skill {skill!r} has its own tools, but commands have no python3 here "
            f"({shown.strip()}): the image of the TaskManagers needs python3 on its PATH, outside /root and /home"
        )
    elif ended.exit_code == UNUSABLE_PYTHON and shown.startswith("the tools of a skill need "):
        return Response(error=shown.strip())
    else:
        how = f"signal {ended.signal}" if ended.signal is not None else f"exit code {ended.exit_code}"
        message = f"the program ended without a result ({how})"
    return Response(error=message, printed=shown)


def tool_result(response: Response, exposed: str) -> ToolResult:
    """Return the result for a model: a string verbatim, any other value as JSON, and then the printed text."""
    printed = f"\n\nprinted:\n{response.printed.rstrip()}" if response.printed.strip() else ""
    if response.error:
        content = response.error if response.is_rejected else f"{exposed} failed: {response.error}"
    else:
        content = response.value if isinstance(response.value, str) else json.dumps(response.value, ensure_ascii=False)
    return ToolResult(
        content + printed,
        is_error=bool(response.error),
        value=response.value,
        sections=(content, printed) if printed else (),
    )


def _limited(value: Any) -> Any:
    """Return a description's lists up to their limits: untrusted code can send a megabyte."""
    if not isinstance(value, dict):
        return None
    limits = {"tools": MAX_TOOLS + 1, "problems": _MAX_PROBLEMS}
    return {name: value[name][:most] for name, most in limits.items() if isinstance(value.get(name), list)}


def _cleaned(value: Any, hidden: HiddenValues, depth: int) -> Any:
    """Return ``value`` without hidden values and surrogates. Raise :class:`ValueError` if it is nested too deeply."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"the value is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, str):
        text = value.encode("utf-8", "replace").decode()
        return hidden.in_text(text)
    if isinstance(value, Mapping):
        return {_cleaned(name, hidden, depth): _cleaned(part, hidden, depth + 1) for name, part in value.items()}
    if isinstance(value, list):
        return [_cleaned(part, hidden, depth + 1) for part in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        text = str(value)
        return value if hidden.in_text(text) == text else hidden.in_text(text)
    return value
