"""Search engines for the web search tool: the interface, DuckDuckGo, Google, SearXNG, and a scripted one for tests."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from flink_skills.errors import ConfigError
from flink_skills.hints import none_is_default
from flink_skills.tools.web.addresses import WebError

__all__ = [
    "API_KEY",
    "ENGINE_ID",
    "DuckDuckGo",
    "Get",
    "Google",
    "Response",
    "ScriptedSearch",
    "SearXNG",
    "SearchHit",
    "SearchProvider",
    "SearchRequest",
    "SearchResults",
]


@none_is_default
@dataclass(frozen=True)
class SearchRequest:
    """A search. ``count``: results that are wanted, 1 to 10; ``lang``: such as ``en`` or ``de-CH``, may be empty.

    Of ``allowed_domains`` and ``blocked_domains`` one at most is given. The tool filters by them whatever a provider
    does; ``site`` may still spare an engine from finding what is then left out.
    """

    query: str
    count: int
    lang: str = ""
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()


@none_is_default
@dataclass(frozen=True)
class SearchHit:
    """One result, as the engine gives it: texts may have markup, which the tool takes out."""

    title: str
    url: str
    snippet: str = ""


@none_is_default
@dataclass(frozen=True)
class SearchResults:
    """The results, best first, and what else the engine says, such as a better spelling."""

    results: tuple[SearchHit, ...] = ()
    summary: str = ""


@dataclass(frozen=True)
class Response:
    """What a server answered."""

    status: int
    body: bytes = field(repr=False)

    def json(self) -> dict[str, Any]:
        """The body as a JSON object; raises :class:`WebError`."""
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
        """What has to be set before it can search, for a model to pass on; empty if nothing."""
        return ""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must not be in results, whatever a server sends back."""
        return ()

    @abstractmethod
    async def search(self, request: SearchRequest, get: Get) -> SearchResults:
        """Search. Raises :class:`WebError`; anything else that it raises becomes an ``HTTP_ERROR``."""


_DUCKDUCKGO = "https://api.duckduckgo.com/"
_SEARCH_PAGE = "https://duckduckgo.com/"


class DuckDuckGo(SearchProvider):
    """``extra_params`` such as ``kl`` or ``region`` are sent along."""

    name = "duckduckgo"

    def __init__(self, base_url: str = "", extra_params: Mapping[str, str] | None = None) -> None:
        self._url = base_url or _DUCKDUCKGO
        self._extra = {name: str(value) for name, value in (extra_params or {}).items()}

    async def search(self, request: SearchRequest, get: Get) -> SearchResults:
        query = _with_site(request)
        more = {"kl": _region(request.lang)} if request.lang else {}
        fixed = {"q": query, "format": "json", "no_html": "1", "no_redirect": "1", "skip_disambig": "1"}
        response = await get(self._url, {**self._extra, **more, **fixed}, {})
        # This interface answers 202 where it has nothing ready.
        if response.status not in (200, 202):
            raise WebError("HTTP_ERROR", f"duckduckgo answered {response.status}; try again later")
        said = response.json()
        found = tuple(_results(said))
        summary = str(said.get("Answer") or said.get("AbstractText") or said.get("Definition") or "")
        if found:
            return SearchResults(found, summary)
        page = f"{_SEARCH_PAGE}?{urlencode({'q': query, **more})}"
        nothing = "No direct answer; the result is the page that lists what was found."
        return SearchResults((SearchHit(f"DuckDuckGo: {request.query}", page, summary),), summary or nothing)


def _with_site(request: SearchRequest) -> str:
    return f"{request.query} site:{request.allowed_domains[0]}" if len(request.allowed_domains) == 1 else request.query


def _region(lang: str) -> str:
    """``de-CH`` as ``ch-de``; of a language alone, all regions."""
    language, _, country = lang.lower().replace("_", "-").partition("-")
    return f"{country or 'wt'}-{language if country else 'wt'}"


def _results(said: Mapping[str, Any]) -> Iterator[SearchHit]:
    if said.get("AbstractURL"):
        yield SearchHit(_text(said, "Heading"), _text(said, "AbstractURL"), _text(said, "AbstractText"))
    if said.get("DefinitionURL"):
        yield SearchHit(_text(said, "Heading"), _text(said, "DefinitionURL"), _text(said, "Definition"))
    for group in ("Results", "RelatedTopics"):
        entries = said.get(group)
        for entry in entries if isinstance(entries, list) else ():
            if not isinstance(entry, dict):
                continue
            # Related topics may be in groups, one level deep.
            topics = entry.get("Topics")
            for topic in topics if isinstance(topics, list) else (entry,):
                if isinstance(topic, dict) and topic.get("FirstURL"):
                    text = _text(topic, "Text")
                    yield SearchHit(text.partition(" - ")[0], _text(topic, "FirstURL"), text)


def _text(entry: Mapping[str, Any], name: str) -> str:
    return str(entry.get(name) or "")


