"""Questions of turns that wait, asked in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import json
import os
import sys
import termios
from collections.abc import Callable, Mapping
from typing import Any

from flink_skills.agents.rows.wait_record import WAITS_TAG
from flink_skills.agents.state.waits import INPUT_ENDED
from flink_skills.agents.turn.local_waits import Ask
from flink_skills.agents.turn.turn_record import TurnOutcome
from flink_skills.cli.terminal_output import Styled, print_error, print_note
from flink_skills.errors import counted

ReadLine = Callable[[str], str | None]
_CANCELLED = {"cancel": True}
_MAX_LINE = 1 << 16
_YES, _NO = ("y", "yes"), ("n", "no")


def question_lines(question: Mapping[str, Any]) -> list[tuple[Styled | str, ...]]:
    """Return the lines that show the record of a question."""
    is_approval = question["kind"] == "approval"
    lines: list[tuple[Styled | str, ...]] = []
    if question.get("problem"):
        lines.append(((str(question["problem"]), "yellow"),))
    title = question["question"] or question["name"]
    lines.append((("? ", "bold"), (str(title), "bold"), f"  ({_about(question)})"))
    if is_approval:
        lines.append((f"  arguments: {json.dumps(question['arguments'], ensure_ascii=False)}",))
    payload = question["payload"].get("payload") if is_approval else question["payload"]
    if payload is not None:
        lines.append((f"  payload: {json.dumps(payload, ensure_ascii=False)}",))
    return lines


def _about(question: Mapping[str, Any]) -> str:
    key = json.dumps(question["key"], ensure_ascii=False)
    what = f"call of {question['tool']}" if question["kind"] == "approval" else f"wait {question['name']}"
    return f"agent {question['agent']}, key {key}, {what}"


def answer_of(line: str, question: Mapping[str, Any]) -> Any:
    """Return the answer that a person wrote.

    Raises:
        ValueError: The line is not a valid decision about a call.

    Example:
        >>> answer_of("n too late", {"kind": "approval"})["reason"]
        'too late'
    """
    if question["kind"] != "approval":
        try:
            return {"answer": json.loads(line), "by": _person()}
        except (ValueError, RecursionError):
            return {"answer": line, "by": _person()}
    word, _, reason = line.partition(" ")
    if word.lower() in _YES and not reason:
        return {"approved": True, "by": _person()}
    if word.lower() in _NO:
        return {"approved": False, "reason": reason.strip() or None, "by": _person()}
    if line.startswith("{"):
        try:
            arguments = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the arguments are not JSON: {error}") from None
        return {"approved": True, "arguments": arguments, "by": _person()}
    raise ValueError("answer y, n, n REASON, or other arguments as a JSON object")


def _person() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # The user has no name on this host.
        return "terminal"


def ask_person(question: Mapping[str, Any], read_line: ReadLine) -> Any:
    """Return the answer of a person. The end of the input cancels the question.

    Args:
        question: The record of the question, which the caller has shown.
        read_line: Returns a line for a prompt, and None at the end of the input.
    """
    while (answer := _usable_answer(read_line(_prompt(question)), question)) is None:
        pass
    return answer


def _prompt(question: Mapping[str, Any]) -> str:
    return "y, n REASON, or arguments> " if question["kind"] == "approval" else "answer> "


def _usable_answer(line: str | None, question: Mapping[str, Any]) -> Any:
    """Return the answer in a line. Return None after a message if the line is not valid."""
    if line is None:
        print_error("the input ended, so the question is cancelled")
        return _CANCELLED
    try:
        return answer_of(line.strip(), question)
    except ValueError as error:
        print_error(str(error))
        return None


def terminal_ask(
    show: Callable[..., None] = print_note,
    *,
    alone: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> Ask | None:
    """Return a function that asks in the terminal, or None if the input is not a terminal.

    Characters that were typed before a question are discarded: they do not answer it.

    Args:
        show: Prints a line.
        alone: Returns a context in which nothing else writes to the terminal.
    """
    if not sys.stdin.isatty():
        return None
    turn = asyncio.Lock()

    async def ask(question: dict[str, Any]) -> Any:
        async with turn:
            with alone():
                return await answer_to(question)

    async def answer_to(question: dict[str, Any]) -> Any:
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        for line in question_lines(question):
            show(*line)
        try:
            while (answer := _usable_answer(await _typed_line(_prompt(question)), question)) is None:
                pass
        except asyncio.CancelledError:
            sys.stderr.write("\n")
            show(("  the question ended without an answer", "dim"))
            raise
        return answer

    return ask


async def _typed_line(prompt: str) -> str | None:
    """Return the next line of the terminal, or None at its end."""
    sys.stderr.write(prompt)
    sys.stderr.flush()
    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()
    typed: asyncio.Future[bytes] = loop.create_future()
    # A thread in readline() cannot be interrupted: it would consume the answer to the next question.
    loop.add_reader(terminal, _read_into, typed, terminal)
    try:
        line = await typed
    finally:
        loop.remove_reader(terminal)
    if line:
        return line.decode(sys.stdin.encoding, "replace")
    sys.stderr.write("\n")
    return None


def _read_into(typed: asyncio.Future[bytes], terminal: int) -> None:
    if typed.done():
        return
    try:
        typed.set_result(os.read(terminal, _MAX_LINE))
    except OSError:  # The terminal was closed, which is the end of its input.
        typed.set_result(b"")


def count_unanswered(outcome: TurnOutcome) -> int:
    """Return the number of questions that ended with the input."""
    return sum(tag == WAITS_TAG and record["status"] == INPUT_ENDED for tag, record in outcome.outputs)


def report_unanswered(count: int) -> None:
    """Print how to answer the questions that ended with the input, if there are any."""
    if count:
        print_error(
            f"{counted(count, 'question')} received no answer, because the input is not a terminal. "
            "Run the command in a terminal to answer."
        )
