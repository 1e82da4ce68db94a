"""Questions of a server during a call of its tool, and the call while the turn is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Iterator
from typing import Any

from flink_skills.tools.mcp.message_limits import GIVEN_UP

_log = logging.getLogger("flink_skills.mcp")

# Longer, the call is made again. Servers and proxies end silent requests.
_PAUSE_SECONDS = 300.0
_MAX_PAUSED = 256


class Questions(asyncio.Queue[tuple[Any, "asyncio.Future[Any]"]]):
    """Questions of a server during the call with the id ``call``, each with the future of its answer."""

    def __init__(self, call: str) -> None:
        super().__init__()
        self.call = call


_QUESTIONS: contextvars.ContextVar[Questions | None] = contextvars.ContextVar("questions", default=None)


class OpenQuestions:
    """Gives each question of the server ``name`` to the call that it belongs to."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: list[Questions | None] = []
        #: Calls that were given up, which the server may still ask about.
        self.gave_up: set[str] = set()

    @contextlib.contextmanager
    def asked_by(self, questions: Questions | None) -> Iterator[None]:
        """Begin a request. Tasks that are made meanwhile belong to it."""
        self._calls.append(questions)
        before = _QUESTIONS.set(questions)
        try:
            yield
        finally:
            _QUESTIONS.reset(before)

    def end(self, questions: Questions | None, is_answered: bool) -> None:
        """End a request."""
        self._calls.remove(questions)
        call = "" if questions is None else questions.call
        if is_answered:
            self.gave_up.discard(call)
        else:
            self.gave_up.add(call)

    async def elicit(self, context: Any, params: Any) -> Any:
        """Return a person's answer to a question of the server.

        It belongs to the call in whose response it arrives. On the other ways a server sends it without naming a call:
        then it belongs to the only one that there is, unless others were given up. No question is shown to people of
        another key.
        """
        from mcp.types import ElicitResult

        questions = _QUESTIONS.get()
        if questions is None and len(self._calls) == 1 and self._calls[0] is not None:
            # A call that waited may be made again.
            questions = self._calls[0] if self.gave_up <= {self._calls[0].call} else None
        if params.mode != "form":
            why = "a job has no browser that opens a URL"
        elif questions is None or questions not in self._calls:
            why = (
                "the server does not name the call of the question. Use streamable HTTP, or set "
                "skills.tool.max-concurrent of its tools to 1"
            )
        else:
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            questions.put_nowait((params, answer))
            return await answer
        _log.warning("a question of the MCP server %s is declined: %s", self._name, why)
        return ElicitResult(action="decline")


class OpenCall:
    """A call that a server is working on, and the questions that it has asked."""

    def __init__(self, questions: Questions, calling: asyncio.Future[Any]) -> None:
        self.questions = questions
        self.calling = calling
        self.asked: list[tuple[Any, asyncio.Future[Any]]] = []

    @property
    def is_waiting(self) -> bool:
        """True if a question has no answer yet, and the server waits for it."""
        return bool(self.asked) and not self.asked[-1][1].done() and not self.calling.done()

    @property
    def is_lost(self) -> bool:
        """True if the server went away after it had asked."""
        return bool(self.asked) and self.calling.done() and bool(getattr(self.calling.result(), "retryable", False))

    async def next_question(self) -> bool:
        """Return True if the server has asked, False if the call has ended."""
        question = asyncio.ensure_future(self.questions.get())
        try:
            await asyncio.wait([self.calling, question], return_when=asyncio.FIRST_COMPLETED)
            if question.done():
                self.asked.append(question.result())
            return question.done()
        finally:
            question.cancel()

    def give_up(self) -> None:
        """End the call without an answer to its question."""
        from mcp.types import INVALID_REQUEST, ErrorData

        self.calling.cancel()
        for _, answer in self.asked:
            if not answer.done():
                answer.set_result(ErrorData(code=INVALID_REQUEST, message=GIVEN_UP))


class PausedCalls(dict[str, OpenCall]):
    """Calls whose turns are stopped. They are given up after 300 s."""

    def add(self, key: str, call: OpenCall) -> None:
        """Hold a call until its turn continues."""
        if len(self) >= _MAX_PAUSED:
            call.give_up()
            return
        self[key] = call

        def end() -> None:
            if self.get(key) is call:
                del self[key]
                call.give_up()

        asyncio.get_running_loop().call_later(_PAUSE_SECONDS, end)

    def give_up(self) -> None:
        """End all of them."""
        for call in self.values():
            call.give_up()
        self.clear()
