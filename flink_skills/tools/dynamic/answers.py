"""What comes back from a program that ran a skill's tools: read as what it is, the output of untrusted code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flink_skills.execution import CommandResult, Limits
from flink_skills.manager.menu import escape
from flink_skills.skill.text import clean_line
from flink_skills.tools.base import ToolResult
from flink_skills.tools.commands.hidden import HiddenValues
from flink_skills.tools.dynamic.runner_process import Reply
from flink_skills.tools.dynamic.specs import MAX_TOOLS
from flink_skills.tools.dynamic.strict_json import read_json

__all__ = ["Answer", "no_answer", "read_answer", "text_answer", "tool_result"]

_MAX_DEPTH = 100
_MAX_PROBLEMS = 100
_SHOWN_PROBLEM_CHARS = 300
# Exit codes as shells have them, and the one of our own program for an interpreter that is too old.
_NO_PYTHON, _OLD_PYTHON = (126, 127), 3


@dataclass(frozen=True)
class Answer:
    """A result, or an ``error``; what the tool ``printed`` meanwhile. ``refused`` says that nothing was called."""

    value: Any = None
    error: str = ""
    refused: bool = False
    printed: str = ""

    @property
    def tools(self) -> list[Any]:
        """The tools in the answer to a request for their description."""
        found = self.value.get("tools") if isinstance(self.value, dict) else None
        return found if isinstance(found, list) else []

    @property
    def problems(self) -> list[str]:
        """What is wrong, in the answer to a request for a description; it goes into a prompt."""
        if self.error:
            printed = self.printed.strip().splitlines()[-1:]
            texts = [self.error, *(f"printed: {line}" for line in printed)]
        else:
            found = self.value.get("problems") if isinstance(self.value, dict) else None
            some = found[:_MAX_PROBLEMS] if isinstance(found, list) else []
            texts = [text for text in some if isinstance(text, str)]
        return [escape(clean_line(text[:_SHOWN_PROBLEM_CHARS])) for text in texts]


def read_answer(line: bytes, printed: bytes, hidden: HiddenValues, *, describes: bool = False) -> Answer:
    """The answer in a line of JSON; one with an error for any other line. Takes a while: not for an event loop.

    ``describes`` says that it was a request for a description, of which no more is read than can count.
    """
    said = _text(printed, hidden)
    try:
        read = read_json(line.decode("utf-8"))
        if not isinstance(read, dict) or not ({"value", "error"} & read.keys()):
            raise ValueError("the response has neither a value nor an error")
        value = read.get("value")
        value = _cleaned(_beginning(value) if describes else value, hidden, 0)
        error = read.get("error")
    except (ValueError, RecursionError) as wrong:
        return Answer(error=f"the response of the program is not valid: {clean_line(str(wrong))[:200]}", printed=said)
    if error is None:
        return Answer(value, printed=said)
    text = _cleaned(error, hidden, 0) if isinstance(error, str) else ""
    text = text or "the program reported an error without a message"
    return Answer(error=text, refused=read.get("kind") == "arguments", printed=said)


def text_answer(stdout: bytes, stderr: bytes, hidden: HiddenValues) -> Answer:
    """The answer of a command: JSON where its output is that, else the output as a text.

    Both outputs come without hidden values; JSON has more than one form for a text, and shows others once it is read.
    """
    text = stdout.decode("utf-8", "replace")
    value: Any = text
    if text.lstrip()[:1] in ("{", "["):
        try:
            value = _cleaned(read_json(text), hidden, 0)
        except (ValueError, RecursionError):
            value = text  # it only looked like JSON
    return Answer(value, printed=stderr.decode("utf-8", "replace"))


def no_answer(reply: Reply, skill: str, printed: bytes, *, timeout: float, room: int, limits: Limits) -> Answer:
    """Why there is no answer."""
    said = printed.decode("utf-8", "replace")
    ended = reply.ended
    if reply.timed_out or (ended is not None and ended.timed_out):
        message = f"the program ran longer than {timeout:g} s and was terminated. Do the work in parts."
        return Answer(error=message, printed=said)
    if reply.too_long:
        message = f"the program printed too much, or its result has more than {room} bytes, the maximum of this job"
        return Answer(error=message, printed=said)
    if ended is None:
        return Answer(error="the program ended without a result", printed=said)
    if ended.error is not None:
        return Answer(error=f"the program could not be run safely: {ended.error}", printed=said)
    if ended.limit is not None:
        value = getattr(limits, ended.limit, "")
        return Answer(error=f"the program reached the limit {ended.limit} ({value}) of this job", printed=said)
    if ended.exit_code in _NO_PYTHON and "python3: " in said:
        return Answer(
            error=f"skill {skill!r} has its own tools, but commands have no python3 here "
            f"({said.strip()}): the image of the TaskManagers needs python3 on its PATH, outside /root and /home"
        )
    if ended.exit_code == _OLD_PYTHON and "need Python" in said:
        return Answer(error=said.strip())
    return Answer(error=f"the program ended without a result ({_how(ended)})", printed=said)


def tool_result(answer: Answer, exposed: str) -> ToolResult:
    """What a model is told. A text is given as it is, anything else as JSON; what was printed comes after it."""
    printed = f"\n\nprinted:\n{answer.printed.rstrip()}" if answer.printed.strip() else ""
    if answer.error:
        text = answer.error if answer.refused else f"{exposed} failed: {answer.error}"
        return ToolResult(text + printed, is_error=True, sections=(text, printed) if printed else ())
    value = answer.value
    content = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return ToolResult(content + printed, value=value, sections=(content, printed) if printed else ())


def _how(ended: CommandResult) -> str:
    return f"signal {ended.signal}" if ended.signal is not None else f"exit code {ended.exit_code}"


def _beginning(value: Any) -> Any:
    """The lists of a description without what is over any limit: untrusted code may send a megabyte of it."""
    if not isinstance(value, dict):
        return None
    most = {"tools": MAX_TOOLS + 1, "problems": _MAX_PROBLEMS}
    return {name: value[name][:room] for name, room in most.items() if isinstance(value.get(name), list)}


def _cleaned(value: Any, hidden: HiddenValues, depth: int) -> Any:
    """``value`` without hidden values and half characters; raises :class:`ValueError` for one nested too deep."""
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


def _text(data: bytes, hidden: HiddenValues) -> str:
    return hidden.in_text(data.decode("utf-8", "replace"))
