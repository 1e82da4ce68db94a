"""Scripted HTTP server with the APIs of OpenAI and of Anthropic, also as streams.

It listens on loopback only, counts and keeps every request, and carries thousands in flight, so that a
test can prove what a job asked, how often and how much at once::

    with ScriptedModelServer([Rule(Reply("hello"))]) as server:
        ...  # base_url=server.url
        assert server.stats()["requests"] == 1

As a process of its own: ``python -m flink_skills.testing.model_server --script rules.yaml``. It prints its
base URL as the first line of stdout and ends with SIGTERM or SIGINT.

    POST /v1/chat/completions, /v1/responses, /v1/messages
                                                the models
    GET  /requests[?since=N]                    bodies of the requests kept, from number N (counted from 0)
    GET  /stats                                 counts
    POST /reset                                 forget both
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import inspect
import json
import signal
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any

from aiohttp import web

from flink_skills.errors import SkillsError
from flink_skills.hints import none_is_default
from flink_skills.testing.replies import error_body, fill, message_body, stream_events
from flink_skills.testing.scripts import Conversation, Reply, Rule, Script, load_script

ReplyFunction = Callable[[dict[str, Any]], "Reply | str | Awaitable[Reply | str]"]
"""A script as code: from the request's JSON to a reply or a text. Runs on the server's thread."""

_MAX_BODY = 64 << 20
_DIALECTS = {"chat/completions": "openai", "responses": "responses", "messages": "anthropic"}


@none_is_default
class ScriptedModelServer:
    """The server on a thread of its own, with a free port unless one is given.

    ``script`` is a :class:`Script`, a list of :class:`Rule` or a function. ``latency`` seconds pass before
    each reply that says no other. The last ``keep`` request bodies are kept; counts cover all.
    """

    def __init__(
        self,
        script: Script | Sequence[Rule] | ReplyFunction,
        *,
        latency: float = 0.0,
        host: str = "127.0.0.1",
        port: int = 0,
        keep: int = 100_000,
    ) -> None:
        if not callable(script) and not isinstance(script, Script):
            script = Script(script)
        self._script = script
        self._latency = latency or (script.latency if isinstance(script, Script) else 0.0)
        self._host = host
        self._port = port
        self._keep = keep
        self._lock = threading.Lock()
        self._clear()
        self._in_flight = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    def _clear(self) -> None:
        self._number = 0
        self._kept: list[dict[str, Any]] = []
        self._status: Counter[int] = Counter()
        self._bodies: Counter[str] = Counter()
        self._most_in_flight = 0

    @property
    def url(self) -> str:
        """The base URL for OpenAI clients, such as ``http://127.0.0.1:45123/v1``."""
        return f"{self.origin}/v1"

    @property
    def origin(self) -> str:
        """The server without a path: the base URL for Anthropic clients."""
        return f"http://{self._host}:{self._port}"

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The JSON bodies of the requests, oldest first."""
        with self._lock:
            return list(self._kept)

    def stats(self) -> dict[str, Any]:
        """``requests``, ``in_flight``, ``max_in_flight``, ``by_status``, ``distinct`` (different bodies) and
        ``repeated`` (requests whose body was the same as an earlier one's)."""
        with self._lock:
            return {
                "requests": self._number,
                "in_flight": self._in_flight,
                "max_in_flight": self._most_in_flight,
                "by_status": {str(status): n for status, n in sorted(self._status.items())},
                "distinct": len(self._bodies),
                "repeated": self._number - len(self._bodies),
            }

    def reset(self) -> None:
        """Forget requests and counts. Rules that were used up stay so."""
        with self._lock:
            self._clear()

    def start(self) -> ScriptedModelServer:
        """Start on a thread and return when it listens."""
        listening: Future[None] = Future()

        def run() -> None:
            try:
                asyncio.run(self.serve(lambda: listening.set_result(None)))
            except Exception as error:
                if listening.done():
                    raise
                listening.set_exception(error)

        self._thread = threading.Thread(target=run, name="scripted-model-server", daemon=True)
        self._thread.start()
        listening.result(timeout=30)
        return self

    def stop(self) -> None:
        """Stop; requests under way are cut off."""
        if self._loop is not None and self._stop is not None and self._thread is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(timeout=30)
        self._thread = None

    def __enter__(self) -> ScriptedModelServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def serve(self, listening: Callable[[], None], stop: asyncio.Event | None = None) -> None:
        """Serve on the running loop until ``stop`` is set; ``listening`` is called when it listens."""
        self._loop = asyncio.get_running_loop()
        self._stop = stop or asyncio.Event()
        app = web.Application(client_max_size=_MAX_BODY)
        for prefix in ("", "/v1"):
            for path, dialect in _DIALECTS.items():
                app.router.add_post(f"{prefix}/{path}", partial(self._answer, dialect=dialect))
            app.router.add_get(f"{prefix}/models", self._models)
        app.router.add_get("/requests", self._get_requests)
        app.router.add_get("/stats", self._get_stats)
        app.router.add_post("/reset", self._post_reset)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        try:
            # A thousand clients connect at once: the default backlog of 128 would drop some of them.
            site = web.TCPSite(runner, self._host, self._port, backlog=4096)
            await site.start()
            self._port = runner.addresses[0][1]
            listening()
            await self._stop.wait()
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request, dialect: str) -> web.StreamResponse:
        raw = await request.read()
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return self._raw(dialect, Reply(status=400, error="the request is not a JSON object"))
        number = self._enter(raw, body)
        try:
            return await self._reply(request, body, dialect, number)
        finally:
            with self._lock:
                self._in_flight -= 1

    def _enter(self, raw: bytes, body: dict[str, Any]) -> int:
        with self._lock:
            number = self._number
            self._number += 1
            self._in_flight += 1
            self._most_in_flight = max(self._most_in_flight, self._in_flight)
            self._bodies[hashlib.sha256(raw).hexdigest()] += 1
            self._kept.append(body)
            if len(self._kept) > self._keep:
                del self._kept[: len(self._kept) - self._keep]
            return number

    async def _reply(self, request: web.Request, body: dict[str, Any], dialect: str, number: int) -> web.StreamResponse:
        conversation = Conversation.of(body)
        reply = await self._choose(body, conversation)
        latency = self._latency if reply.latency is None else reply.latency
        if latency > 0:
            await asyncio.sleep(latency)
        if reply.hang:
            await asyncio.Event().wait()
        if reply.status != 200 or reply.body is not None:
            return self._raw(dialect, reply)
        with self._lock:
            self._status[200] += 1
        text, calls = fill(reply, conversation, number)
        if body.get("stream"):
            usage = dialect != "openai" or bool((body.get("stream_options") or {}).get("include_usage"))
            events = stream_events(dialect, reply, text, calls, model=conversation.model, number=number, usage=usage)
            return await _stream(request, reply, events)
        answer = message_body(dialect, reply, text, calls, model=conversation.model, number=number)
        if reply.cut_after is not None:
            return await _cut(request, answer, reply)
        return _json(answer, reply.headers)

    async def _choose(self, body: dict[str, Any], conversation: Conversation) -> Reply:
        if isinstance(self._script, Script):
            return self._script.reply(conversation)
        try:
            outcome = self._script(body)
            reply = await outcome if inspect.isawaitable(outcome) else outcome
        except Exception as error:
            # 400 and not 500: a mistake in a test's script must not be tried again.
            return Reply(status=400, error=f"the script failed: {type(error).__name__}: {error}")
        return Reply(reply) if isinstance(reply, str) else reply

    def _raw(self, dialect: str, reply: Reply) -> web.Response:
        """An error, or a body that is sent as it is."""
        with self._lock:
            self._status[reply.status] += 1
        headers = dict(reply.headers)
        if reply.retry_after is not None:
            after = reply.retry_after
            headers["Retry-After"] = after if isinstance(after, str) else f"{after:g}"
        body = reply.body
        if body is None:
            body = json.dumps(error_body(dialect, reply.error, reply.status))
        return web.Response(text=body, status=reply.status, headers=headers, content_type="application/json")

    async def _models(self, request: web.Request) -> web.Response:
        return _json({"object": "list", "data": [{"id": "scripted", "object": "model"}]})

    async def _get_requests(self, request: web.Request) -> web.Response:
        since = request.query.get("since", "0")
        with self._lock:
            skip = int(since) - (self._number - len(self._kept)) if since.isdigit() else 0
            kept = self._kept[max(0, skip) :]
        return _json({"requests": kept})

    async def _get_stats(self, request: web.Request) -> web.Response:
        return _json(self.stats())

    async def _post_reset(self, request: web.Request) -> web.Response:
        self.reset()
        return _json({})


