"""DuckDuckGo's Instant Answer interface: free, without a key, and with answers for well-known subjects only.

https://duckduckgo.com/api
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from flink_skills.tools.web.failures import WebError
from flink_skills.tools.web.provider import Get, SearchHit, SearchProvider, SearchRequest, SearchResults

__all__ = ["DuckDuckGo"]

_API = "https://api.duckduckgo.com/"
_SEARCH_PAGE = "https://duckduckgo.com/"


class DuckDuckGo(SearchProvider):
    """``extra_params`` such as ``kl`` or ``region`` are sent along."""

    name = "duckduckgo"

    def __init__(self, base_url: str = "", extra_params: Mapping[str, str] | None = None) -> None:
        self._url = base_url or _API
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
