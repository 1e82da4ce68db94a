"""Searches: what engines are asked, what they answer, and what a model gets of it."""

from __future__ import annotations

import json
import logging
import pickle
from datetime import date
from typing import Any

import httpx2
import pytest

from flink_skills.errors import ConfigError
from flink_skills.tools import ToolContext, ToolResult
from flink_skills.tools.web import ScriptedSearch, SearchHit, SearchRequest, SearchResults, WebSearchTool
from tests.tools.web.conftest import code_of
from tests.tools.web.site import Site

KEY = "a-key-that-nobody-may-see"
ITEMS = [
    {
        "title": "<b>State</b> &amp; time",
        "link": "https://docs.example.org/state",
        "snippet": "Keyed\nstate <em>here</em>.",
    },
    {"title": "Second", "link": "https://www.example.com/two?b=1", "snippet": ""},
]


async def search(tool: WebSearchTool, query: Any = "keyed state", **more: Any) -> ToolResult:
    result = await tool.call({"query": query, **more}, ToolContext())
    assert {*result.value} == {"query", "provider", "results", "summary", "error"}
    assert json.loads(result.content) == result.value
    assert result.is_error == bool(result.value["error"])
    return result


def google(site: Site, **options: Any) -> WebSearchTool:
    options = {"api_key": KEY, "engine_id": "engine", "base_url": site.at(host="127.0.0.1"), **options}
    return WebSearchTool("google", **options)


def found(*urls: str) -> WebSearchTool:
    return WebSearchTool(ScriptedSearch([SearchHit(f"title {url}", url, "text") for url in urls]))


def urls_of(result: ToolResult) -> list[str]:
    return [one["url"] for one in result.value["results"]]


async def test_a_snippet_with_a_number_of_thousands_of_digits_is_no_error() -> None:
    tool = WebSearchTool(ScriptedSearch([SearchHit("a", "https://e.org", "&#" + "9" * 5000 + ";")]))
    assert (await search(tool)).value["results"][0]["snippet"].startswith("&#999")


@pytest.mark.row("J28", "J29", "J37")
async def test_google(site: Site) -> None:
    site.page(
        "/", json.dumps({"items": ITEMS, "spelling": {"correctedQuery": "keyed <b>state</b>"}}), "application/json"
    )
    extra = {"safe": "active", "dateRestrict": "m6", "gl": "de", "cr": "countryDE", "filter": "1", "sort": "date"}
    tool = google(site, lang="de", google_extra_params=extra, user_agent="desk/2")
    result = await search(tool)
    assert result.value == {
        "query": "keyed state",
        "provider": "google",
        "results": [
            {"title": "State & time", "url": "https://docs.example.org/state", "snippet": "Keyed state here."},
            {"title": "Second", "url": "https://www.example.com/two?b=1", "snippet": ""},
        ],
        "summary": "Did you mean: keyed state",
        "error": "",
    }
    [visit] = site.visits
    assert visit.query == {**extra, "cx": "engine", "q": "keyed state", "num": "5", "hl": "de"}
    assert (visit.headers["x-goog-api-key"], visit.headers["user-agent"]) == (KEY, "desk/2")
    await search(tool, lang="fr", count=7)
    assert (site.visits[-1].query["hl"], site.visits[-1].query["num"]) == ("fr", "7")


