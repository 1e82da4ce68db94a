"""Terminal output of a turn: the answer on stdout, tool calls and other activities on stderr."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from flink_skills.agents.state.waits import SLEEP
from flink_skills.cli.terminal_output import Styled, print_note
from flink_skills.execution import CommandResult
from flink_skills.models.messages import ModelResponse
from flink_skills.telemetry import CANCELLED, Activity, Delta, Observer, PointEvent, TextDelta, ToolCallDelta
from flink_skills.texts import visible

if TYPE_CHECKING:
    from rich.markdown import Markdown

_MAX_ARGUMENT, _MAX_RESULT, _MAX_COMMAND = 60, 100, 100
_DIM, _ERROR, _NAME = "dim", "red", "cyan"
_THINKING = "The model thinks"
_FENCES = ("```", "~~~")


class MarkdownStream:
    """Markdown on a terminal: text appears as it arrives, and each block is rendered when it ends.

    A block that is higher than the terminal stays as it was written.

    Args:
        out: The terminal.
    """

    def __init__(self, out: TextIO) -> None:
        from rich.console import Console

        self._out = out
        self._console = Console(file=out, highlight=False, color_system=None if os.environ.get("NO_COLOR") else "auto")
        self._block = ""

    @property
    def is_open(self) -> bool:
        """Return True if a block has begun."""
        return bool(self._block)

    @property
    def is_usable(self) -> bool:
        """Return True if the terminal can replace text that it shows."""
        return self._out.isatty() and self._console.is_interactive

    def write(self, text: str) -> None:
        """Write a part of the answer."""
        while text:
            line, end, text = text.partition("\n")
            self._block += line + end
            self._out.write(line + end)
            if end and not line.strip() and self._block.strip() and not self._is_fenced():
                self.end_block()
                self._out.write("\n")
        self._out.flush()

    def end_block(self) -> None:
        """Render the current block in the place of its text. Print nothing if there is no block."""
        block, self._block = self._block, ""
        if not block:
            return
        size = self._console.size
        rows = self._rows(block, size.width)
        if rows > size.height:
            self._out.write("" if block.endswith("\n") else "\n")
        else:
            up = f"\x1b[{rows - 1}A" if rows > 1 else ""
            self._out.write(f"\r{up}\x1b[J")
            self._console.print(_markdown(block))
        self._out.flush()

    def _is_fenced(self) -> bool:
        return sum(line.lstrip().startswith(_FENCES) for line in self._block.splitlines()) % 2 == 1

    @staticmethod
    def _rows(text: str, width: int) -> int:
        """Return the number of rows from the start of ``text`` to the cursor."""
        from rich.cells import cell_len

        rows, column = 1, 0
        for char in text.expandtabs():
            if char == "\n":
                rows, column = rows + 1, 0
                continue
            cells = cell_len(char)
            if column + cells > width:
                rows, column = rows + 1, 0
            column += cells
        return rows


def _markdown(text: str) -> Markdown:
    """Return Markdown that hides nothing: HTML is text, and links show their addresses."""
    from markdown_it import MarkdownIt
    from rich.markdown import Markdown

    rendered = Markdown(text, hyperlinks=False)
    rendered.parsed = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).parse(text)
    return rendered


class ChatView(Observer):
    """Observer that prints turns while they run.

    With ``stream``, the model's text is printed as it arrives. Without it, only the outputs of the turn are printed.
    On a terminal, answers are rendered as Markdown, and a sign of life is shown while a model thinks. The class is
    thread-safe.
    """

    def __init__(self, *, stream: bool) -> None:
        from rich.console import Console

        self.wants_deltas = stream
        #: Cost of the last turn in USD. None: unknown.
        self.cost: float | None = None
        self._lock = threading.RLock()
        self._markdown = MarkdownStream(sys.stdout)
        console = Console(stderr=True)
        self._status = console.status(_THINKING) if console.is_interactive and sys.stderr.isatty() else None
        self._is_thinking = self._is_asking = False
        self._active_chat: Activity | None = None
        self._answer = ""
        self._open_line: TextIO | None = None
        # Index of the call whose arguments are in the open line, and indexes of all calls shown so far.
        self._open_call = -1
        self._shown_calls: set[int] = set()
        # Tool calls whose effect is already printed, so that their result is omitted.
        self._reported_calls: set[Activity] = set()

    def line(self, *parts: Styled | str) -> None:
        """Print a line on stderr below the current output."""
        with self._lock, self._not_thinking():
            self._close_line()
            print_note(*parts)

    @contextlib.contextmanager
    def question(self) -> Iterator[None]:
        """Leave the terminal to a question within the context: show no sign of life."""
        with self._lock:
            self._think(on=False)
            self._close_line()
            self._is_asking = True
        try:
            yield
        finally:
            self._is_asking = False

    def _think(self, *, on: bool) -> None:
        """Start or stop the sign of life."""
        if self._status is not None and on is not self._is_thinking and not (on and self._is_asking):
            self._is_thinking = on
            self._status.start() if on else self._status.stop()

    @contextlib.contextmanager
    def _not_thinking(self) -> Iterator[None]:
        was = self._is_thinking
        self._think(on=False)
        try:
            yield
        finally:
            self._think(on=was)

    def _write_answer(self, text: str) -> None:
        if not text:
            return
        if self._open_line is sys.stderr:
            self._close_line()
        if self._markdown.is_usable and not self._answer.lstrip().startswith(("{", "[")):
            if self._answer.strip():  # White space before the answer is not a block.
                self._markdown.write(visible(text))
                self._open_line = sys.stdout
        else:
            self._write(sys.stdout, visible(text))

    def _write(self, out: TextIO, text: str) -> None:
        out.write(text)
        out.flush()
        self._open_line = None if text.endswith("\n") else out

    def _close_line(self) -> None:
        if self._open_line is not None:
            if self._open_line is sys.stdout and self._markdown.is_open:
                self._markdown.end_block()
                self._open_line = None
            else:
                self._write(self._open_line, "\n")
        self._open_call = -1

    def start_turn(self) -> None:
        """Reset the state at a turn's start."""
        with self._lock:
            self._active_chat, self._answer, self._open_line = None, "", None
            self._open_call = -1
            self._reported_calls.clear()
            self.cost = None

    def end_turn(self, outputs: Sequence[tuple[str, Any]]) -> None:
        """Print the outputs of the turn, as pairs of tag and value, except text that is already printed."""
        with self._lock:
            self._think(on=False)
            self._close_line()
            for tag, output in outputs:
                if tag:
                    self.line((f"  output {tag}: ", _DIM), truncate(_as_text(output), _MAX_RESULT))
                elif not (self._answer and _is_same(output, self._answer)):
                    self._answer = _as_text(output)
                    self._write_answer(self._answer)
                    self._close_line()

    def started(self, activity: Activity) -> None:
        depth = _depth(activity)
        if activity.kind == "tool":
            arguments = activity.attributes.get("arguments", {})
            self.line("  " * (depth + 1), (activity.name, _NAME), f" {_arguments_text(arguments)}".rstrip())
        elif activity.kind == "agent":
            self.line("  " * depth, ("agent ", _DIM), (activity.name, _NAME))
        elif activity.kind == "chat":
            with self._lock:
                if not depth and self._active_chat is None:
                    self._active_chat, self._answer = activity, ""
                    self._shown_calls.clear()
                self._think(on=self._open_line is None)

    def delta(self, activity: Activity, delta: Delta) -> None:
        with self._lock:
            if activity is not self._active_chat:
                return
            self._think(on=False)
            if isinstance(delta, TextDelta):
                self._answer += delta.text
                self._write_answer(delta.text)
            elif isinstance(delta, ToolCallDelta):
                if delta.is_streaming:
                    self._write_arguments(delta)
            elif self._answer or self._shown_calls:
                self._answer = ""
                self._shown_calls.clear()
                self.line(("  The answer was interrupted and is discarded.", _DIM))

    def _write_arguments(self, delta: ToolCallDelta) -> None:
        """Print the arguments of a call while they arrive, in a separate line for each call."""
        if delta.index != self._open_call:
            if delta.index in self._shown_calls:
                return  # The calls alternate. The complete arguments follow with the call.
            self._close_line()
            self._write(sys.stderr, f"  {visible(delta.name)} … ")
            self._open_call = delta.index
            self._shown_calls.add(delta.index)
        self._write(sys.stderr, visible(delta.arguments).replace("\n", " "))

    def ended(self, activity: Activity) -> None:
        if activity.kind == "chat":
            with self._lock:
                self._think(on=False)
        elif activity.kind == "turn" and (cost := activity.attributes.get("cost")) is not None:
            self.cost = (self.cost or 0.0) + cost  # A turn that waits has several attempts.
        if activity.error == CANCELLED:  # The turn was interrupted, or waits for a person.
            return
        if activity.kind == "chat":
            self._end_chat(activity)
        elif activity.kind == "tool":
            self._end_tool(activity)
        elif activity.kind == "command":
            self._end_command(activity)

    def emitted(self, event: PointEvent) -> None:
        attributes = event.attributes
        depth = _depth(event.activity) + 2 if event.activity is not None else 1
        indent = "  " * depth
        if event.kind == "retry":
            text = f"The request is retried in {attributes['pause']:.1f} s: {attributes['error']}"
            self.line(indent, (text, _ERROR))
        elif event.kind == "fallback":
            text = f"Model {attributes['to']} replaces {attributes['model']}: {attributes['error']}"
            self.line(indent, (text, _ERROR))
        elif event.kind == "wait" and attributes["wait_kind"] == SLEEP and attributes["status"] == "open":
            end = dt.datetime.fromtimestamp(attributes["deadline"] / 1000).astimezone()
            self.line(indent, (f"The turn sleeps until {end:%Y-%m-%d %H:%M:%S %Z}", _DIM))
        elif event.kind == "skill" and attributes.get("outcome") == "ok":
            action = f"read {attributes['path']} of" if attributes.get("path") else "loaded"
            if attributes.get("action") in ("activate", "read"):
                if event.activity is not None:
                    self._reported_calls.add(event.activity)
                self.line(
                    indent, (f"{action} skill {attributes['skill']} {attributes.get('digest', '')[:12]}".rstrip(), _DIM)
                )

    def _end_chat(self, activity: Activity) -> None:
        with self._lock:
            is_active = activity is self._active_chat
            if is_active:
                self._active_chat = None
            response: ModelResponse | None = activity.attributes.get("response")
            if response is None or (is_active and self.wants_deltas) or not response.tool_calls:
                return
            # Text next to tool calls is not an output of the turn, so print it here.
            if response.text.strip():
                self.line("  " * (_depth(activity) + 1), ("text: ", _DIM), truncate(response.text, _MAX_RESULT))

    def _end_tool(self, activity: Activity) -> None:
        attributes = activity.attributes
        has_failed = bool(activity.error or attributes.get("is_error"))
        if activity in self._reported_calls and not has_failed:
            return
        content = activity.error or str(attributes.get("content", ""))
        label = ("error: ", _ERROR) if has_failed else ("result: ", _DIM)
        self.line("  " * (_depth(activity) + 2), label, truncate(content, _MAX_RESULT))

    def _end_command(self, activity: Activity) -> None:
        command = activity.attributes.get("command", "")
        command_line = command if isinstance(command, str) else " ".join(command)
        result: CommandResult | None = activity.attributes.get("result")
        if result is None:
            status, seconds = activity.error or "started", activity.duration
        else:
            status, seconds = activity.error or "exit 0", result.duration
        style = _ERROR if activity.error else _DIM
        parts = ("  " * (_depth(activity) + 2), ("$ ", _DIM), truncate(command_line, _MAX_COMMAND), "  ")
        self.line(*parts, (f"{status}, {seconds:.2f} s", style))
        if result is not None and activity.error and result.stderr.strip():
            last = result.stderr.decode("utf-8", "replace").strip().splitlines()[-1]
            self.line("  " * (_depth(activity) + 3), (truncate(last, _MAX_RESULT), _ERROR))


