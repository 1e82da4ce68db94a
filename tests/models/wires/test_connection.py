"""Connections send the key to its host only, and use the proxies and authorities of the environment."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from flink_skills.errors import ModelError
from flink_skills.models import ModelRequest, UserMessage
from tests.models.conftest import ModelFactory

KEY = "very-secret-key-1234"
REQUEST = ModelRequest("", [UserMessage("hello")], timeout=10)
ANSWER = {"choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.lower().endswith("_proxy") or name.startswith(("OPENAI_", "SSL_CERT_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TEST_MODEL_KEY", KEY)


def good(body: bytes = json.dumps(ANSWER).encode(), *more: str) -> bytes:
    head = "\r\n".join(["HTTP/1.1 200 OK", "Content-Type: application/json", f"Content-Length: {len(body)}", *more])
    return head.encode() + b"\r\nConnection: close\r\n\r\n" + body


async def test_a_redirect_does_not_get_the_key(raw_server: Callable[..., Any], connect: ModelFactory) -> None:
    other = await raw_server(lambda head, body: good())
    moved = f"HTTP/1.1 307 Moved\r\nLocation: {other.url}/chat/completions\r\nContent-Length: 0\r\n\r\n"
    server = await raw_server(lambda head, body: moved.encode())
    model = connect("openai-compatible", server.url, api_key_env="TEST_MODEL_KEY")
    with pytest.raises(ModelError, match=rf"status 307.*{other.port}.*base_url") as caught:
        await model.request(REQUEST)
    assert not caught.value.retryable
    assert other.requests == []
    assert KEY in server.requests[0][0]


async def test_compressed_answers(raw_server: Callable[..., Any], connect: ModelFactory) -> None:
    packed = gzip.compress(json.dumps(ANSWER).encode())
    server = await raw_server(lambda head, body: good(packed, "Content-Encoding: gzip"))
    assert (await connect("openai-compatible", server.url).request(REQUEST)).text == "hi"
    assert "gzip" in server.requests[0][0]


async def test_an_answer_is_bounded(raw_server: Callable[..., Any], connect: ModelFactory) -> None:
    packed = gzip.compress(b" " * (65 << 20))
    server = await raw_server(lambda head, body: good(packed, "Content-Encoding: gzip"))
    with pytest.raises(ModelError, match="16,777,216"):
        await connect("openai-compatible", server.url).request(REQUEST)


@pytest.mark.parametrize(("bypass", "proxied"), [("", True), ("127.0.0.1", False)])
async def test_a_proxy_of_the_environment(
    bypass: str, proxied: bool, raw_server: Callable[..., Any], connect: ModelFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await raw_server(lambda head, body: good())
    proxy = await raw_server(lambda head, body: good())
    monkeypatch.setenv("http_proxy", f"http://me:pw@127.0.0.1:{proxy.port}")
    monkeypatch.setenv("no_proxy", bypass)
    await connect("openai-compatible", server.url).request(REQUEST)
    assert (len(proxy.requests), len(server.requests)) == ((1, 0) if proxied else (0, 1))
    if proxied:
        head = proxy.requests[0][0]
        assert head.startswith(f"POST {server.url}/chat/completions ")
        assert "proxy-authorization: basic" in head.lower()


async def test_no_credentials_come_from_netrc(
    raw_server: Callable[..., Any], connect: ModelFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    server = await raw_server(lambda head, body: good())
    await connect("openai-compatible", server.url).request(REQUEST)
    assert "authorization" not in server.requests[0][0].lower()


@pytest.fixture
def certified(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    """A certificate that no authority of the machine signed, and the context of a server that has it."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject,
         "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return certificate, context


async def test_an_authority_of_the_environment(
    connect: ModelFactory, monkeypatch: pytest.MonkeyPatch, certified: tuple[Path, ssl.SSLContext]
) -> None:
    certificate, context = certified

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(ANSWER)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        url = f"https://127.0.0.1:{runner.addresses[0][1]}/v1"
        with pytest.raises(ModelError, match=r"cannot be reached.*certificate.*set SSL_CERT_FILE"):
            await connect("openai-compatible", url).request(REQUEST)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert (await connect("openai-compatible", url).request(REQUEST)).text == "hi"
    finally:
        await runner.cleanup()


async def test_https_at_a_port_without_tls(serve: Any, connect: ModelFactory) -> None:
    url = serve().url.replace("http://", "https://")
    with pytest.raises(
        ModelError, match=r"does not use TLS on this port: write http:// instead of https:// in base_url"
    ):
        await connect("openai-compatible", url).request(REQUEST)


async def test_http_at_a_port_with_tls(connect: ModelFactory, certified: tuple[Path, ssl.SSLContext]) -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=certified[1])
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        with pytest.raises(ModelError, match=r"closed the connection before .* needs https://") as caught:
            await connect("openai-compatible", url).request(REQUEST)
    assert caught.value.retryable


@pytest.mark.parametrize(
    "answer",
    [
        b"\x15\x03\x01\x00\x02\x02F",
        b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
        b"<html><body><center>The plain HTTP request was sent to HTTPS port</center></body></html>",
    ],
    ids=["alert", "go", "nginx"],
)
async def test_servers_that_say_that_they_expect_tls(
    answer: bytes, raw_server: Callable[..., Any], connect: ModelFactory
) -> None:
    server = await raw_server(lambda head, body: answer)
    with pytest.raises(ModelError, match=r"expects TLS on this port: write https:// instead of http://"):
        await connect("openai-compatible", server.url).request(REQUEST)


@pytest.mark.parametrize("sent", [good()[:-20], b""], ids=["half", "nothing"])
async def test_a_response_that_breaks_off(sent: bytes, raw_server: Callable[..., Any], connect: ModelFactory) -> None:
    server = await raw_server(lambda head, body: sent)
    with pytest.raises(
        ModelError, match=r"closed the connection before the whole response arrived \(.*timeouts of"
    ) as c:
        await connect("openai-compatible", server.url).request(REQUEST)
    assert c.value.retryable
    assert "cannot be reached" not in str(c.value)


async def test_connections_are_kept_and_bounded(connect: ModelFactory, serve: Any) -> None:
    server = serve()
    model = connect("openai-compatible", server.url, extra={"max_connections": 3})
    await asyncio.gather(*(model.request(REQUEST) for _ in range(20)))
    assert server.stats()["max_in_flight"] <= 3
