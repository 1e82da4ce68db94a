"""Pages that are kept: for how long, how many, and under which URLs.

Examines the internals of tools.web.fetch and tools.web.addresses on purpose.
"""

from __future__ import annotations

import gc
import pickle

import pytest

from flink_skills.tools import ToolContext
from flink_skills.tools.web import WebFetchTool
from flink_skills.tools.web.addresses import same_page
from flink_skills.tools.web.fetch import Page, PageCache
from tests.tools.web.site import Names, Site


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
