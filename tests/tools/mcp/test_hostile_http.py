"""Servers behind HTTP that send too much, forget their sessions and answer with errors; and secrets in addresses.

Examines the internals of tools.mcp.server_messages on purpose.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.server
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from flink_skills import ConfigError, ExecutionError, ToolContext
from flink_skills.tools.mcp import McpToolSet, StreamableHTTPConnectionParams
from flink_skills.tools.mcp.server_messages import MAX_ANSWER, MAX_VALUES, limited_client
from tests.kit.waiting import until
from tests.tools.mcp.conftest import OpenToolSet
from tests.tools.mcp.test_servers import tools_of
from tests.tools.web.site import Site, write_certificate

pytestmark = pytest.mark.row("J7", "J10")
SECRET = "s3cr3t-of-the-shop"


class Odd(http.server.ThreadingHTTPServer):
    """Speaks streamable HTTP with sessions, one JSON answer to each request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.session = 0
        self.status = 200
        #: Status of requests with another token than this one.
        self.token: str | None = None
        self.closing = threading.Event()
        self.seen: set[tuple[str, str | None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/mcp"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Odd

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method = message.get("method")
        self.server.seen.add((self.path, self.headers.get("Authorization")))
        if self.server.status != 200:
            self._answer(self.server.status, b"no")
            return
        if self.server.token not in (None, self.headers.get("Authorization")):
            self._answer(401, b"no")
            return
        if "id" not in message:
            self._answer(202, b"")
            return
        if method == "initialize":
            self.server.session += 1
        elif method != "server/discover" and self.headers.get("Mcp-Session-Id") != str(self.server.session):
            self._answer(404, b"who?")
            return
        if method is None:  # the answer to a ping
            self.server.closing.wait(30)
            return
        name = message.get("params", {}).get("name")
        if name == "endless":
            self._endless()
        elif name == "packed":
            self._answer(200, gzip.compress(b" " * 10_000_000), "application/json", ("Content-Encoding", "gzip"))
        elif name == "broken":
            self._answer(500, b"no")
        elif name == "many":
            self._answer(200, b'{"jsonrpc": "2.0", "a": [' + b"{}, " * MAX_VALUES + b"{}]}", "application/json")
        elif name == "many in an event":
            last = json.dumps(
                {"jsonrpc": "2.0", "id": message["id"], "result": self._result(method, message["params"])}
            )
            many = b"data: " + last[:-2].encode() + b', "_meta": {"a": [' + b"{},\r\ndata: " * MAX_VALUES
            many += b"{}]}}}\r\n\r\n"
            self._answer(200, many, "text/event-stream")
        elif name == "endless event":
            self._endless("text/event-stream")
        elif name == "many events":
            other = json.dumps({"jsonrpc": "2.0", "method": "notifications/x", "params": {"_meta": {"a": [{}] * 600}}})
            last = {"jsonrpc": "2.0", "id": message["id"], "result": self._result(method, message["params"])}
            events = [other] * (MAX_VALUES // 500) + [json.dumps(last)]
            ends = ("\n\n", "\r\n\r\n", "\r\r")
            text = "".join(f"data: {event}{ends[at % 3]}" for at, event in enumerate(events))
            self._answer(200, text.encode(), "text/event-stream")
        elif name == "pings":
            pings = b"".join(b'data: {"jsonrpc": "2.0", "id": %d, "method": "ping"}\n\n' % at for at in range(1_000))
            self._answer(200, pings, "text/event-stream")
        elif name == "page":
            self._answer(200, b"<html>", "text/html")
        else:
            self._json(message, self._result(method, message.get("params") or {}))

    def do_GET(self) -> None:
        self._answer(405, b"")

    do_DELETE = do_GET

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        if method == "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "odd", "version": "1"},
            }
        if method == "tools/list":
            names = ("endless", "packed", "broken", "page", "forget", "count", "many", "pings")
            names += ("many in an event", "many events", "endless event")
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
        if method == "tools/call":
            if params["name"] == "forget":
                self.server.session += 1
            return {"content": [{"type": "text", "text": "done"}]}
        return None

    def _json(self, message: dict[str, Any], result: dict[str, Any] | None) -> None:
        said = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        data = json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}).encode()
        session = ("Mcp-Session-Id", str(self.server.session))
        self._answer(200, data, "application/json", *([session] if message["method"] == "initialize" else []))

    def _answer(self, status: int, data: bytes, kind: str = "text/plain", *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(data))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _endless(self, kind: str = "application/json") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Connection", "close")
        self.end_headers()
        with contextlib.suppress(OSError):
            for _ in range(20 * MAX_ANSWER // 65_536):
                self.wfile.write(b" " * 65_536)
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Odd]:
    with Odd() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.closing.set()
        made.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("tool", "told"),
    [
        ("endless", "the answer is longer than 25,165,824 bytes"),
        ("packed", "the answer is compressed (gzip)"),
        ("page", "Unexpected content type: text/html"),
        ("many", "a message has more than 500,000 objects and lists"),
        ("many_in_an_event", "a message has more than 500,000 objects and lists"),
        ("endless_event", "an event is longer than 25,165,824 bytes"),
    ],
)
async def test_an_answer_that_is_none_is_an_error_of_that_call_alone(
    server: Odd, opened: OpenToolSet, tool: str, told: str
) -> None:
    tools = await tools_of(await opened(StreamableHTTPConnectionParams(server.url)))
    answer = await tools[tool].call({}, ToolContext())
    assert answer.is_error
    assert told in answer.content
    assert (await tools["count"].call({}, ToolContext())).content == "done"
    assert server.session == 1, "the connection stays"


