"""What a fetch gives: shapes, kinds of content, lengths, domains, errors."""

from __future__ import annotations

import gc
import gzip
import json
import pickle

import httpx2
import pytest

from flink_skills.errors import ConfigError
from flink_skills.tools import ToolContext
from flink_skills.tools.web import WebFetchTool, charset_of, decode
from flink_skills.tools.web.addresses import same_page
from flink_skills.tools.web.fetch import Page, PageCache
from tests.kit.growth import grows_linearly
from tests.kit.ports import free_port
from tests.tools.web.conftest import Fetch, code_of
from tests.tools.web.site import Names, Site

PAGE = """<!doctype html><html><head><title>Levels &amp; more</title><style>p { color: red }</style>
<script>var hidden = "<p>script</p>";</script></head><body><noscript>no script</noscript>
<template><p>template</p></template>
<svg><text>drawing</text></svg><h2>Levels</h2><p>See <a href="more.html">more</a> and <b>this</b>.</p>
<ul><li>WARN</li><li>ERROR</li></ul><img alt="dot" src="data:image/gif;base64,R0lGODlhAQ"><!-- note --></body></html>"""


@pytest.mark.row("J25", "J27")
async def test_a_page_is_markdown_without_what_is_not_shown(site: Site, fetch: Fetch) -> None:
    site.page("/a/page", PAGE, "text/html; charset=utf-8")
    result = await fetch(site.at("/a/page#part"))
    value = result.value
    assert json.loads(result.content) == value
    assert {*value} == {
        *("url", "status_code", "status_text", "content_type", "content", "bytes", "duration_ms", "cached", "error"),
        "truncated",
    }
    content = value["content"]
    assert content.startswith("Levels & more\n\n## Levels\n\nSee [more](")
    assert f"[more]({site.at('/a/more.html')}) and **this**." in content
    assert "- WARN\n- ERROR" in content
    assert not [word for word in ("script", "template", "drawing", "color", "note", "base64") if word in content]
    assert (value["status_code"], value["status_text"], value["error"]) == (200, "OK", "")
    assert value["url"] == site.at("/a/page")
    assert value["content_type"] == "text/html"
    assert value["bytes"] == len(content.encode())
    assert isinstance(value["duration_ms"], int)
    assert (value["cached"], value["truncated"]) == (False, False)


@pytest.mark.row("J36")
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/plain", "a <b>\n\n\n\nc"),
        ("text/csv; charset=utf-8", "a,ü\n"),
        ("text/markdown", "# Hi <script>x</script>"),
        ("application/json", '{"a":  [1, 2]}'),
        ("application/problem+json", '{"title": "x"}'),
        ("application/xml", "<?xml version='1.0'?><a>ü</a>"),
        ("application/atom+xml", "<feed/>"),
        ("application/yaml", "a: 1\n"),
        ("application/x-yaml", "a: 1\n"),
        ("", "no type at all"),
    ],
)
async def test_text_is_given_as_it_is(kind: str, body: str, site: Site, fetch: Fetch) -> None:
    site.page("/", body, kind)
    result = await fetch(site.at())
    assert (result.value["content"], result.is_error) == (body, False)


@pytest.mark.row("J27")
async def test_a_page_that_says_nothing_of_its_type_is_looked_at(site: Site, fetch: Fetch) -> None:
    site.page("/", "\n<!DOCTYPE html><p>Hi <b>you</b>", "")
    assert (await fetch(site.at())).value["content"] == "Hi **you**"


@pytest.mark.row("J27")
async def test_the_title_is_the_first_line(site: Site, fetch: Fetch) -> None:
    for path, page, first in (
        ("/other", "<title>Shop\n prices</title><h1>Today</h1>", "Shop prices\n\n# Today"),
        ("/same", "<title>Prices</title><h1>Prices</h1><p>1", "# Prices\n\n1"),
        ("/none", "<h1>Prices</h1>", "# Prices"),
    ):
        site.page(path, page, "text/html")
        assert (await fetch(site.at(path))).value["content"] == first


@pytest.mark.row("J26", "J27")
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("image/png", b"\x89PNG"),
        ("image/svg+xml", b"<svg/>"),
        ("application/pdf", b"%PDF-1.7"),
        ("application/octet-stream", b"text, in truth"),
        ("application/zip", b"PK"),
        ("text/html", b"<p>\0\1\2\3\0\0"),
        ("", b"\x7fELF\0\0\0"),
    ],
)
async def test_what_is_no_text_is_refused(kind: str, body: bytes, site: Site, fetch: Fetch) -> None:
    site.page("/", body, kind)
    result = await fetch(site.at())
    assert code_of(result) == "UNSUPPORTED_CONTENT_TYPE"
    assert (result.value["content"], result.value["status_code"]) == ("", 200)