_GOOGLE = "https://www.googleapis.com/customsearch/v1"
API_KEY, ENGINE_ID = "GOOGLE_CSE_API_KEY", "GOOGLE_CSE_ENGINE_ID"
_OURS = frozenset({"key", "cx", "q", "num", "siteSearch", "siteSearchFilter"})


class Google(SearchProvider):
    """``api_key`` and ``engine_id`` are read from the environment where the tool runs, unless they are given.

    ``extra_params``: ``safe``, ``dateRestrict``, ``gl``, ``cr``, ``filter``, ``sort`` and others of the interface.
    Raises :class:`ConfigError` for those that the tool sets itself.
    """

    name = "google"

    def __init__(
        self, api_key: str = "", engine_id: str = "", base_url: str = "", extra_params: Mapping[str, str] | None = None
    ) -> None:
        self._given_key, self._given_engine = api_key, engine_id
        self._url = base_url or _GOOGLE
        self._extra = {name: str(value) for name, value in (extra_params or {}).items()}
        if taken := sorted(_OURS & self._extra.keys()):
            raise ConfigError(f"google_extra_params cannot contain {', '.join(taken)}; the tool sets it")

    @property
    def _key(self) -> str:
        return self._given_key or os.environ.get(API_KEY, "")

    @property
    def _engine(self) -> str:
        return self._given_engine or os.environ.get(ENGINE_ID, "")

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self._key,) if self._key else ()

    def missing(self) -> str:
        needed = {f"api_key (or {API_KEY})": self._key, f"engine_id (or {ENGINE_ID})": self._engine}
        lacking = [name for name, value in needed.items() if not value]
        return f"google needs {' and '.join(lacking)}" if lacking else ""

    async def search(self, request: SearchRequest, get: Get) -> SearchResults:
        several = len(request.allowed_domains) > 1 or len(request.blocked_domains) > 1
        # What is filtered out here is made up for by asking for as many as there may be.
        asked = {"cx": self._engine, "q": request.query, "num": "10" if several else str(request.count)}
        if request.lang:
            asked["hl"] = request.lang
        for domains, include in ((request.allowed_domains, "i"), (request.blocked_domains, "e")):
            if len(domains) == 1:
                asked |= {"siteSearch": domains[0], "siteSearchFilter": include}
        # In a header: URLs are in logs.
        response = await get(self._url, {**self._extra, **asked}, {"X-Goog-Api-Key": self._key})
        said = response.json()
        if response.status != 200 or "error" in said:
            raise WebError("HTTP_ERROR", f"google answered {response.status}: {_problem(said)}")
        items = said.get("items")
        return SearchResults(
            tuple(_found(item) for item in (items if isinstance(items, list) else ()) if isinstance(item, dict)),
            _spelling(said),
        )


def _problem(said: Mapping[str, Any]) -> str:
    error = said.get("error")
    return str(error.get("message") or "an error") if isinstance(error, dict) else str(error or "an error")


def _spelling(said: Mapping[str, Any]) -> str:
    spelling = said.get("spelling")
    better = spelling.get("correctedQuery") if isinstance(spelling, dict) else ""
    return f"Did you mean: {better}" if better else ""


def _found(item: Mapping[str, Any]) -> SearchHit:
    return SearchHit(str(item.get("title") or ""), str(item.get("link") or ""), str(item.get("snippet") or ""))


class SearXNG(SearchProvider):
    """``base_url``: where the instance is, without ``/search``. Raises :class:`ConfigError` without one."""

    name = "searxng"

    def __init__(self, base_url: str) -> None:
        if not base_url:
            raise ConfigError("web_search: the provider searxng requires base_url, the address of an instance")
        self._url = base_url.rstrip("/") + "/search"

    async def search(self, request: SearchRequest, get: Get) -> SearchResults:
        query = (
            f"{request.query} site:{request.allowed_domains[0]}" if len(request.allowed_domains) == 1 else request.query
        )
        asked = {"q": query, "format": "json"}
        if request.lang:
            asked["language"] = request.lang
        response = await get(self._url, asked, {})
        if response.status == 403:
            raise WebError("HTTP_ERROR", "searxng answered 403: its settings must have json in search.formats")
        if response.status != 200:
            raise WebError("HTTP_ERROR", f"searxng answered {response.status}; try again later")
        said = response.json()
        results = said.get("results")
        found = tuple(
            SearchHit(str(entry.get("title") or ""), str(entry.get("url") or ""), str(entry.get("content") or ""))
            for entry in (results if isinstance(results, list) else ())
            if isinstance(entry, dict)
        )
        corrections = said.get("corrections")
        better = corrections[0] if isinstance(corrections, list) and corrections else ""
        return SearchResults(found, f"Did you mean: {better}" if better else "")


class ScriptedSearch(SearchProvider):
    """Answers without a network, with the same results each time or with those of a function; keeps what was asked.

    >>> engine = ScriptedSearch([Found("Flink", "https://flink.apache.org/", "Streams.")])
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