async def test_many_events_are_no_large_message(server: Odd, opened: OpenToolSet) -> None:
    tools = await tools_of(await opened(StreamableHTTPConnectionParams(server.url)))
    answer = await tools["many_events"].call({}, ToolContext())
    assert (answer.content, answer.is_error) == ("done", False)


async def test_requests_whose_answers_are_not_read_end_the_connection(server: Odd, opened: OpenToolSet) -> None:
    tools = await tools_of(await opened(StreamableHTTPConnectionParams(server.url)))
    answer = await tools["pings"].call({}, ToolContext())
    assert answer.is_error
    assert "sends requests and does not read the answers to 256 of them" in answer.content


async def test_a_status_of_one_call_ends_no_connection(server: Odd, opened: OpenToolSet) -> None:
    tools = await tools_of(await opened(StreamableHTTPConnectionParams(server.url)))
    answer = await tools["broken"].call({}, ToolContext())
    assert answer.is_error
    assert answer.retryable
    assert "It is not known whether the call had an effect" in answer.content
    assert (await tools["count"].call({}, ToolContext())).content == "done"
    assert server.session == 1


async def test_a_session_that_the_server_forgot_is_begun_again(server: Odd, opened: OpenToolSet) -> None:
    toolset = await opened(StreamableHTTPConnectionParams(server.url))
    tools = await tools_of(toolset)
    assert (await tools["forget"].call({}, ToolContext())).content == "done"
    lost = await tools["count"].call({}, ToolContext())
    assert (lost.is_error, lost.retryable) == (True, True)

    async def again() -> bool:
        return (await tools["count"].call({}, ToolContext())).content == "done"

    await until(again)
    assert toolset.figures() == {"mcpServers": 1, "mcpServersDown": 0, "mcpReconnects": 1}