@pytest.mark.row("J25")
async def test_length_is_that_of_the_call_then_that_of_the_tool(site: Site, fetch: Fetch) -> None:
    site.page("/", "x" * 500, "text/plain")

    async def length(arguments: dict[str, object], **tool: object) -> tuple[int, bool]:
        value = (await fetch(site.at(), arguments, **tool)).value
        assert value["bytes"] == len(value["content"])
        assert ("characters" in value.get("note", "")) is value["truncated"]
        return len(value["content"]), value["truncated"]

    assert await length({}) == (500, False)
    assert await length({}, max_content_length=100) == (100, True)
    assert await length({"max_length": 50}, max_content_length=100) == (50, True)
    assert await length({"max_length": 200}, max_content_length=100) == (200, True)
    assert await length({"max_length": 0}, max_content_length=100) == (500, False)
    assert await length({}, max_content_length=0) == (500, False)


@pytest.mark.row("J24")
async def test_defaults(site: Site, fetch: Fetch) -> None:
    site.page("/", "x" * 100_001, "text/plain")
    value = (await fetch(site.at())).value
    assert (len(value["content"]), value["truncated"]) == (100_000, True)
    site.page("/large", "x" * (5 * 1024 * 1024 + 1), "text/plain")
    large = (await fetch(site.at("/large"), {"max_length": 0})).value
    assert (large["bytes"], large["truncated"], large["error"]) == (5 * 1024 * 1024, True, "")
    assert large["note"] == "this is the beginning: the page has more than 5242880 bytes"
    assert (await fetch(site.at("/large"), {"max_length": 0}, max_response_bytes=0)).value["truncated"] is False
    await fetch(site.at())
    assert len(site.visits) == 4, "nothing is kept"
    assert site.visits[0].headers["user-agent"].startswith("flink-skills/")
    await fetch(site.at(), user_agent="desk/2")
    assert site.visits[-1].headers["user-agent"] == "desk/2"


@pytest.mark.row("J26")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, "INVALID_ARGS"),
        ({"url": 7}, "INVALID_ARGS"),
        ({"url": "http://www.example.org", "max_length": -1}, "INVALID_ARGS"),
        ({"url": "http://www.example.org", "max_length": "much"}, "INVALID_ARGS"),
        ({"url": ""}, "INVALID_URL"),
        ({"url": "www.example.org"}, "INVALID_URL"),
        ({"url": "ftp://www.example.org/a"}, "INVALID_URL"),
        ({"url": "file:///etc/hostname"}, "INVALID_URL"),
        ({"url": "http://"}, "INVALID_URL"),
        ({"url": "http://www.example.org:port/"}, "INVALID_URL"),
        ({"url": "http://me:pw@www.example.org/"}, "INVALID_URL"),
        ({"url": "http://www.example.org/" + "x" * 3000}, "INVALID_URL"),
        ({"url": "http://no.example.com"}, "BLOCKED_URL"),
    ],
)
async def test_mistakes_of_a_model_are_results(arguments: dict[str, object], code: str, names: Names) -> None:
    tool = WebFetchTool(resolver=names, blocked_domains=["no.example.com"])
    result = await tool.call(arguments, ToolContext())
    assert (code_of(result), result.is_error) == (code, True)
    assert names.asked == []


@pytest.mark.row("J26")
async def test_what_goes_wrong_on_the_way_is_a_result(site: Site, names: Names, fetch: Fetch) -> None:
    result = await fetch(site.at("/missing"))
    assert code_of(result) == "HTTP_STATUS"
    assert (result.value["status_code"], result.value["status_text"]) == (404, "Not Found")
    assert code_of(await fetch(f"http://www.example.org:{free_port()}/")) == "HTTP_ERROR"
    names.answers["nowhere.example.org"] = [[]]
    result = await fetch("http://nowhere.example.org/")
    assert code_of(result) == "HTTP_ERROR"
    assert "nowhere.example.org has no address" in result.value["error"]

    def broken(request: httpx2.Request) -> httpx2.Response:
        raise RuntimeError("a bug")

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(broken)) as client:
        assert code_of(await fetch(site.at(), http_client=client)) == "FETCH_ERROR"