class LogToView(logging.Handler):
    """Log handler that prints warnings of the package. It skips messages of turns, which the session prints."""

    def __init__(self, view: ChatView) -> None:
        super().__init__(logging.WARNING)
        self._view = view

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != "flink_skills.turn":
            style = _ERROR if record.levelno >= logging.ERROR else "yellow"
            self._view.line((record.getMessage(), style))


def truncate(text: str, max_length: int) -> str:
    """Return ``text`` as one line of at max_length ``max_length`` characters. Whitespace is collapsed.

    >>> truncate("one\\n two three", 8)
    'one two…'
    """
    line = " ".join(text[: max_length * 8].split())
    return line if len(line) <= max_length and len(text) <= max_length * 8 else line[: max_length - 1].rstrip() + "…"


def _arguments_text(arguments: Mapping[str, Any] | str) -> str:
    if isinstance(arguments, str):
        return truncate(arguments, _MAX_ARGUMENT)
    values = {name: json.dumps(value, ensure_ascii=False) for name, value in arguments.items()}
    return " ".join(f"{name}={truncate(value, _MAX_ARGUMENT)}" for name, value in values.items())


def _depth(activity: Activity) -> int:
    """Return the number of agent tools that enclose the activity."""
    depth = 0
    link = activity.parent
    while link is not None:
        depth += link.kind == "agent"
        link = link.parent
    return depth


def _as_text(output: Any) -> str:
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, indent=2, default=str)


def _is_same(output: Any, printed: str) -> bool:
    if isinstance(output, str):
        return output.strip() == printed.strip()
    try:
        return bool(json.loads(printed) == output)
    except (ValueError, RecursionError):
        return False
