"""Search engines for the web search tool: the interface, DuckDuckGo, Google, SearXNG, and a scripted one for tests."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from flink_skills.errors import ConfigError
from flink_skills.hints import none_is_default
from flink_skills.tools.web.addresses import WebError

# https://duckduckgo.com/api
_DUCKDUCKGO = "https://api.duckduckgo.com/"
_SEARCH_PAGE = "https://duckduckgo.com/"
# https://developers.google.com/custom-search/v1/reference/rest/v1/cse/list
_GOOGLE = "https://www.googleapis.com/customsearch/v1"
_API_KEY, _ENGINE_ID = "GOOGLE_CSE_API_KEY", "GOOGLE_CSE_ENGINE_ID"
_SET_BY_TOOL = frozenset({"key", "cx", "q", "num", "siteSearch", "siteSearchFilter"})


@none_is_default
@dataclass(frozen=True)
class SearchRequest:
    """A search. ``count``: results that are wanted, 1 to 10; ``lang``: such as ``en`` or ``de-CH``, may be empty.

    At most one of ``allowed_domains`` and ``blocked_domains`` is set. The tool filters the results by them. A provider
    can restrict its search in addition.
    """

    query: str
    count: int
    lang: str = ""
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()


@none_is_default
@dataclass(frozen=True)
class SearchHit:
    """A result of an engine. The tool removes markup in its texts."""

    title: str
    url: str
    snippet: str = ""


@none_is_default
@dataclass(frozen=True)
class SearchResults:
    """The results, best first, and a message of the engine, such as a better spelling."""

    results: tuple[SearchHit, ...] = ()
    summary: str = ""


@dataclass(frozen=True)
class Response:
    """Response of a server."""

    status: int
    body: bytes = field(repr=False)

    def json(self) -> dict[str, Any]:
        """Return the body as a JSON object. Raises :class:`WebError`."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise WebError("HTTP_ERROR", f"the search engine answered {self.status} without JSON; try again later")
        return value


#: Sends a GET with parameters and headers, within the limits of the tool.
Get = Callable[[str, Mapping[str, str], Mapping[str, str]], Awaitable[Response]]


