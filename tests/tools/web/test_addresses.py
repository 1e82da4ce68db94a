"""Where a fetch may lead: private addresses, names that change, redirects."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import httpx
import httpx2
import pytest

from flink_skills.errors import ConfigError
from flink_skills.tools import ToolContext
from flink_skills.tools.web import WebFetchTool, WebSearchTool
from tests.kit.ports import free_port
from tests.tools.web.conftest import Fetch, code_of
from tests.tools.web.site import Names, Site, write_certificate

PRIVATE = (
    "127.0.0.1",
    "127.8.9.1",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "168.63.129.16",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "192.0.0.8",
    "198.18.0.1",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::a00:1",
    "2002:7f00:1::",
    "2001:0:7f00:1::1",
)


@pytest.mark.row("J27", "J24")
@pytest.mark.parametrize("address", PRIVATE)
async def test_a_name_that_leads_to_a_private_address_is_refused(address: str, site: Site, names: Names, fetch: Fetch):
    site.page("/", "<p>secret")
    # One of several is enough: the system would choose among them.
    names.answers["www.example.org"] = [["93.184.216.34", address]]
    result = await fetch(site.at(), block_private_network=True)
    assert code_of(result) == "SSRF_BLOCKED_URL"
    assert result.value["content"] == ""
    assert not site.visits


@pytest.mark.row("J27")
@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "[::1]", "[::ffff:10.0.0.1]", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "localhost"),
        *("a.localhost", "LOCALHOST.", "metadata.google.internal", "169.254.169.254.", "printer.local"),
        # Characters that stand for digits and dots.
        *("127\u30020\u30020\u30021", "\u2460\u2461\u2466.0.0.1"),
    ],
)
async def test_a_literal_private_address_is_refused_however_it_is_spelled(host: str, fetch: Fetch) -> None:
    async def no_name(name: str, port: int) -> list[str]:
        raise OSError("no such name")

    result = await fetch(f"http://{host}:{free_port()}/", block_private_network=True, resolver=no_name)
    assert code_of(result) in ("SSRF_BLOCKED_URL", "INVALID_URL")
    proxy = f"http://127.0.0.1:{free_port()}"
    assert code_of(await fetch(f"http://{host}/", block_private_network=True, proxy=proxy)) == code_of(result)


@pytest.mark.row("J27")
async def test_without_a_resolver_of_its_own_the_tool_asks_the_system(site: Site) -> None:
    site.page("/", "<p>here")
    result = await WebFetchTool(block_private_network=False).call({"url": site.at(host="localhost")}, ToolContext())
    assert result.value["content"] == "here"
    assert [visit.headers["host"] for visit in site.visits] == [f"localhost:{site.port}"]


@pytest.mark.row("J27")
async def test_a_name_is_looked_up_once_and_its_checked_address_is_used(site: Site, names: Names, fetch: Fetch) -> None:
    site.page("/", "<p>here")
    # From the second look-up on, an address at which nothing listens.
    names.answers["www.example.org"] = [["127.0.0.1"], ["127.0.0.3"]]
    assert (await fetch(site.at())).value["content"] == "here"
    assert names.asked == ["www.example.org"]
    assert code_of(await fetch(site.at())) == "HTTP_ERROR"


@pytest.mark.row("J27")
async def test_the_connection_goes_to_the_address_that_was_checked(site: Site, names: Names) -> None:
    """Seen from the client: what it is asked to connect to is the address, never the name."""
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(200, text="hi", headers={"Content-Type": "text/plain"})

    names.answers["www.example.org"] = [["93.184.216.34"], ["127.0.0.1"]]
    names.answers["six.example.org"] = [["2606:2800:220:1::1"]]
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer), auth=("me", "pw")) as client:
        client.headers["Cookie"] = "session=1"
        tool = WebFetchTool(resolver=names, http_client=client)
        for url in ("https://www.example.org/a?b=1", "https://six.example.org:8443/"):
            result = await tool.call({"url": url}, ToolContext())
            assert (result.value["content"], result.value["url"]) == ("hi", url)
        assert not client.is_closed
    assert names.asked == ["www.example.org", "six.example.org"]
    assert [str(request.url) for request in asked] == [
        "https://93.184.216.34/a?b=1",
        "https://[2606:2800:220:1::1]:8443/",
    ]
    assert [request.headers["host"] for request in asked] == ["www.example.org", "six.example.org:8443"]
    assert [request.extensions["sni_hostname"] for request in asked] == ["www.example.org", "six.example.org"]
    # What the client carries was not meant for whatever host a model names.
    assert not any({"authorization", "cookie"} & {*request.headers} for request in asked)


@pytest.mark.row("J27")
async def test_of_several_addresses_the_first_that_answers_is_used(site: Site, names: Names, fetch: Fetch) -> None:
    site.page("/", "<p>here")
    names.answers["www.example.org"] = [["127.0.0.2", "127.0.0.1"]]
    assert (await fetch(site.at())).value["content"] == "here"


@pytest.mark.row("J26", "J27")
async def test_each_redirect_is_checked(site: Site, names: Names, fetch: Fetch) -> None:
    site.page("/secret", "<p>secret")
    site.moved("/to-name", site.at("/secret", host="inner.example.org"))
    site.moved("/to-literal", site.at("/secret", host="127.0.0.1"))
    site.moved("/to-file", "file:///etc/hostname")
    site.moved("/to-user", "http://me:pw@www.example.org/")
    site.moved("/to-nothing", "http://[::1")
    hops = 0

    async def resolver(host: str, port: int) -> list[str]:
        nonlocal hops
        hops += 1
        return ["127.0.0.1"]

    for path, code in {"/to-file": "INVALID_URL", "/to-user": "INVALID_URL", "/to-nothing": "INVALID_URL"}.items():
        assert code_of(await fetch(site.at(path))) == code
    result = await fetch(site.at("/to-name"), blocked_domains=["inner.example.org"])
    assert code_of(result) == "BLOCKED_URL"
    assert code_of(await fetch(site.at("/to-literal"), allowed_domains=["example.org"])) == "BLOCKED_URL"
    assert not [visit for visit in site.visits if visit.path == "/secret"]
    assert (await fetch(site.at("/to-name"), resolver=resolver)).value["content"] == "secret"
    assert hops == 2


@pytest.mark.row("J26", "J27")
async def test_a_redirect_from_a_public_to_a_private_address_is_refused(names: Names) -> None:
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url))
        return httpx2.Response(302, headers={"Location": "http://inner.example.org/latest"})

    names.answers = {"www.example.org": [["93.184.216.34"]], "inner.example.org": [["169.254.169.254"]]}
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer), follow_redirects=True) as client:
        tool = WebFetchTool(resolver=names, http_client=client)
        result = await tool.call({"url": "http://www.example.org/"}, ToolContext())
    assert code_of(result) == "SSRF_BLOCKED_URL"
    assert asked == ["http://93.184.216.34/"]


@pytest.mark.row("J24", "J26")
async def test_redirects_have_an_end(site: Site, fetch: Fetch) -> None:
    site.moved("/loop", "/loop")
    result = await fetch(site.at("/loop"), max_redirects=3)
    assert code_of(result) == "HTTP_ERROR"
    assert "more than 3 redirects" in result.value["error"]
    assert len(site.visits) == 4
    for number in range(5):
        site.moved(f"/{number}", f"{number + 1}", status="307 Temporary Redirect")
    site.page("/5", "<p>end")
    result = await fetch(site.at("/0"))
    assert (result.value["content"], result.value["url"]) == ("end", site.at("/5"))
    assert code_of(await fetch(site.at("/0"), max_redirects=4)) == "HTTP_ERROR"
    result = await fetch(site.at("/0"), follow_redirects=False)
    assert code_of(result) == "HTTP_STATUS"
    assert result.value["status_code"] == 307


@pytest.mark.row("J24")
async def test_with_a_proxy_names_are_looked_up_there(site: Site, names: Names) -> None:
    site.page("/", "<p>by proxy")
    tool = WebFetchTool(proxy=f"http://127.0.0.1:{site.port}", resolver=names)
    result = await tool.call({"url": "http://www.example.org/"}, ToolContext())
    assert result.value["content"] == "by proxy"
    assert names.asked == []
    assert [visit.target for visit in site.visits] == ["http://www.example.org/"]
    with pytest.raises(ConfigError, match="proxy and http_client"):
        WebFetchTool(proxy="http://proxy:1", http_client=httpx2.AsyncClient())


@pytest.mark.parametrize("tool", [WebFetchTool, WebSearchTool])
def test_a_client_of_another_library_is_refused(tool: Callable[..., object]) -> None:
    with pytest.raises(ConfigError, match=r"http_client must be an httpx2\.AsyncClient, not a httpx\.AsyncClient"):
        tool(http_client=httpx.AsyncClient())


@pytest.mark.row("J27")
async def test_the_certificate_must_be_for_the_name_and_not_for_the_address(tmp_path: Path, names: Names) -> None:
    certificate = write_certificate(tmp_path, "www.example.org")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    site = Site()
    await site.start(server)
    site.page("/", "<p>sealed")
    # A handshake that the client breaks off is an error that asyncio logs.
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    trusting = ssl.create_default_context(cafile=str(certificate))
    try:
        async with httpx2.AsyncClient(verify=trusting) as client:
            tool = WebFetchTool(resolver=names, http_client=client, block_private_network=False)
            good = await tool.call({"url": site.at(scheme="https")}, ToolContext())
            assert good.value["content"] == "sealed"
            bad = await tool.call({"url": site.at(scheme="https", host="other.example.org")}, ToolContext())
            assert code_of(bad) == "HTTP_ERROR"
            again = await tool.call({"url": site.at(scheme="https", host="other.example.org")}, ToolContext())
            assert code_of(again) == "HTTP_ERROR", "no connection is found again by its address"
        assert len(site.visits) == 1
    finally:
        await site.close()