@pytest.mark.row("J28")
async def test_key_and_engine_of_google_may_come_from_the_environment(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("GOOGLE_CSE_API_KEY", "GOOGLE_CSE_ENGINE_ID"):
        monkeypatch.delenv(name, raising=False)
    said = {"error": {"code": 403, "message": f"The key {KEY} has no more quota."}}
    site.page("/", json.dumps(said), "application/json", status="403 Forbidden")
    tool = google(site, api_key="", engine_id="")
    result = await search(tool)
    assert code_of(result) == "NOT_CONFIGURED"
    assert "GOOGLE_CSE_API_KEY" in result.value["summary"]
    assert "GOOGLE_CSE_ENGINE_ID" in result.value["summary"]
    assert not site.visits
    monkeypatch.setenv("GOOGLE_CSE_API_KEY", KEY)
    monkeypatch.setenv("GOOGLE_CSE_ENGINE_ID", "mine")
    assert KEY.encode() not in pickle.dumps(tool)
    with caplog.at_level(logging.DEBUG):
        result = await search(tool)
    assert site.visits[0].query["cx"] == "mine"
    assert site.visits[0].headers["x-goog-api-key"] == KEY
    assert code_of(result) == "HTTP_ERROR"
    assert result.value["summary"] == "google answered 403: The key *** has no more quota."
    own = [record for record in caplog.records if record.name.startswith(("flink_skills", "httpx2"))]
    assert own
    assert not [record for record in own if KEY in record.getMessage()]
    assert KEY not in repr(result)
    assert KEY not in site.visits[0].target


@pytest.mark.row("J30")
async def test_one_domain_is_for_google_to_filter_and_several_for_the_tool(site: Site) -> None:
    items = [{"link": f"https://{host}/"} for host in ("a.example.org", "example.org", "example.com", "notexample.org")]
    site.page("/", json.dumps({"items": items}), "application/json")
    tool = google(site)
    assert len(urls_of(await search(tool, allowed_domains=["www.example.org"]))) == 2
    query = site.visits[-1].query
    assert (query["siteSearch"], query["siteSearchFilter"], query["num"]) == ("example.org", "i", "5")
    assert len(urls_of(await search(tool, blocked_domains=["example.org"]))) == 2
    query = site.visits[-1].query
    assert (query["siteSearch"], query["siteSearchFilter"]) == ("example.org", "e")
    assert len(urls_of(await search(tool, allowed_domains=["example.org", "example.com"]))) == 3
    query = site.visits[-1].query
    assert ("siteSearch" in query, query["num"]) == (False, "10")
    assert urls_of(await search(tool, blocked_domains=["example.org", "example.com"])) == ["https://notexample.org/"]


@pytest.mark.row("J28", "J29", "J37")
async def test_duckduckgo(site: Site) -> None:
    said = {
        "Heading": "Apache Flink",
        "AbstractText": "A framework.",
        "AbstractURL": "https://en.example.org/wiki/Flink",
        "Results": [{"FirstURL": "https://flink.example.org/", "Text": "Official site"}],
        "RelatedTopics": [
            {"FirstURL": "https://duckduckgo.com/Beam", "Text": "Beam - A model."},
            {"Name": "Group", "Topics": [{"FirstURL": "https://duckduckgo.com/Kafka", "Text": "Kafka - A log."}]},
            "nonsense",
        ],
    }
    site.page("/", json.dumps(said), "application/x-javascript", status="202 Accepted")
    tool = WebSearchTool(base_url=site.at(host="127.0.0.1"), lang="de-CH", ddg_extra_params={"region": "x", "kp": "1"})
    result = await search(tool)
    assert result.value["provider"] == "duckduckgo"
    assert result.value["summary"] == "A framework."
    assert result.value["results"][0] == {
        "title": "Apache Flink",
        "url": "https://en.example.org/wiki/Flink",
        "snippet": "A framework.",
    }
    assert [one["title"] for one in result.value["results"][1:]] == ["Official site", "Beam", "Kafka"]
    query = site.visits[0].query
    assert (query["q"], query["format"], query["kl"], query["region"]) == ("keyed state", "json", "ch-de", "x")
    await search(WebSearchTool(base_url=site.at(host="127.0.0.1"), ddg_extra_params={"kl": "us-en"}))
    assert site.visits[1].query["kl"] == "us-en"


@pytest.mark.row("J30")
async def test_where_duckduckgo_has_nothing_the_result_is_its_page(site: Site) -> None:
    site.page("/", json.dumps({"AbstractText": "", "RelatedTopics": [], "Answer": "42"}), "application/json")
    tool = WebSearchTool(base_url=site.at(host="127.0.0.1"))
    result = await search(tool, "a & b")
    assert urls_of(result) == ["https://duckduckgo.com/?q=a+%26+b"]
    assert result.value["summary"] == "42"
    assert not result.is_error
    result = await search(tool, "a b", allowed_domains=["example.org"])
    assert urls_of(result) == [], "that page is of another domain"
    assert site.visits[-1].query["q"] == "a b site:example.org"


async def test_searxng(site: Site) -> None:
    said = {
        "results": [{"title": "A", "url": "https://a.example.org/", "content": "text"}, 7],
        "corrections": ["keyed"],
    }
    site.page("/here/search", json.dumps(said), "application/json")
    tool = WebSearchTool("searxng", base_url=site.at("/here/", host="127.0.0.1"), lang="de")
    result = await search(tool)
    assert result.value["results"] == [{"title": "A", "url": "https://a.example.org/", "snippet": "text"}]
    assert result.value["summary"] == "Did you mean: keyed"
    assert site.visits[0].query == {"q": "keyed state", "format": "json", "language": "de"}
    site.page("/here/search", "no", status="403 Forbidden")
    assert "search.formats" in (await search(tool)).value["error"]
    with pytest.raises(ConfigError, match="base_url"):
        WebSearchTool("searxng")


@pytest.mark.row("J30")
@pytest.mark.parametrize("name", ["google", "duckduckgo", "searxng"])
async def test_an_engine_that_fails_is_a_result(name: str, site: Site) -> None:
    address = site.at(host="127.0.0.1")
    keys = {"api_key": KEY, "engine_id": "e"} if name == "google" else {}
    tool = WebSearchTool(name, base_url=address, timeout=5, **keys)
    for body, status in (("<html>", "200 OK"), ("{}", "500 Oh"), ("[1]", "200 OK"), ("[" * 100_000, "200 OK")):
        site.page("/", body, "application/json", status=status)
        site.pages["/search"] = site.pages["/"]
        result = await search(tool)
        assert code_of(result) == "HTTP_ERROR"
        assert result.value["results"] == []
        assert result.value["summary"]
    site.moved("/", "http://127.0.0.1:1/elsewhere")
    site.pages["/search"] = site.pages["/"]
    count = len(site.visits)
    assert code_of(await search(tool)) == "HTTP_ERROR"
    assert len(site.visits) == count + 1, "a redirect would carry the key elsewhere"
    for shape in ({"items": 7, "results": 7, "RelatedTopics": 7}, {"items": [7], "results": [None], "Results": [{}]}):
        site.page("/", json.dumps(shape), "application/json")
        site.pages["/search"] = site.pages["/"]
        assert not (await search(tool)).is_error
    await site.close()
    assert code_of(await search(tool)) == "HTTP_ERROR"


@pytest.mark.row("J28", "J30")
async def test_an_engine_that_drips_or_sends_too_much(site: Site) -> None:
    async def drip(visit: Any) -> None:
        await visit.head(Content_Type="application/json")
        await site.drip(visit, b" ")

    site.pages["/"] = drip
    result = await search(google(site, timeout=0.2))
    assert "within 0.2 s" in result.value["error"]
    site.page("/", b" " * (3 * 1024 * 1024), "application/json")
    assert (await search(google(site))).is_error


@pytest.mark.row("J29", "J30")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"query": "x"}, "INVALID_QUERY"),
        ({"query": "  x "}, "INVALID_QUERY"),
        ({"query": ""}, "INVALID_QUERY"),
        ({}, "INVALID_ARGS"),
        ({"query": ["a"]}, "INVALID_ARGS"),
        ({"query": "state", "count": "many"}, "INVALID_ARGS"),
        ({"query": "state", "lang": "de&key=1"}, "INVALID_ARGS"),
        ({"query": "state", "allowed_domains": ["a.org"], "blocked_domains": ["b.org"]}, "INVALID_ARGS"),
        ({"query": "state", "allowed_domains": ["not a domain"]}, "INVALID_ARGS"),
    ],
)
async def test_mistakes_of_a_model(arguments: dict[str, Any], code: str) -> None:
    engine = ScriptedSearch([])
    result = await WebSearchTool(engine).call(arguments, ToolContext())
    assert (code_of(result), result.is_error) == (code, True)
    assert engine.asked == []


