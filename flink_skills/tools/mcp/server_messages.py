"""Messages of an MCP server: limits and checks before the package ``mcp`` reads them, and questions during a call."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2


#: Receives a URL and the addresses of its host before a connection. It raises an error to prevent it.
AddressCheck = Callable[[str, list[str]], None]

#: Bytes. A file of a skill has up to 16 MiB, which are 22 MiB in base64.
MAX_ANSWER = 24 << 20
#: Objects and lists of one message: each takes 50 times the memory of its text.
MAX_VALUES = 500_000
# Line ends are of one or two bytes. A lone one at the end of a piece is completed by the next piece.
_EVENT_END = re.compile(rb"(?:\r\n|\r(?!\n)|\n){2}")
_MAX_END_LENGTH = 4
TOO_MANY_VALUES = f"a message has more than {MAX_VALUES:,} objects and lists"

#: Each of them holds a task of the worker. Servers that read the answers have a few.
MAX_UNANSWERED = 256
#: The message of an error that is not sent: the call that it belongs to is made again.
GIVEN_UP = "the call has been given up"


def values_in(data: bytes) -> int:
    """Return an upper bound of the objects and lists in JSON.

    >>> values_in(b'[{}, "[", 1]')
    3
    """
    return data.count(b"{") + data.count(b"[")


def limited_client(
    headers: Mapping[str, str] | None = None,
    timeout: httpx2.Timeout | None = None,
    auth: Any = None,
    *,
    url: str = "",
    on_status: Callable[[int, str], None] | None = None,
    check: AddressCheck | None = None,
) -> httpx2.AsyncClient:
    """A client for the transports of the package ``mcp``.

    To read an answer that is longer than 24 MiB, that has more than 500,000 objects and lists, or that is compressed
    although nothing of the kind was asked for, raises ``httpx2.StreamError``. Streams of events have no end: these are
    the limits of each event, with ``httpx2.SSEError``. ``on_status`` receives the number and the text of each status
    of ``url``, and not those of authorization servers. With ``check``, connections go to the addresses that it
    received, and not through proxies of the environment.
    """
    import httpx2

    async def limit(response: httpx2.Response) -> None:
        if on_status is not None and str(response.request.url) == url:
            on_status(response.status_code, response.reason_phrase)
        encoding = response.headers.get("content-encoding", "identity")
        if encoding != "identity":
            response.stream = _Limited(response.stream, 0, f"the answer is compressed ({encoding[:20]})")
        elif response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = _LimitedEvents(
                response.stream, MAX_ANSWER, f"an event is longer than {MAX_ANSWER:,} bytes"
            )
        else:
            response.stream = _Limited(response.stream, MAX_ANSWER, f"the answer is longer than {MAX_ANSWER:,} bytes")

    class _Limited(httpx2.AsyncByteStream):
        _error: type[Exception] = httpx2.StreamError

        def __init__(self, stream: Any, most: int, problem: str) -> None:
            self._stream, self._most, self._problem = stream, most, problem

            self._size = self._values = 0

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for chunk in self._stream:
                self._count(chunk)
                yield chunk

        def _count(self, chunk: bytes) -> None:
            self._size += len(chunk)
            if self._size > self._most:
                raise self._error(self._problem)
            self._values += values_in(chunk)
            if self._values > MAX_VALUES:
                raise self._error(TOO_MANY_VALUES)

        async def aclose(self) -> None:
            await self._stream.aclose()

    class _LimitedEvents(_Limited):
        _error = httpx2.SSEError  # the transports report the text of this one only
        _before = b""

        def _count(self, chunk: bytes) -> None:
            text = self._before + chunk
            begin = len(self._before)
            for end in _EVENT_END.finditer(text):
                if end.end() > begin:
                    super()._count(text[begin : end.end()])
                    self._size = self._values = 0
                    begin = end.end()
            super()._count(text[begin:])
            self._before = text[1 - _MAX_END_LENGTH :]

    return httpx2.AsyncClient(
        headers={**(headers or {}), "Accept-Encoding": "identity"},
        timeout=timeout,
        auth=auth,
        event_hooks={"response": [limit]},
        transport=None if check is None else _checked_transport(check),
    )


def _checked_transport(check: AddressCheck) -> httpx2.AsyncHTTPTransport:
    import httpx2

    class Checked(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            url, host = request.url, request.url.raw_host.decode("ascii")
            try:
                found = await asyncio.get_running_loop().getaddrinfo(host, url.port, type=socket.SOCK_STREAM)
            except OSError as error:
                raise httpx2.ConnectError(f"the host {host} was not found ({error})") from None
            addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))
            check(str(url), addresses)
            # The certificate is for the name.
            extensions = {**request.extensions, "sni_hostname": host}
            for position, address in enumerate(addresses, 1):
                there = url.copy_with(host=address)
                pinned = httpx2.Request(
                    request.method, there, headers=request.headers, stream=request.stream, extensions=extensions
                )
                try:
                    return await super().handle_async_request(pinned)
                except (httpx2.ConnectError, httpx2.ConnectTimeout):
                    if position == len(addresses):
                        raise
            raise AssertionError("a host has an address")

    return Checked()


@asynccontextmanager
async def checked_messages(
    streams: Any, on_end: Callable[[str], None], on_omitted: Callable[[str, str], None]
) -> AsyncIterator[Any]:
    """Enter ``streams`` of a transport, end them after 256 requests whose answers the server did not read, and omit
    tools that the package ``mcp`` refuses: it would refuse the list with them.

    Args:
        streams: A context manager with the read and the write stream.
        on_end: Receives the reason.
        on_omitted: Receives the name of a tool, and the reason.

    >>> async with checked_messages(streams, on_end, on_omitted) as (read, write): ...
    """
    async with streams as (read, write):
        shared = _Shared(on_end, on_omitted)
        yield _Requests(read, shared), _Answers(write, shared)


class _Shared:
    def __init__(self, on_end: Callable[[str], None], on_omitted: Callable[[str, str], None]) -> None:
        self.on_end, self.on_omitted = on_end, on_omitted
        self.unanswered = 0
        self.version = ""
        # Requests for lists of tools, and the version that they state.
        self.lists: dict[Any, str] = {}

    def read_answer(self, message: Any) -> None:
        result = message.result
        if message.id in self.lists:
            _keep_sound(result, self.lists.pop(message.id) or self.version, self.on_omitted)
        elif isinstance(result.get("protocolVersion"), str):
            self.version = result["protocolVersion"]


def _keep_sound(result: dict[str, Any], stated: str, on_omitted: Callable[[str, str], None]) -> None:
    """Remove invalid tools from a list."""
    from mcp.shared.inbound import find_invalid_x_mcp_header
    from mcp.types import Tool
    from mcp_types.methods import SERVER_RESULTS, validate_server_result
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS
    from pydantic import ValidationError

    tools = result.get("tools")
    if not isinstance(tools, list):
        return
    version = stated if ("tools/list", stated) in SERVER_RESULTS else "2025-11-25"
    kept = []
    others = {key: value for key, value in result.items() if key not in ("tools", "nextCursor")}
    try:
        validate_server_result("tools/list", version, {**others, "tools": []})
    except ValidationError:
        return  # the package reports it
    for tool in tools:
        try:
            validate_server_result("tools/list", version, {**others, "tools": [tool]})
            Tool.model_validate(tool, by_name=False)
            reason = find_invalid_x_mcp_header(tool["inputSchema"]) if version in MODERN_PROTOCOL_VERSIONS else None
            if reason is None:
                kept.append(tool)
                continue
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)[0]
            where = [str(part) for part in found["loc"]]
            at = where.index("tools") + 2 if "tools" in where else 0
            reason = f"{'.'.join(where[at:]) or 'the tool'}: {found['msg']}"
        name = tool.get("name") if isinstance(tool, dict) else None
        on_omitted(str(name)[:80] if isinstance(name, str) else "", reason[:300])
    result["tools"] = kept


class _Stream:
    """Stream of a transport that shares what is known of the connection."""

    def __init__(self, stream: Any, shared: _Shared) -> None:
        self._stream = stream
        self._shared = shared

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> Any:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)


class _Requests(_Stream):
    async def receive(self) -> Any:
        import anyio

        item = await self._stream.receive()
        message = getattr(item, "message", None)
        if hasattr(message, "method") and hasattr(message, "id"):
            self._shared.unanswered += 1
            if self._shared.unanswered > MAX_UNANSWERED:
                self._shared.on_end(
                    f"the server sends requests and does not read the answers to {MAX_UNANSWERED} of them"
                )
                raise anyio.EndOfStream
        elif isinstance(getattr(message, "result", None), dict):
            self._shared.read_answer(message)
        return item

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        import anyio

        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class _Answers(_Stream):
    async def send(self, item: Any) -> None:
        message = item.message
        if getattr(message, "method", None) == "tools/list" and hasattr(message, "id"):
            stated = ((message.params or {}).get("_meta") or {}).get("io.modelcontextprotocol/protocolVersion")
            self._shared.lists[message.id] = str(stated or "")
        # A server that has an answer to the question of a call that was given up may continue that call.
        if getattr(getattr(message, "error", None), "message", None) != GIVEN_UP:
            await self._stream.send(item)
        if not hasattr(message, "method"):
            self._shared.unanswered -= 1


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