class SearchProvider(ABC):
    """A search engine. ``name`` is in results."""

    name: str = ""

    def missing(self) -> str:
        """Return the settings that are missing, for the model to report. Return an empty string if there are none."""
        return ""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that are removed from results."""
        return ()

    @abstractmethod
    async def search(self, request: SearchRequest, get: Get) -> SearchResults:
        """Search. Raises :class:`WebError`. Any other exception becomes an ``HTTP_ERROR``."""


class DuckDuckGo(SearchProvider):
    """Instant answers of DuckDuckGo: free, without a key, and only for well-known subjects.

    ``extra_params`` such as ``kl`` or ``region`` are sent along.
    """

    name = "duckduckgo"

    def __init__(self, base_url: str = "", extra_params: Mapping[str, str] | None = None) -> None:
        self._url = base_url or _DUCKDUCKGO
        self._extra = {name: str(value) for name, value in (extra_params or {}).items()}

    async def search(self, request: SearchRequest, get: Get) -> SearchResults:
        query = _query_with_site(request)
        region = {"kl": _region(request.lang)} if request.lang else {}
        fixed = {"q": query, "format": "json", "no_html": "1", "no_redirect": "1", "skip_disambig": "1"}
        response = await get(self._url, {**self._extra, **region, **fixed}, {})
        # This interface answers 202 if it has nothing ready.
        if response.status not in (200, 202):
            raise WebError("HTTP_ERROR", f"duckduckgo answered {response.status}; try again later")
        answer = response.json()
        hits = tuple(_instant_answers(answer))
        summary = str(answer.get("Answer") or answer.get("AbstractText") or answer.get("Definition") or "")
        if hits:
            return SearchResults(hits, summary)
        page = f"{_SEARCH_PAGE}?{urlencode({'q': query, **region})}"
        nothing = "No direct answer; the result is the page that lists what was found."
        return SearchResults((SearchHit(f"DuckDuckGo: {request.query}", page, summary),), summary or nothing)


class Google(SearchProvider):
    """Google's Custom Search. ``api_key`` and ``engine_id`` default to the environment where the tool runs.

    ``extra_params``: ``safe``, ``dateRestrict``, ``gl``, ``cr``, ``filter``, ``sort`` and others of the interface.
    Raises :class:`ConfigError` for those that the tool sets itself.
    """

    name = "google"

    def __init__(
        self, api_key: str = "", engine_id: str = "", base_url: str = "", extra_params: Mapping[str, str] | None = None
    ) -> None:
        self._api_key, self._engine_id = api_key, engine_id
        self._url = base_url or _GOOGLE
        self._extra = {name: str(value) for name, value in (extra_params or {}).items()}
        if taken := sorted(_SET_BY_TOOL & self._extra.keys()):
            raise ConfigError(f"google_extra_params cannot contain {', '.join(taken)}; the tool sets it")

    @property
    def _key(self) -> str:
        return self._api_key or os.environ.get(_API_KEY, "")

    @property
    def _engine(self) -> str:
        return self._engine_id or os.environ.get(_ENGINE_ID, "")

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self._key,) if self._key else ()

    def missing(self) -> str:
        needed = {f"api_key (or {_API_KEY})": self._key, f"engine_id (or {_ENGINE_ID})": self._engine}
        lacking = [name for name, value in needed.items() if not value]
        return f"google needs {' and '.join(lacking)}" if lacking else ""

    async def search(self, request: SearchRequest, get: Get) -> SearchResults:
        several = len(request.allowed_domains) > 1 or len(request.blocked_domains) > 1
        # The tool filters by several domains, so the maximum is requested.
        params = {"cx": self._engine, "q": request.query, "num": "10" if several else str(request.count)}
        if request.lang:
            params["hl"] = request.lang
        for domains, include in ((request.allowed_domains, "i"), (request.blocked_domains, "e")):
            if len(domains) == 1:
                params |= {"siteSearch": domains[0], "siteSearchFilter": include}
        # In a header: URLs are in logs.
        response = await get(self._url, {**self._extra, **params}, {"X-Goog-Api-Key": self._key})
        answer = response.json()
        if response.status != 200 or "error" in answer:
            error = answer.get("error")
            reason = (error.get("message") if isinstance(error, dict) else error) or "an error"
            raise WebError("HTTP_ERROR", f"google answered {response.status}: {reason}")
        hits = tuple(_hit(item, "title", "link", "snippet") for item in _objects(answer.get("items")))
        spelling = answer.get("spelling")
        return SearchResults(hits, _correction(spelling.get("correctedQuery") if isinstance(spelling, dict) else ""))


class SearXNG(SearchProvider):
    """A SearXNG instance that offers JSON (``search.formats`` in its settings).

    ``base_url``: the address of the instance, without ``/search``. Raises :class:`ConfigError` without one.
    """

    name = "searxng"

    def __init__(self, base_url: str) -> None:
        if not base_url:
            raise ConfigError("web_search: the provider searxng requires base_url, the address of an instance")
        self._url = base_url.rstrip("/") + "/search"

    async def search(self, request: SearchRequest, get: Get) -> SearchResults:
        params = {"q": _query_with_site(request), "format": "json"}
        if request.lang:
            params["language"] = request.lang
        response = await get(self._url, params, {})
        if response.status == 403:
            raise WebError("HTTP_ERROR", "searxng answered 403: its settings must have json in search.formats")
        if response.status != 200:
            raise WebError("HTTP_ERROR", f"searxng answered {response.status}; try again later")
        answer = response.json()
        hits = tuple(_hit(entry, "title", "url", "content") for entry in _objects(answer.get("results")))
        corrections = answer.get("corrections")
        return SearchResults(hits, _correction(corrections[0] if isinstance(corrections, list) and corrections else ""))


class ScriptedSearch(SearchProvider):
    """Search engine for tests, without a network. ``asked`` contains the requests.

    ``answer`` contains the results of each search, or is a function that returns them.

    >>> engine = ScriptedSearch([SearchHit("Flink", "https://flink.apache.org/", "Streams.")])
    """

    name = "scripted"

    def __init__(self, answer: Sequence[SearchHit] | SearchResults | Callable[[SearchRequest], SearchResults]) -> None:
        self._answer = answer
        self.asked: list[SearchRequest] = []

    async def search(self, request: SearchRequest, get: Get) -> SearchResults:
        self.asked.append(request)
        if callable(self._answer):
            return self._answer(request)
        return self._answer if isinstance(self._answer, SearchResults) else SearchResults(tuple(self._answer))


def _query_with_site(request: SearchRequest) -> str:
    return f"{request.query} site:{request.allowed_domains[0]}" if len(request.allowed_domains) == 1 else request.query


def _region(lang: str) -> str:
    """Return ``ch-de`` for ``de-CH``, and all regions for a language alone."""
    language, _, country = lang.lower().replace("_", "-").partition("-")
    return f"{country or 'wt'}-{language if country else 'wt'}"


def _instant_answers(answer: Mapping[str, Any]) -> Iterator[SearchHit]:
    for name in ("Abstract", "Definition"):
        if answer.get(f"{name}URL"):
            yield _hit(answer, "Heading", f"{name}URL", "AbstractText" if name == "Abstract" else name)
    for entry in (*_objects(answer.get("Results")), *_objects(answer.get("RelatedTopics"))):
        # Related topics can be in groups, one level deep.
        topics = entry.get("Topics")
        for topic in _objects(topics) if isinstance(topics, list) else (entry,):
            if topic.get("FirstURL"):
                hit = _hit(topic, "Text", "FirstURL", "Text")
                yield replace(hit, title=hit.title.partition(" - ")[0])


def _hit(entry: Mapping[str, Any], *names: str) -> SearchHit:
    """Return the result with the title, URL and snippet of these names."""
    return SearchHit(*(str(entry.get(name) or "") for name in names))


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a JSON array, none for any other value."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _correction(query: Any) -> str:
    return f"Did you mean: {query}" if query else ""