@pytest.mark.row("J28")
@pytest.mark.parametrize(
    ("setting", "given", "used"),
    [("results_num", 0, 1), ("results_num", 11, 10), ("snippet_len", 1001, 1000), ("title_len", 0, 1)],
)
def test_a_setting_out_of_its_range_is_the_next_one_in_it(
    setting: str, given: int, used: int, caplog: pytest.LogCaptureFixture
) -> None:
    WebSearchTool(ScriptedSearch([]), **{setting: given})  # type: ignore[arg-type]
    assert f"{setting} is {used} instead of {given}" in caplog.text


@pytest.mark.row("J29")
@pytest.mark.parametrize(("count", "used"), [(0, 1), (-3, 1), (50, 10)])
async def test_a_count_out_of_its_range_has_a_note(count: int, used: int) -> None:
    engine = ScriptedSearch([])
    result = await WebSearchTool(engine).call({"query": "state", "count": count}, ToolContext())
    assert engine.asked[0].count == used
    assert result.value["note"] == f"count is {used} instead of {count}: give 1 to 10"


@pytest.mark.row("J28", "J29")
async def test_counts() -> None:
    engine = ScriptedSearch([SearchHit("t", f"https://example.org/{number}") for number in range(30)])
    assert len(urls_of(await search(WebSearchTool(engine)))) == 5
    assert len(urls_of(await search(WebSearchTool(engine, results_num=2)))) == 2
    assert len(urls_of(await search(WebSearchTool(engine, results_num=2), count=10))) == 10
    assert [ask.count for ask in engine.asked] == [5, 2, 10]
    assert engine.asked[0] == SearchRequest("keyed state", 5)