async def test_secrets_of_addresses_and_headers_are_in_no_log_and_no_result(
    server: Odd, opened: OpenToolSet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "flink_skills")
    monkeypatch.setenv("SHOP_SECRET", SECRET)
    # A header with a line end is refused by the client, with its value in the message.
    headers = {"X-Token": "${env:SHOP_SECRET}\n"}
    for given in ({}, headers):
        server.status = 200 if given else 401
        params = StreamableHTTPConnectionParams(f"{server.url}?token=${{env:SHOP_SECRET}}", given)
        with pytest.raises(ExecutionError) as failed:
            await McpToolSet(params).initialize()
        assert SECRET not in str(failed.value)
        toolset = await opened(params, required=False)
        assert toolset.figures()["mcpServersDown"] == 1
        await toolset.close()
    server.status = 200
    server.seen.clear()
    headers = {"Authorization": "Bearer ${env:SHOP_SECRET}"}
    params = StreamableHTTPConnectionParams(f"{server.url}?token=${{env:SHOP_SECRET}}", headers)
    assert SECRET not in repr(params)
    tools = await tools_of(await opened(params))
    assert server.seen == {(f"/mcp?token={SECRET}", f"Bearer {SECRET}")}
    server.status = 500
    lost = await tools["count"].call({}, ToolContext())
    assert lost.is_error
    server.shutdown()
    server.server_close()

    async def gone() -> bool:
        return "is not there" in (await tools["count"].call({}, ToolContext())).content

    await until(gone)
    answer = await tools["count"].call({}, ToolContext())
    assert SECRET not in answer.content + lost.content
    own = [record.getMessage() for record in caplog.records if record.name.startswith("flink_skills")]
    assert own
    assert not [message for message in own if SECRET in message]


async def test_a_token_in_a_file_is_renewed_without_an_error(server: Odd, opened: OpenToolSet, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first-token")
    server.token = "Bearer first-token"
    tools = await tools_of(
        await opened(StreamableHTTPConnectionParams(server.url, {"Authorization": f"Bearer ${{file:{file}}}"}))
    )
    assert (await tools["count"].call({}, ToolContext())).content == "done"
    file.write_text("second-token")
    server.token = "Bearer second-token"
    result = await tools["count"].call({}, ToolContext())
    assert (result.is_error, result.content) == (False, "done")


async def test_a_rejected_token_in_an_unchanged_file_is_an_error(
    server: Odd, opened: OpenToolSet, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(SECRET)
    toolset = await opened(StreamableHTTPConnectionParams(server.url, {"Authorization": f"Bearer ${{file:{file}}}"}))
    tools = await tools_of(toolset)
    server.token = "another"
    result = await tools["count"].call({}, ToolContext())
    assert result.is_error
    assert SECRET not in result.content


async def test_a_checked_connection_goes_to_the_addresses_of_one_lookup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = write_certificate(tmp_path, "shop.example.org")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    site, lookup, lookups = Site(), socket.getaddrinfo, list[str]()
    await site.start(context)
    site.page("/", "hello")

    def found(host: str, port: int, *more: Any, **named: Any) -> Any:
        if not host.endswith(".example.org"):
            return lookup(host, port, *more, **named)
        lookups.append(host)
        if len(lookups) > 1:
            raise OSError("a second lookup can have other addresses")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in ("127.0.0.9", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    checked: list[tuple[str, list[str]]] = []
    try:
        for name in ("shop", "other"):
            url, checked[:], lookups[:] = f"https://{name}.example.org:{site.port}/", [], []
            async with limited_client(check=lambda url, addresses: checked.append((url, addresses))) as client:
                if name == "shop":
                    assert (await client.get(url)).status_code == 200
                else:
                    with pytest.raises(httpx2.ConnectError, match="certificate"):
                        await client.get(url)
            assert checked == [(url, ["127.0.0.9", "127.0.0.1"])]

        def refuse(url: str, addresses: list[str]) -> None:
            raise ConfigError("no")

        lookups.clear()
        async with limited_client(check=refuse) as client:
            with pytest.raises(ConfigError):
                await client.get(f"https://shop.example.org:{site.port}/")
        assert [visit.headers["host"] for visit in site.visits] == [f"shop.example.org:{site.port}"]
    finally:
        await site.close()
