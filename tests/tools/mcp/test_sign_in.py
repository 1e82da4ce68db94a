"""MCP servers behind OAuth that accept machines: client credentials with a secret and with a signed JWT."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs

import jwt
import pytest
import uvicorn
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from mcp.server.mcpserver import MCPServer
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from flink_skills import Agent, AgentContext, ConfigError, ExecutionError, SkillConfig, ToolContext, mcp_server
from flink_skills.agents import compile_plan
from flink_skills.errors import SourceError
from flink_skills.sources import AddressPolicy, SourceContext, open_source
from flink_skills.tools.mcp import McpToolSet
from tests.kit.local import local_environment
from tests.kit.ports import free_port, listens
from tests.kit.waiting import until, wait_until
from tests.tools.mcp.conftest import OpenToolSet
from tests.tools.mcp.skills_site import OPEN
from tests.tools.mcp.test_servers import tools_of

pytestmark = pytest.mark.row("J7", "J10")
SECRET = "s3cr3t-of-the-client"
KEY = rsa.generate_private_key(65537, 2048)
PEM = KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()


class Shop:
    """A server of tools and the authorization server that it names, on one port."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.port = free_port()
        self.lives = 3600
        self.advertised: list[str] | None = None
        self.token_status = 200
        self.moved = False
        self.token_type = "Bearer"
        self.login = f"http://127.0.0.1:{self.port}"
        self.valid: dict[str, float] = {}
        self.tokens: list[str] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.slow = asyncio.Event()
        self.is_slow = threading.Event()
        tools = MCPServer("shop")

        @tools.tool()
        async def price(article: str) -> int:
            """Return the price of an article."""
            if article == "slow":
                self.is_slow.set()
                await self.slow.wait()
            if article == "revoke":
                self.valid.clear()
                self.token_status = 503
            return len(article)

        app = tools.sse_app() if kind == "sse" else tools.streamable_http_app(json_response=kind == "json")
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._guarded(app), port=self.port, log_level="critical", timeout_graceful_shutdown=1, lifespan="on"
            )
        )
        self._thread = threading.Thread(target=self._server.run)

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def declared(self, **auth: Any) -> dict[str, Any]:
        auth = {"client_id": "agent", **auth}
        if "private_key" not in auth:
            auth.setdefault("client_secret", "${env:SHOP_SECRET}")
        place = {"url": f"{self.base}/sse", "transport": "sse"} if self.kind == "sse" else {"url": f"{self.base}/mcp"}
        return {**place, "auth": auth, "timeout": 20}

    def start(self) -> None:
        self._thread.start()
        wait_until(lambda: listens(self.port), "the server to listen", within=60)

    def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(60)

    def _guarded(self, app: Any) -> Callable[..., Any]:
        async def guarded(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                request = Request(scope, receive)
                answer = await self._answer(request)
                if answer is not None:
                    await answer(scope, receive, send)
                    return
            await app(scope, receive, send)

        return guarded

    async def _answer(self, request: Request) -> Response | None:
        path = request.url.path
        if path.startswith("/.well-known/oauth-protected-resource"):
            found: dict[str, Any] = {"resource": self.base, "authorization_servers": [self.login]}
            return JSONResponse(found | ({"scopes_supported": self.advertised} if self.advertised else {}))
        if path.startswith("/.well-known/"):
            return JSONResponse(
                {
                    "issuer": self.base,
                    "authorization_endpoint": f"{self.base}/login",
                    "token_endpoint": f"{self.base}/token",
                    "response_types_supported": ["code"],
                    "grant_types_supported": ["client_credentials"],
                }
            )
        if path == "/token" and self.moved:
            return Response("", 307, {"Location": "/new/token"})
        if path.endswith("/token"):
            return self._token(request.headers, (await request.body()).decode())
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.valid.get(token, 0) > time.monotonic():
            return None
        return Response("no", 401, {"WWW-Authenticate": "Bearer"})

    def _token(self, headers: Any, body: str) -> Response:
        form = {name: values[0] for name, values in parse_qs(body).items()}
        self.requests.append((headers.get("authorization", ""), form))
        if self.token_status != 200:
            return Response("<h1>Busy</h1>", self.token_status)
        basic = "Basic " + base64.b64encode(f"agent:{SECRET}".encode()).decode()
        if "client_assertion" in form:
            claims = jwt.decode(form["client_assertion"], KEY.public_key(), ["RS256"], audience=self.base)
            known = claims["iss"] == claims["sub"] == "agent"
        else:
            known = headers.get("authorization") == basic or form.get("client_secret") == SECRET
        if not known or form["grant_type"] != "client_credentials":
            # Some servers repeat what they received.
            about = f"unknown client {headers.get('authorization')} {body}"
            return JSONResponse({"error": "invalid_client", "error_description": about}, 401)
        token = f"t0k3n-number-{len(self.tokens)}-of-the-shop"
        self.tokens.append(token)
        self.valid[token] = time.monotonic() + self.lives
        return JSONResponse({"access_token": token, "token_type": self.token_type, "expires_in": self.lives})


@pytest.fixture(params=["streamable-http", "sse"])
def shop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setenv("SHOP_SECRET", SECRET)
    monkeypatch.setenv("SHOP_KEY", PEM)
    made = Shop(request.param)
    made.start()
    yield made
    made.stop()


over_http = pytest.mark.parametrize("shop", ["streamable-http"], indirect=True)


async def priced(toolset: McpToolSet, article: str = "cup") -> Any:
    return await (await tools_of(toolset))["price"].call({"article": article}, ToolContext())


@pytest.mark.parametrize(
    "auth",
    [
        {},
        {"token_endpoint_auth_method": "client_secret_post"},
        {"private_key": "${env:SHOP_KEY}"},
    ],
    ids=["basic", "post", "jwt"],
)
async def test_a_client_signs_in_one_time_for_all_requests(shop: Shop, opened: OpenToolSet, auth: Any) -> None:
    toolset = await opened(shop.declared(issuer=shop.base, **auth))
    for article in ("cup", "plate"):
        result = await priced(toolset, article)
        assert (result.is_error, result.content) == (False, str(len(article)))
    assert len(shop.requests) == 1


@over_http
async def test_a_token_endpoint_may_move_on_its_server(shop: Shop, opened: OpenToolSet) -> None:
    shop.moved = True
    assert (await priced(await opened(shop.declared(issuer=shop.base)))).content == "3"


@pytest.mark.parametrize("told", [True, False], ids=["by the time", "by a refusal"])
async def test_a_token_that_expires_is_renewed(shop: Shop, opened: OpenToolSet, told: bool) -> None:
    shop.lives = 1 if told else 3600
    toolset = await opened(shop.declared())
    if not told:
        shop.valid.clear()

    async def renewed() -> bool:
        result = await priced(toolset)
        assert (result.is_error, result.content) == (False, "3")
        return len(shop.tokens) >= 3

    if told:
        await until(renewed)
    else:
        assert not (await priced(toolset)).is_error
        assert len(shop.tokens) == 2
    assert toolset.figures()["mcpReconnects"] == 0


@pytest.mark.parametrize("advertised", [None, ["all", "read"]])
@pytest.mark.parametrize("chosen", [[], ["read", "write"]])
@over_http
async def test_the_scopes_of_the_declaration_are_requested(
    shop: Shop, opened: OpenToolSet, advertised: list[str] | None, chosen: list[str]
) -> None:
    shop.advertised = advertised
    toolset = await opened(shop.declared(scopes=chosen))
    shop.valid.clear()
    assert not (await priced(toolset)).is_error
    asked = {form.get("scope") for _, form in shop.requests}
    assert asked == {" ".join(chosen or advertised or []) or None}
    assert len(shop.requests) == 2


async def test_a_wrong_secret_fails_the_open_with_the_server_and_the_fix(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SHOP_SECRET", "wr0ng-s3cr3t")
    toolset = McpToolSet(shop.declared(), name="stock")
    with pytest.raises(ExecutionError) as caught:
        await toolset.initialize()
    text = str(caught.value)
    for words in ("MCP server 'stock'", f"{shop.base}/token", "401", "invalid_client: unknown client", "client_secret"):
        assert words in text, text
    assert not getattr(caught.value, "retryable", True)
    encoded = base64.b64encode(b"agent:wr0ng-s3cr3t").decode()
    assert encoded in shop.requests[0][0]
    for secret in ("wr0ng-s3cr3t", encoded):
        assert secret not in text + caplog.text


async def test_an_assertion_that_the_server_repeats_is_hidden(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    toolset = McpToolSet(shop.declared(client_id="other", private_key="${env:SHOP_KEY}"), name="stock")
    with pytest.raises(ExecutionError, match="invalid_client") as caught:
        await toolset.initialize()
    signed = shop.requests[0][1]["client_assertion"]
    assert signed not in str(caught.value) + caplog.text


@pytest.mark.parametrize("status", [503, 429])
async def test_an_authorization_server_that_is_overloaded_may_be_there_later(shop: Shop, status: int) -> None:
    shop.token_status = status
    with pytest.raises(ExecutionError, match=f"{shop.base}/token.*HTTP {status}") as caught:
        await McpToolSet(shop.declared(), name="stock").initialize()
    assert getattr(caught.value, "retryable", False)
    assert "check the client" not in str(caught.value)


@over_http
async def test_an_authorization_server_that_is_not_there_may_be_there_later(shop: Shop) -> None:
    shop.login = "http://127.0.0.1:9"
    with pytest.raises(ExecutionError, match=r"sign-in failed: http://127.0.0.1:9/.* cannot be reached") as caught:
        await McpToolSet(shop.declared(), name="stock").initialize()
    assert getattr(caught.value, "retryable", False)


@over_http
async def test_an_answer_that_is_no_token_is_named_without_the_token(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    shop.token_type = "mac"
    with pytest.raises(ExecutionError, match="gave no token: HTTP 200 OK: token_type: ") as caught:
        await McpToolSet(shop.declared(), name="stock").initialize()
    assert shop.tokens[0] not in str(caught.value) + caplog.text


async def test_a_private_key_that_is_none_is_named(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "n0-private-key")
    with pytest.raises(ExecutionError, match="private_key") as caught:
        await McpToolSet(shop.declared(private_key="${env:SHOP_KEY}"), name="stock").initialize()
    assert not getattr(caught.value, "retryable", True)
    assert "n0-private-key" not in str(caught.value)


@over_http
async def test_credentials_are_sent_to_no_other_issuer(shop: Shop) -> None:
    with pytest.raises(ExecutionError, match=r"https://login\.example") as caught:
        await McpToolSet(shop.declared(issuer="https://login.example"), name="stock").initialize()
    assert not getattr(caught.value, "retryable", True)
    assert shop.requests == []


@pytest.mark.parametrize("shop", ["json"], indirect=True)
async def test_a_slow_call_delays_no_other_call(shop: Shop, opened: OpenToolSet) -> None:
    toolset = await opened(shop.declared())
    shop.valid.clear()  # both calls begin with the renewal
    slow = asyncio.ensure_future(priced(toolset, "slow"))
    await until(shop.is_slow.is_set)
    assert (await asyncio.wait_for(priced(toolset), 20)).content == "3"
    assert not slow.done()
    shop._server.servers[0].get_loop().call_soon_threadsafe(shop.slow.set)
    assert (await slow).content == "4"
    assert len(shop.tokens) == 2


def test_secrets_and_tokens_are_in_no_plan_no_log_and_no_record(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    declared = shop.declared(issuer=shop.base)

    class Clerk(Agent):
        name = "clerk"
        model = "offline"

        @mcp_server
        def stock(self) -> Any:
            return declared

        async def on_event(self, event: Any, ctx: AgentContext) -> Any:
            said = await ctx.call_tool("price", article=event["article"])
            await ctx.call_tool("price", article="revoke")
            lost = await ctx.call_tool("price", article="plate")
            raise ValueError(f"{said['result']} {lost}")

    output = local_environment().from_list([{"order": "A-1", "article": "cup"}], "order").apply(Clerk)
    (record,) = output.to_list("errors")
    assert f"{shop.base}/token" in str(record)
    plan = compile_plan(Clerk, job_scopes=[]).to_json()
    assert len(shop.tokens) == 1
    events = json.dumps(output.to_list("events"), default=str)
    assert "price" in events
    encoded = base64.b64encode(f"agent:{SECRET}".encode()).decode()
    for secret in (SECRET, encoded, *shop.tokens):
        for place in (str(record), plan, events, caplog.text):
            assert secret not in place


@over_http
def test_a_checked_connection_sends_credentials_to_no_refused_address(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(policy: AddressPolicy, url: str) -> None:
        if url.endswith("/token"):
            raise ConfigError("the address is refused")

    monkeypatch.setattr(AddressPolicy, "check_url", check)
    source = {"url": f"mcp+{shop.base}/mcp", "server": {"auth": shop.declared()["auth"]}}
    with pytest.raises(SourceError, match="the address is refused") as caught:
        open_source("url", source, SourceContext(SkillConfig(OPEN))).resolve()
    assert not caught.value.retryable
    assert shop.requests == []