@pytest.mark.row("J24", "J36")
async def test_domains(site: Site, fetch: Fetch) -> None:
    site.page("/", "ok", "text/plain")

    async def reached(host: str, **lists: object) -> bool:
        result = await fetch(site.at(host=host), **lists)
        assert code_of(result) in ("", "BLOCKED_URL")
        return not result.is_error

    allowed = {"allowed_domains": ["www.Example.org", "*.example.net"]}
    assert [await reached(host, **allowed) for host in ("example.org", "WWW.example.org", "a.b.example.org")] == [
        True
    ] * 3
    assert [await reached(host, **allowed) for host in ("example.org.", "example.net")] == [True] * 2
    assert [await reached(host, **allowed) for host in ("notexample.org", "example.org.evil.com", "org")] == [False] * 3
    both = {"allowed_domains": ["example.org"], "blocked_domains": ["private.example.org"]}
    assert [
        await reached(host, **both) for host in ("example.org", "private.example.org", "a.private.example.org")
    ] == [*(True, False, False)]
    same = {"allowed_domains": ["example.org"], "blocked_domains": ["example.org"]}
    assert not await reached("example.org", **same)
    # A model cannot widen them, and is not told of them.
    result = await fetch(site.at(host="example.com"), {"allowed_domains": [], "blocked_domains": []}, **allowed)
    assert code_of(result) == "BLOCKED_URL"
    assert {*WebFetchTool(**allowed).spec.parameters["properties"]} == {"url", "max_length"}  # type: ignore[arg-type]


@pytest.mark.row("J24")
@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"max_response_bytes": -1},
        {"max_redirects": -1},
        {"max_content_length": -1},
        {"allowed_domains": ["not a domain"]},
        {"blocked_domains": [""]},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        WebFetchTool(**options)  # type: ignore[arg-type]


@pytest.mark.row("J36")
async def test_a_client_of_somebody_else_is_used_and_stays_open(site: Site, fetch: Fetch) -> None:
    site.page("/", gzip.compress(b"packed"), "text/plain", Content_Encoding="gzip")
    async with httpx2.AsyncClient(headers={"X-Team": "desk"}, timeout=1) as client:
        for _ in range(2):
            assert (await fetch(site.at(), http_client=client)).value["content"] == "packed"
        assert not client.is_closed
    assert [visit.headers["x-team"] for visit in site.visits] == ["desk", "desk"]


@pytest.mark.row("J24")
async def test_a_tool_can_be_sent_to_where_it_runs(site: Site) -> None:
    site.page("/", "hi", "text/plain")
    tool = WebFetchTool(block_private_network=False, enable_cache=True)
    address = {"url": site.at(host="127.0.0.1")}
    assert (await tool.call(address, ToolContext())).value["content"] == "hi"
    copy = pickle.loads(pickle.dumps(tool))
    assert (await copy.call(address, ToolContext())).value["content"] == "hi"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def a_page(size: int, url: str = "http://a") -> Page:
    return Page(url, 200, "OK", "text/plain", "x" * size, size)


@pytest.mark.row("J24", "J36")
async def test_a_page_is_fetched_once_within_its_time(site: Site, names: Names, clock: Clock) -> None:
    site.page("/", "hello", "text/plain")
    tool = WebFetchTool(resolver=names, block_private_network=False, enable_cache=True, clock=clock)

    async def get(**more: object) -> tuple[bool, str, str]:
        value = (await tool.call({"url": site.at(), **more}, ToolContext())).value
        assert value["error"] == ""
        return value["cached"], value["content"], value["url"]

    assert await get() == (False, "hello", site.at())
    assert await get() == (True, "hello", site.at())
    assert await get(max_length=2) == (True, "he", site.at())
    assert await get(max_length=0) == (True, "hello", site.at())
    clock.now = 899
    assert (await get())[0]
    clock.now = 900
    assert not (await get())[0], "a hit does not make it younger"
    assert (await get())[0]
    assert len(site.visits) == 2


@pytest.mark.row("J36")
async def test_failures_and_what_must_not_be_stored_are_fetched_again(site: Site, names: Names) -> None:
    site.page("/error", "no", "text/plain", status="500 Oh")
    site.page("/private", "mine", "text/plain", Cache_Control="private, No-Store")
    tool = WebFetchTool(resolver=names, block_private_network=False, enable_cache=True)
    for path in ("/error", "/private"):
        for _ in range(2):
            assert not (await tool.call({"url": site.at(path)}, ToolContext())).value["cached"]
    assert len(site.visits) == 4


@pytest.mark.row("J24")
async def test_pages_are_kept_where_the_tool_is_told_to(site: Site, names: Names) -> None:
    site.page("/", "hello", "text/plain")
    tool = WebFetchTool(resolver=names, block_private_network=False)
    for _ in range(2):
        assert not (await tool.call({"url": site.at()}, ToolContext())).value["cached"]
    assert len(site.visits) == 2


@pytest.mark.row("J36")
def test_an_entry_that_is_too_old_goes_when_it_is_asked_for(clock: Clock) -> None:
    cache = PageCache(10, 10_000, clock)
    cache.put("a", a_page(100))
    clock.now = 10
    assert (len(cache), cache.used > 0) == (1, True)
    assert cache.get("a") is None
    assert (len(cache), cache.used) == (0, 0)


