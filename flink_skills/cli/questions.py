"""Questions of turns that wait, asked in the terminal."""

from __future__ import annotations

import asyncio
import getpass
import json
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from flink_skills.agents.turn.local_waits import Ask
from flink_skills.cli.output import Styled, print_error, print_line

__all__ = ["ReadLine", "answer_of", "ask_person", "question_lines", "terminal_ask"]

ReadLine = Callable[[str], str | None]
_CANCELLED = {"cancel": True}
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
    prompt = "y, n REASON, or arguments> " if question["kind"] == "approval" else "answer> "
    while True:
        line = read_line(prompt)
        if line is None:
            print_error("the input ended, so the question is cancelled")
            return _CANCELLED
        try:
            return answer_of(line.strip(), question)
        except ValueError as error:
            print_error(str(error))


def terminal_ask() -> Ask | None:
    """Return a function that asks in the terminal, or None if the input is not a terminal."""
    if not sys.stdin.isatty():
        return None
    turn = asyncio.Lock()

    async def ask(question: dict[str, Any]) -> Any:
        async with turn:
            loop = asyncio.get_running_loop()
            answer: asyncio.Future[Any] = loop.create_future()

            def read() -> None:
                for line in question_lines(question):
                    print_line(*line, stream=sys.stderr)
                loop.call_soon_threadsafe(_resolve, answer, ask_person(question, _read_line))

            # A daemon: the end of the process does not wait for a line.
            threading.Thread(target=read, name="question", daemon=True).start()
            return await answer

    return ask


def _resolve(answer: asyncio.Future[Any], value: Any) -> None:
    if not answer.done():
        answer.set_result(value)


def _read_line(prompt: str) -> str | None:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return sys.stdin.readline() or None
