"""A connection to an MCP server that is made again when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from flink_skills.endpoint import tls_fix
from flink_skills.errors import ConfigError, ExecutionError
from flink_skills.tools.commands.hidden import HiddenValues
from flink_skills.tools.mcp.parameters import ConnectionParams, StdioConnectionParams
from flink_skills.tools.mcp.programs import StderrLogger
from flink_skills.tools.mcp.server_messages import AddressCheck, OpenQuestions, PausedCalls, Questions
from flink_skills.tools.mcp.transports import (
    RETRIED_STATUSES,
    McpSignInError,
    TransportReports,
    describe_error,
    first_of,
    is_broken,
    is_closed,
    is_end,
    is_lost,
    reports_changes,
    transport,
)

if TYPE_CHECKING:
    from flink_skills.tools.commands.runner import ShellRunner

_log = logging.getLogger("flink_skills.mcp")
T = TypeVar("T")

# The variable or file of a header's value, without the default.
_REFERENCE = re.compile(r"\$\{(?:env|file):([^{}:]+)")
_FIRST_PAUSE = 0.5
_MAX_PAUSE = 30.0
# A connection that lasts so long was a good one: the next loss begins with short pauses again.
_GOOD_SECONDS = 60.0
_CLOSE_SECONDS = 10.0
# To connect takes several answers: of the handshake in one or two forms, and of the first list of tools.
_ANSWERS = 3
# Between two looks at a server that says again and again that its tools have changed.
_CHANGE_PAUSE = 1.0
_MAX_CHANGE_PAUSE = 30.0
_MAX_LISTEN_PAUSE = 300.0
# A server that takes one request at a time answers no look while it works; after so much silence it is lost.
_SILENCE = 300.0
# Time for the end of an abandoned request.
_ABANDON_SECONDS = 1.0


class McpLostError(ExecutionError):
    """The server is not there, or went away during a request. If it was ``asked``, whether it did what was asked is not
    known."""

    retryable = True

    def __init__(self, message: str, *, asked: bool) -> None:
        super().__init__(message)
        self.asked = asked


class McpStartError(ExecutionError):
    """A required server cannot be reached when its agent is opened. ``retryable``: it may be reached later."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable


class McpAnswerError(ExecutionError):
    """The server answered what is no answer to the request. The connection is as good as before."""