@pytest.mark.row("J28")
async def test_lengths() -> None:
    engine = ScriptedSearch([SearchHit("t" * 500, "https://example.org/", "s" * 2000)])
    for options, title, snippet in (({}, 100, 300), ({"title_len": 7, "snippet_len": 1}, 7, 1)):
        [one] = (await search(WebSearchTool(engine, **options))).value["results"]
        assert (len(one["title"]), len(one["snippet"])) == (title, snippet)


@pytest.mark.row("J28", "J37")
async def test_equal_pages_are_there_once() -> None:
    urls = [
        "https://www.example.org/a/",
        "HTTPS://example.org:443/a?x=1#b",
        "https://example.org/b",
        "http://example.org/b",
    ]
    assert urls_of(await search(found(*urls))) == [urls[0], urls[2], urls[3]]
    everything = WebSearchTool(ScriptedSearch([SearchHit("t", url) for url in urls[:1] * 2]), dedup_urls=False)
    assert urls_of(await search(everything)) == urls[:1] * 2


@pytest.mark.row("J30")
async def test_results_are_links_to_pages_and_plain_text() -> None:
    assert urls_of(await search(found("javascript:alert(1)", "file:///a", "", "https://ok.example.org/"))) == [
        "https://ok.example.org/"
    ]
    hidden = SearchHit("<b>a</b> &lt;i&gt;\u202e", "https://example.org/", "b\u200b \x1b[31mred\n\n c")
    [one] = (await search(WebSearchTool(ScriptedSearch(SearchResults((hidden,), "x <b>y</b>"))))).value["results"]
    assert (one["title"], one["snippet"]) == ("a <i>", "b [31mred c")


@pytest.mark.row("J30")
async def test_domains_hold_whatever_the_engine_does() -> None:
    tool = found("https://a.example.org/", "https://example.com/", "https://example.org.evil.com/", "https://[broken/")
    assert urls_of(await search(tool, allowed_domains=["example.org"])) == ["https://a.example.org/"]
    assert "https://a.example.org/" not in urls_of(await search(tool, blocked_domains=["example.org"]))


@pytest.mark.row("J30")
async def test_an_engine_with_a_bug_is_a_result() -> None:
    def broken(ask: SearchRequest) -> SearchResults:
        raise RuntimeError("a bug")

    result = await search(WebSearchTool(ScriptedSearch(broken)))
    assert code_of(result) == "HTTP_ERROR"


@pytest.mark.row("J37")
async def test_a_client_of_somebody_else(site: Site) -> None:
    site.page("/", "{}", "application/json")

    async def silent(visit: Any) -> None:
        await site.closed.wait()

    async with httpx2.AsyncClient(headers={"User-Agent": "theirs", "X-Team": "desk"}, timeout=None) as client:
        for tool in (google(site, http_client=client, user_agent="ours"), google(site, http_client=client)):
            assert not (await search(tool)).is_error
        assert not client.is_closed
        site.pages["/"] = silent
        assert "within 0.2 s" in (await search(google(site, http_client=client, timeout=0.2))).value["error"]
    assert site.visits[0].headers["user-agent"] == "ours"
    assert site.visits[1].headers["user-agent"].startswith("flink-skills/")
    assert site.visits[0].headers["x-team"] == "desk"


@pytest.mark.row("J28")
async def test_a_proxy(site: Site) -> None:
    site.page("/v1", json.dumps({"items": ITEMS}), "application/json")
    proxy = f"http://127.0.0.1:{site.port}"
    tool = google(site, base_url="http://search.example.org/v1", proxy=proxy)
    assert len(urls_of(await search(tool))) == 2
    assert site.visits[0].target.startswith("http://search.example.org/v1?")


@pytest.mark.row("J28", "J37")
@pytest.mark.parametrize(
    "options",
    [
        {"provider": "altavista"},
        {"timeout": 0},
        {"provider": "google", "google_extra_params": {"key": "x"}},
        {"provider": "google", "google_extra_params": {"q": "x"}},
        {"proxy": "http://proxy:1", "http_client": httpx2.AsyncClient()},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        WebSearchTool(**options)


@pytest.mark.row("J30")
def test_what_a_prompt_should_say() -> None:
    text = WebSearchTool().prompt_addition(date(2026, 11, 23))
    assert "'Sources:'" in text
    assert "November 2026" in text
    assert str(date.today().year) in WebSearchTool().prompt_addition()
