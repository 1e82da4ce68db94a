"""What a person sees of a turn: the answer while it arrives on stdout, and what happens meanwhile on stderr."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from flink_skills.agents.messages import ModelResponse
from flink_skills.cli.output import Styled, print_line, visible
from flink_skills.execution import CommandResult
from flink_skills.telemetry import Activity, Delta, Note, Observer, TextDelta, ToolCallDelta

__all__ = ["ChatView", "LogToView", "short"]

_ARGUMENT, _RESULT, _COMMAND = 60, 100, 100
_DIM, _BAD, _NAME = "dim", "red", "cyan"


class ChatView(Observer):
    """Shows turns as they happen.

    With ``stream``, text of the model appears as it arrives; without, only what the turn puts out at its end, whole.
    Lines are written by one thread at a time, whichever that is.
    """

    def __init__(self, *, stream: bool) -> None:
        self.hears_deltas = stream
        self._lock = threading.RLock()
        self._speaking: Activity | None = None
        self._said = ""
        self._open_line: TextIO | None = None
        # The call whose arguments stand in the open line, and those that were shown, if only in part.
        self._writing = -1
        self._written: set[int] = set()
        # Calls of tools whose effect has been told, so that their result is no news.
        self._told: set[Activity] = set()

    def line(self, *parts: Styled | str) -> None:
        """A line on stderr, below what was said so far."""
        with self._lock:
            self._close_line()
            print_line(*parts, stream=sys.stderr)

    def _say(self, text: str) -> None:
        if not text:
            return
        if self._open_line is sys.stderr:
            self._close_line()
        self._write(sys.stdout, visible(text))

    def _write(self, out: TextIO, text: str) -> None:
        out.write(text)
        out.flush()
        self._open_line = None if text.endswith("\n") else out

    def _close_line(self) -> None:
        if self._open_line is not None:
            self._write(self._open_line, "\n")
        self._writing = -1

    def begin(self) -> None:
        """A turn begins."""
        with self._lock:
            self._speaking, self._said, self._open_line = None, "", None
            self._writing = -1
            self._told.clear()

    def end(self, outputs: Sequence[tuple[str, Any]]) -> None:
        """The turn has ended: show its outputs, pairs of tag and value, but for the text that was shown already."""
        with self._lock:
            self._close_line()
            for tag, output in outputs:
                if tag:
                    self.line((f"  output {tag}: ", _DIM), short(_as_text(output), _RESULT))
                elif not (self._said and _is_same(output, self._said)):
                    self._say(_as_text(output))
                    self._close_line()

    def started(self, activity: Activity) -> None:
        depth = _depth(activity)
        if activity.kind == "tool":
            arguments = activity.attributes.get("arguments", {})
            self.line("  " * (depth + 1), (activity.name, _NAME), f" {_arguments_text(arguments)}".rstrip())
        elif activity.kind == "agent":
            self.line("  " * depth, ("agent ", _DIM), (activity.name, _NAME))
        elif activity.kind == "chat" and not depth:
            with self._lock:
                if self._speaking is None:
                    self._speaking, self._said = activity, ""
                    self._written.clear()

    def delta(self, activity: Activity, delta: Delta) -> None:
        with self._lock:
            if activity is not self._speaking:
                return
            if isinstance(delta, TextDelta):
                self._said += delta.text
                self._say(delta.text)
            elif isinstance(delta, ToolCallDelta):
                if delta.is_streaming:
                    self._say_arguments(delta)
            elif self._said or self._written:
                self._said = ""
                self._written.clear()
                self.line(("  the answer broke off and does not count", _DIM))

    def _say_arguments(self, delta: ToolCallDelta) -> None:
        """Show the arguments of a call while they are written: one call at a time, each in a line of its own."""
        if delta.index != self._writing:
            if delta.index in self._written:
                return  # calls take turns: the whole of it comes with the call
            self._close_line()
            self._write(sys.stderr, f"  {visible(delta.name)} … ")
            self._writing = delta.index
            self._written.add(delta.index)
        self._write(sys.stderr, visible(delta.arguments).replace("\n", " "))

    def ended(self, activity: Activity) -> None:
        if activity.error == "CancelledError":
            return
        if activity.kind == "chat":
            self._end_chat(activity)
        elif activity.kind == "tool":
            self._end_tool(activity)
        elif activity.kind == "command":
            self._end_command(activity)

    def noted(self, note: Note) -> None:
        said = note.attributes
        depth = _depth(note.activity) + 2 if note.activity is not None else 1
        indent = "  " * depth
        if note.kind == "retry":
            what = f"the model is asked again in {said['pause']:.1f} s: {said['error']}"
            self.line(indent, (what, _BAD))
        elif note.kind == "fallback":
            self.line(indent, (f"model {said['to']} is asked instead of {said['model']}: {said['error']}", _BAD))
        elif note.kind == "skill" and said.get("outcome") == "ok":
            what = f"read {said['path']} of" if said.get("path") else "loaded"
            if said.get("action") in ("activate", "read"):
                if note.activity is not None:
                    self._told.add(note.activity)
                self.line(indent, (f"{what} skill {said['skill']} {said.get('digest', '')[:12]}".rstrip(), _DIM))

    def _end_chat(self, activity: Activity) -> None:
        with self._lock:
            is_speaking = activity is self._speaking
            if is_speaking:
                self._speaking = None
            response: ModelResponse | None = activity.attributes.get("response")
            if response is None or (is_speaking and self.hears_deltas) or not response.tool_calls:
                return
            # What it says beside its calls is no output of the turn, so this is its only place.
            if response.text.strip():
                self.line("  " * (_depth(activity) + 1), ("says ", _DIM), short(response.text, _RESULT))

    def _end_tool(self, activity: Activity) -> None:
        attributes = activity.attributes
        bad = bool(activity.error or attributes.get("is_error"))
        if activity in self._told and not bad:
            return
        content = activity.error or str(attributes.get("content", ""))
        label = ("error: ", _BAD) if bad else ("gives: ", _DIM)
        self.line("  " * (_depth(activity) + 2), label, short(content, _RESULT))

    def _end_command(self, activity: Activity) -> None:
        command = activity.attributes.get("command", "")
        words = command if isinstance(command, str) else " ".join(command)
        result: CommandResult | None = activity.attributes.get("result")
        if result is None:
            ending, seconds = activity.error or "started", activity.duration
        else:
            ending, seconds = activity.error or "exit 0", result.duration
        style = _BAD if activity.error else _DIM
        parts = ("  " * (_depth(activity) + 2), ("$ ", _DIM), short(words, _COMMAND), "  ")
        self.line(*parts, (f"{ending}, {seconds:.2f} s", style))
        if result is not None and activity.error and result.stderr.strip():
            last = result.stderr.decode("utf-8", "replace").strip().splitlines()[-1]
            self.line("  " * (_depth(activity) + 3), (short(last, _RESULT), _BAD))


class LogToView(logging.Handler):
    """Shows warnings of the package among the lines of a session, and not twice what a turn says itself."""

    def __init__(self, view: ChatView) -> None:
        super().__init__(logging.WARNING)
        self._view = view

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != "flink_skills.turn":
            style = _BAD if record.levelno >= logging.ERROR else "yellow"
            self._view.line((record.getMessage(), style))


def short(text: str, most: int) -> str:
    """A text as part of a line: its white space as single blanks, cut to ``most`` characters.

    >>> short("one\\n two three", 8)
    'one two…'
    """
    line = " ".join(text[: most * 8].split())
    return line if len(line) <= most and len(text) <= most * 8 else line[: most - 1].rstrip() + "…"


def _arguments_text(arguments: Mapping[str, Any] | str) -> str:
    if isinstance(arguments, str):
        return short(arguments, _ARGUMENT)
    written = {name: json.dumps(value, ensure_ascii=False) for name, value in arguments.items()}
    return " ".join(f"{name}={short(value, _ARGUMENT)}" for name, value in written.items())


def _depth(activity: Activity) -> int:
    """How many agents that are tools it is inside of."""
    depth = 0
    link = activity.parent
    while link is not None:
        depth += link.kind == "agent"
        link = link.parent
    return depth


def _as_text(output: Any) -> str:
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, indent=2, default=str)


def _is_same(output: Any, said: str) -> bool:
    if isinstance(output, str):
        return output.strip() == said.strip()
    try:
        return bool(json.loads(said) == output)
    except (ValueError, RecursionError):
        return False
