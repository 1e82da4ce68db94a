"""Any SearXNG instance that offers JSON (``search.formats`` in its settings).

https://docs.searxng.org/dev/search_api.html
"""

from __future__ import annotations

from flink_skills.errors import ConfigError
from flink_skills.tools.web.failures import WebError
from flink_skills.tools.web.provider import Get, SearchHit, SearchProvider, SearchRequest, SearchResults

__all__ = ["SearXNG"]


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
