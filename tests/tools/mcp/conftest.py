from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from flink_skills.tools.mcp import (
    McpStdioServerParameters,
    McpToolSet,
    SseConnectionParams,
    StdioConnectionParams,
    StreamableHTTPConnectionParams,
)
from tests.kit.ports import free_port, listens
from tests.kit.waiting import wait_until
from tests.tools.mcp.skills_site import Site, write_skill

SERVER = Path(__file__).with_name("shop_server.py")
DEADLINE = 60.0
STDIO = StdioConnectionParams(McpStdioServerParameters(sys.executable, (str(SERVER), "stdio")), sandbox=False)


class HttpServer:
    """A server process behind HTTP, always at the same port."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{'sse' if self.kind == 'sse' else 'mcp'}"

    def start(self) -> None:
        self.process = subprocess.Popen([sys.executable, str(SERVER), self.kind, str(self.port)])
        process = self.process
        wait_until(lambda: listens(self.port) or process.poll() is not None, "the server to listen", within=DEADLINE)
        assert process.poll() is None

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(DEADLINE)
            self.process = None


StartHttp = Callable[[str], HttpServer]
ConnectionParams = StdioConnectionParams | SseConnectionParams | StreamableHTTPConnectionParams
OpenToolSet = Callable[..., Awaitable[McpToolSet]]


@pytest.fixture
def http_server() -> Iterator[StartHttp]:
    servers: list[HttpServer] = []

    def make(kind: str) -> HttpServer:
        servers.append(HttpServer(kind))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


def reached(server: HttpServer) -> SseConnectionParams | StreamableHTTPConnectionParams:
    return (SseConnectionParams if server.kind == "sse" else StreamableHTTPConnectionParams)(server.url)


@pytest.fixture(params=["stdio", "sse", "streamable-http"])
def params(request: pytest.FixtureRequest, http_server: StartHttp) -> ConnectionParams:
    """Return the parameters of a server that only this test uses, over each transport."""
    if request.param == "stdio":
        return STDIO
    server = http_server(request.param)
    server.start()
    return reached(server)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["stdio", "sse", "streamable-http"])
async def shared(request: pytest.FixtureRequest) -> AsyncIterator[McpToolSet]:
    """Connect to a server with tools, prompts and resources, over each transport. The tests of a module share it."""
    server = HttpServer(request.param)
    if request.param != "stdio":
        server.start()
    toolset = McpToolSet(
        STDIO if request.param == "stdio" else reached(server), prefix="shop_", prompts=True, resources=True
    )
    await toolset.initialize()
    yield toolset
    await toolset.close()
    server.stop()


@pytest.fixture
async def opened() -> AsyncIterator[OpenToolSet]:
    """Makes tool sets that are connected, and closes them."""
    sets: list[McpToolSet] = []

    async def make(params: Any, **arguments: Any) -> McpToolSet:
        sets.append(McpToolSet(params, **arguments))
        await sets[-1].initialize()
        return sets[-1]

    yield make
    for toolset in sets:
        await toolset.close()


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Start servers of skills."""
    sites: list[Site] = []

    def make(*skills: str, more: str = "", transport: str = "http") -> Site:
        folder = tmp_path / f"site-{len(sites)}"
        folder.mkdir()
        for skill in skills or ("acme/refunds",):
            write_skill(folder / skill, more)
        sites.append(Site(folder, tmp_path / "store", transport))
        return sites[-1]

    yield make
    for site in sites:
        site.close()


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()