@pytest.mark.row("J36")
def test_entries_stay_within_the_budget(clock: Clock) -> None:
    cache = PageCache(10, 10_000, clock)
    cache.put("large", a_page(10_001))
    assert (len(cache), cache.used) == (0, 0), "skipped, and nothing else goes for it"
    for name in "abc":
        cache.put(name, a_page(2500))
    assert cache.get("a") is not None
    cache.put("d", a_page(2500))
    assert [name for name in "abcd" if cache.get(name)] == ["a", "c", "d"], "the one not used for longest"
    cache.put("c", a_page(10))
    assert cache.used < 2 * 3100 + 600, "a page counts once"
    cache.put("a", a_page(10_001))
    assert cache.get("a") is None, "what is there is not what was fetched last"
    wide = Page("u", 200, "OK", "t", "語" * 3000, 9000)
    cache.put("wide", wide)
    assert cache.get("wide") is None, "such characters take four bytes each"
    assert cache.used <= 10_000


@pytest.mark.row("J27")
@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/a",
        "HTTPS://EXAMPLE.org/a",
        "https://www.example.org/a",
        "https://example.org:443/a",
        "https://example.org/a/",
        "https://example.org./a#part",
    ],
)
def test_spellings_of_one_page(url: str) -> None:
    assert same_page(url) == "https://example.org/a"


@pytest.mark.row("J27")
def test_pages_that_differ() -> None:
    urls = ["https://example.org/a", "http://example.org/a", "https://example.org/A", "https://example.org:8443/a"]
    urls += ["https://example.org/a?b", "https://example.org/a?B", "https://b.example.org/a", "https://[::1]/a"]
    assert len({same_page(url) for url in urls}) == len(urls)
    assert same_page("http://example.org:80/") == same_page("http://example.org")


@pytest.mark.row("J27")
async def test_the_tool_keeps_spellings_as_one(site: Site, names: Names) -> None:
    site.page("/a", "hello", "text/plain")
    tool = WebFetchTool(resolver=names, block_private_network=False, enable_cache=True)
    spellings = [site.at("/a"), site.at("/a/", host="EXAMPLE.org"), site.at("/a#b", scheme="HTTP")]
    cached = [(await tool.call({"url": url}, ToolContext())).value["cached"] for url in spellings]
    assert cached == [False, True, True]


@pytest.mark.row("J24", "J36")
async def test_copies_of_a_tool_share_the_pages_of_their_process(site: Site) -> None:
    site.page("/", "hello", "text/plain")

    def fetcher(**more: object) -> WebFetchTool:
        return WebFetchTool(block_private_network=False, enable_cache=True, **more)  # type: ignore[arg-type]

    async def cached(tool: WebFetchTool) -> bool:
        value = (await tool.call({"url": f"http://127.0.0.1:{site.port}/"}, ToolContext())).value
        assert value["content"] == "hello", value
        return bool(value["cached"])

    tool = fetcher()
    assert not await cached(tool)
    assert await cached(pickle.loads(pickle.dumps(tool)))
    assert await cached(fetcher(name="other")), "the pages are the same under another name"
    for settings in ({"allowed_domains": ["127.0.0.1"]}, {"cache_max_bytes": 100_000}, {"max_response_bytes": 99}):
        assert not await cached(fetcher(**settings)), settings
    del tool
    gc.collect()
    assert not await cached(fetcher()), "pages that no tool needs any more are gone"


async def test_what_one_tool_may_read_does_not_come_to_one_that_may_not(site: Site) -> None:
    site.page("/", "inside", "text/plain")
    url = {"url": f"http://127.0.0.1:{site.port}/"}
    inside = WebFetchTool(block_private_network=False, enable_cache=True)
    assert (await inside.call(url, ToolContext())).value["content"] == "inside"
    outside = await WebFetchTool(enable_cache=True).call(url, ToolContext())
    assert (outside.value["content"], outside.value["error"].split(":")[0]) == ("", "SSRF_BLOCKED_URL")


def test_a_header_is_read_in_linear_time() -> None:
    assert grows_linearly(charset_of, lambda size: "text/html" + ";" * size, 100_000)


@pytest.mark.parametrize("charset", ["cp1253", "iso2022_jp", "utf-16", "gb18030"])
def test_a_body_in_pieces_is_the_same_text(charset: str) -> None:
    body = "a\u03b1\u00e9\u65e5".encode(charset, "ignore") * 40_000 + b"\xff"
    assert decode(body, charset, html=False) == body.decode(charset, "replace")