async def _stream(request: web.Request, reply: Reply, events: Sequence[str]) -> web.StreamResponse:
    response = web.StreamResponse(
        headers={**reply.headers, "Content-Type": "text/event-stream", "Cache-Control": "no-store"}
    )
    await response.prepare(request)
    for position, event in enumerate(events):
        if position == reply.break_after:
            if request.transport is not None:
                request.transport.abort()
            break
        if position == reply.stall_after:
            await asyncio.Event().wait()
        if reply.piece_latency > 0:
            await asyncio.sleep(reply.piece_latency)
        await response.write(event.encode())
    return response


async def _cut(request: web.Request, answer: Any, reply: Reply) -> web.StreamResponse:
    """Send the first ``cut_after`` bytes of an answer whose header promises all."""
    response = web.StreamResponse(headers={**reply.headers, "Content-Type": "application/json"})
    body = json.dumps(answer).encode()
    response.content_length = len(body)
    await response.prepare(request)
    await response.write(body[: reply.cut_after])
    if request.transport is not None:
        request.transport.close()
    return response


def _json(data: Any, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=json.dumps(data).encode(), content_type="application/json", headers=headers)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server as a process. Exit code 2: the script cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m flink_skills.testing.model_server", description="A scripted chat model server."
    )
    parser.add_argument("--port", type=int, default=0, help="port on loopback; 0: a free one")
    parser.add_argument("--script", help="YAML or JSON file of rules")
    parser.add_argument("--text", default="ok", help="what every request gets without a script")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each reply")
    options = parser.parse_args(arguments)
    try:
        script = load_script(options.script) if options.script else Script([Rule(Reply(options.text))])
    except SkillsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    server = ScriptedModelServer(script, latency=options.latency, port=options.port)
    try:
        asyncio.run(_run(server))
    except OSError as error:
        sys.stderr.write(f"the server cannot listen on port {options.port}: {error.strerror or error}\n")
        return 2
    return 0


async def _run(server: ScriptedModelServer) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def listening() -> None:
        sys.stdout.write(server.url + "\n")
        sys.stdout.flush()

    await server.serve(listening, stop)


if __name__ == "__main__":
    sys.exit(main())