class McpConnection:
    """One for each server in a worker, used by all turns. Belongs to one event loop.

    A task of its own opens and closes each connection, because what the package ``mcp`` opens must be closed by the
    task that opened it. ``on_open`` is called with the client after each connecting, every ``interval``
    seconds, and when the server says that its tools have changed: an error of it is an end of the connection.
    ``on_omitted`` gets the name of each tool that is none, with the reason.
    ``on_change`` is called when the server is reached or lost. What is ``hidden`` is in no log and no message.
    ``check`` receives addresses before they are connected to. ``watched``: the list whose changes the server reports.
    """

    def __init__(
        self,
        name: str,
        params: ConnectionParams,
        *,
        shell: ShellRunner | None,
        on_open: Callable[[Any], Awaitable[None]],
        interval: float,
        answer_within: float,
        on_omitted: Callable[[str, str], None],
        on_change: Callable[[], None],
        check: AddressCheck | None = None,
        watched: Literal["", "tool", "resource"] = "tool",
    ) -> None:
        self.name = name
        self.reconnects = 0
        #: Whether the server has been reached at least one time.
        self.was_reached = False
        self.hidden = HiddenValues()
        self._params = params
        self._shell = shell
        self._on_open = on_open
        self._interval = interval
        self._on_change = on_change
        self._on_omitted = on_omitted
        self._check = check
        self._watched = watched
        self._client: Any = None
        self._up = asyncio.Event()
        self._lost = asyncio.Event()
        self._changed = asyncio.Event()
        self._tried = asyncio.Event()
        self._life: asyncio.Task[None] | None = None
        self._was_up = False
        self._problem = ""
        self._reason = ""
        self._retryable = True
        self._status: tuple[int, str] | None = None
        self._stderr = StderrLogger(_log, name, self._hide)
        self._down_since = 0.0
        self._heard = 0.0
        #: Seconds that a question of the server waits for its answer.
        self.answer_within = answer_within
        self._asking = 0
        #: Calls of turns that are stopped.
        self.paused = PausedCalls()
        self._open = OpenQuestions(name)
        # Servers of before 2026 may answer nothing to the newer handshake.
        self._mode = "auto"

    @property
    def connected(self) -> bool:
        return self._client is not None

    def start_error(self) -> McpStartError:
        """The error of a required server whose first attempt failed. Its message has the cause."""
        return McpStartError(
            f"the MCP server {self.name!r} ({self._params.shown}) cannot be started: {self.problem}. Start it or "
            "correct its declaration; with 'required' set to false the agent opens without its tools",
            retryable=self._retryable,
        )

    @property
    def problem(self) -> str:
        """The last problem, with the status of the server and the last lines that a program wrote to stderr."""
        problem = self._problem or "the server did not answer"
        if self._status is not None and str(self._status[0]) not in problem:
            problem += f" (HTTP {self._status[0]} {self._status[1]})"
        if self._status is not None and self._status[0] in (401, 403):
            variables = ", ".join(_REFERENCE.findall(" ".join(getattr(self._params, "headers", {}).values())))
            has_auth = getattr(self._params, "auth", None) is not None
            problem += (
                "; the server accepts the token no longer or for other scopes: check the client and the scopes in auth"
                if has_auth
                else f"; the server does not accept the token in headers: check {variables}"
                if variables
                else "; give it a token in headers, or client credentials in auth, by reference"
            )
        if fix := tls_fix(getattr(self._params, "url", ""), problem):
            problem += f"; {fix}"
        return f"{problem}; its stderr ends with: {self._stderr.last}" if self._stderr.last else problem

    async def open(self, patience: float | None) -> None:
        """Begin to connect, and wait at most ``patience`` seconds for how the first attempt ends.

        None waits for its end, however long ``timeout`` makes that. The first attempt at a server that does not answer
        the newer handshake includes one with the older handshake. Nothing is raised for a server that is not there: it
        is tried again until :meth:`close`.
        """
        if self._life is None:
            self._down_since = asyncio.get_running_loop().time()
            self._life = asyncio.create_task(self._live())
        try:
            await self._first(patience, self._tried)
        except BaseException:
            await self.close()
            raise

    async def ask(self, request: Callable[[Any], Awaitable[T]], questions: Questions | None = None) -> T:
        """Send ``request``, which gets the client, and return the response. ``questions`` receives the questions in it.

        Raises :class:`McpLostError` if the connection is missing for longer than the time for connecting, or breaks
        during the request; :class:`McpAnswerError` for an invalid response; and the client's ``MCPError`` for an
        error that the server returns.
        """
        from mcp.shared.exceptions import MCPError

        client = await self._there()
        lost = asyncio.ensure_future(self._lost.wait())
        with self._open.asked_by(questions):
            asking = asyncio.ensure_future(request(client))
        self._asking += 1
        unanswered = False
        try:
            await asyncio.wait([asking, lost], return_when=asyncio.FIRST_COMPLETED)
            # What the package cancels is not the caller.
            if asking.done() and not asking.cancelled():
                result = asking.result()
                self._hear()
                return result
            problem = self._problem
        except MCPError as error:
            problem = self._words(error)
            if is_closed(error):
                # The transport can have a better reason.
                problem = problem if self._client is client else self._problem
                self._lose(client, problem)
            elif is_broken(error):
                # Of this request alone, or of the connection: looking at it tells.
                unanswered = True
                self.changed()
            else:
                self._hear()
                raise
        except Exception as error:
            problem = self._words(error)
            if not is_lost(error):
                raise McpAnswerError(f"the MCP server {self.name} gave no usable answer: {problem}") from None
            self._lose(client, problem)
        finally:
            self._asking -= 1
            self._open.end(questions, asking.done())
            lost.cancel()
            await _abandon(asking)
        if unanswered:
            raise McpLostError(f"the MCP server {self.name} did not answer the request ({problem})", asked=True)
        raise McpLostError(f"the MCP server {self.name} went away during the request ({problem})", asked=True)

    async def _there(self) -> Any:
        """The client, as soon as there is a connection."""
        now = asyncio.get_running_loop().time()
        # Of a server that is down for longer, nobody waits to hear that again.
        patience = self._down_since + self._params.timeout - now
        if self._client is None and patience > 0:
            await self._first(patience, self._up)
        if self._client is None:
            why = f": {self._problem}" if self._problem else ""
            message = f"the MCP server {self.name} ({self._params.shown}) is not there{why}"
            raise McpLostError(message, asked=False)
        return self._client

    def changed(self) -> None:
        """Call ``on_open`` soon: the server says that it has other tools."""
        self._changed.set()

    async def close(self) -> None:
        """End the connection, and a program with it. May be called again."""
        life, self._life = self._life, None
        if life is None:
            return
        self.paused.give_up()
        life.cancel()
        # Ending a connection has a limit of its own.
        await asyncio.gather(life, return_exceptions=True)
        self._tried.clear()

    async def _live(self) -> None:
        loop = asyncio.get_running_loop()
        pause = _FIRST_PAUSE
        was_logged = False
        while True:
            begun = loop.time()
            mode = self._mode
            was_up = await self._one()
            if was_up or self._mode in (mode, "auto"):
                self._tried.set()
            if was_up and loop.time() - begun > _GOOD_SECONDS:
                pause = _FIRST_PAUSE
            # Once for each outage and not once for each attempt to end it.
            level = logging.DEBUG if was_logged and not was_up else logging.WARNING
            was_logged = True
            lost = "the connection to the MCP server %s (%s) is lost: %s; trying again in %.1f s"
            unreachable = "the MCP server %s (%s) cannot be reached: %s; trying again in %.1f s"
            _log.log(
                level,
                lost if was_up else unreachable,
                self.name,
                self._params.shown,
                self._problem if was_up else self.problem,
                pause,
            )
            # Jitter, so that workers which lost a server together do not come back together.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, _MAX_PAUSE)

    async def _one(self) -> bool:
        """One connection from its beginning to its end; whether it was ever up."""
        self._was_up = False
        self._lost.clear()
        up = asyncio.ensure_future(self._up.wait())
        link = asyncio.create_task(self._link())
        try:
            await asyncio.wait([link, up], timeout=_ANSWERS * self._params.timeout, return_when=asyncio.FIRST_COMPLETED)
            if not self._was_up and not link.done():
                self._problem = f"the server did not answer within {_ANSWERS * self._params.timeout:g} s"
                self._mode = "legacy" if self._mode == "auto" else "auto"
                return False
            await asyncio.wait([link])
            return self._was_up
        finally:
            up.cancel()
            await self._end(link)
            self._down()

    async def _end(self, link: asyncio.Task[None]) -> None:
        ended = link.done()
        link.cancel()
        done, _ = await asyncio.wait([link], timeout=_CLOSE_SECONDS)
        if not done:
            _log.warning("a connection to the MCP server %s did not close in %g s", self.name, _CLOSE_SECONDS)
        elif not link.cancelled():
            error = link.exception()
            if error is not None and ended:
                self._note_end(error)

    def _note_end(self, error: BaseException) -> None:
        """Store the reason why a connection ended, unless the transport has reported a better one."""
        status = self._status[0] if self._status is not None else 500
        first = first_of(error)
        local = isinstance(first, ConfigError) or isinstance(self._params, StdioConnectionParams)
        self._retryable = not local and (status >= 500 or status in RETRIED_STATUSES)
        if isinstance(first, McpSignInError):
            # The status is that of the request without a token.
            self._retryable, self._status = first.retryable, None
        if not (self._reason and is_end(error)):
            self._problem = self._words(error)

    async def _link(self) -> None:
        from mcp import Client

        async def on_message(message: Any) -> None:
            if type(message).__name__ == f"{self._watched.title()}ListChangedNotification":
                self.changed()

        self._open.gave_up.clear()
        self._problem = "the server closed the connection"
        self._reason = ""
        self._status = None
        self._stderr = StderrLogger(_log, self.name, self._hide)
        reports = TransportReports(self.hidden, self._stderr, self._ended, self._refused, self._on_omitted, self._check)
        streams = transport(self._params, self.name, self._shell, reports)
        async with Client(
            streams, message_handler=on_message, cache=None, mode=self._mode, elicitation_callback=self._open.elicit
        ) as client:
            # The package validates results in the event loop, with patterns and references of the server, which may
            # take hours. Nothing here relies on the server's own schema.
            session: Any = client.session
            session.validate_tool_result = _accept_result
            # Before the list of tools: a change that the server reports afterwards is not in it.
            self._changed.clear()
            await self._on_open(client)
            self._come_up(client)
            listening = asyncio.create_task(self._listen(client))
            try:
                await self._look_after(client)
            except Exception as error:
                self._problem = self._words(error)
                raise
            finally:
                # To close a broken connection may take a while, and nobody shall wait for that.
                self._lose(client, self._problem)
                await _abandon(listening)

    async def _look_after(self, client: Any) -> None:
        """Look at the server from time to time, until it is lost."""
        pause = _CHANGE_PAUSE
        while not self._lost.is_set():
            was_told = await self._first(self._interval, self._lost, self._changed)
            if self._lost.is_set():
                return
            self._changed.clear()
            await self._look(client)
            if was_told:
                await self._first(pause, self._lost)
                pause = min(2 * pause, _MAX_CHANGE_PAUSE)
            else:
                pause = _CHANGE_PAUSE

    async def _look(self, client: Any) -> None:
        from mcp.shared.exceptions import MCPError

        begun = asyncio.get_running_loop().time()
        try:
            await asyncio.wait_for(self._on_open(client), self._params.timeout)
        except (asyncio.TimeoutError, TimeoutError):
            busy = self._asking and begun - self._heard < _SILENCE
            if not busy:
                raise ConnectionError(f"the server did not list its tools within {self._params.timeout:g} s") from None
        except MCPError as error:
            if is_closed(error) or is_broken(error):
                raise
            # It is there, and its tools stay what they were.
            _log.warning("the MCP server %s refuses to list its tools: %s", self.name, self._words(error))

    async def _listen(self, client: Any) -> None:
        """Hear of changes from servers that tell them only to those who ask for it."""
        from mcp.client.subscriptions import ListenNotSupportedError
        from mcp.shared.exceptions import MCPError

        if not reports_changes(client, self._watched):
            return
        pause = _CHANGE_PAUSE
        while True:
            try:
                async with client.listen(**{f"{self._watched}s_list_changed": True}) as subscription:
                    async for _ in subscription:
                        self.changed()
            except (ListenNotSupportedError, MCPError):
                return  # such a server tells of changes by itself, or not at all
            except Exception as error:
                _log.debug("the MCP server %s tells of no changes: %s", self.name, self._words(error))
            # What is lost may be more than this, and changes meanwhile are not reported.
            self.changed()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_LISTEN_PAUSE)

    @staticmethod
    async def _first(seconds: float | None, *events: asyncio.Event) -> bool:
        """Wait for one of ``events``. Return True if one was set within ``seconds``."""
        # wait_for can lose the cancellation of the caller.
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return bool(done)
        finally:
            for wait in waits:
                wait.cancel()

    def _come_up(self, client: Any) -> None:
        self._client = client
        self._was_up = self.was_reached = True
        self._hear()
        if self._tried.is_set():
            self.reconnects += 1
            _log.info("the MCP server %s is connected again", self.name)
        self._tried.set()
        self._up.set()
        self._on_change()

    def _ended(self, problem: str) -> None:
        """The transport says that its other end has gone."""
        self._reason = self._problem = problem
        if self._client is not None:
            self._lose(self._client, problem)

    def _refused(self, status: int, text: str) -> None:
        # Some servers of events have other addresses for messages.
        self._status = (status, text) if status >= 400 else None

    def _hide(self, text: str) -> str:
        return self.hidden.in_text(self._shell.hidden.in_text(text) if self._shell is not None else text)

    def _lose(self, client: Any, problem: str) -> None:
        """The end of the connection that ``client`` is of; nothing where that is not the present one."""
        if self._client is client:
            self._problem = problem
            self._down()

    def _down(self) -> None:
        self._lost.set()
        if self._client is not None:
            self._client = None
            self._up.clear()
            self._down_since = asyncio.get_running_loop().time()
            self._on_change()

    def _hear(self) -> None:
        self._heard = asyncio.get_running_loop().time()

    def _words(self, error: BaseException) -> str:
        return self.hidden.in_text(describe_error(error))


async def _accept_result(name: str, result: Any) -> None:
    """Replace the validation of results by the package ``mcp``."""


async def _abandon(task: asyncio.Future[Any]) -> None:
    """Cancel a task, and wait a moment for its end."""
    task.add_done_callback(_retrieve)
    if not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_ABANDON_SECONDS)


def _retrieve(task: asyncio.Future[Any]) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        task.exception()
