"""Google's Custom Search JSON interface.

https://developers.google.com/custom-search/v1/reference/rest/v1/cse/list
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from flink_skills.errors import ConfigError
from flink_skills.tools.web.failures import WebError
from flink_skills.tools.web.provider import Get, SearchHit, SearchProvider, SearchRequest, SearchResults

__all__ = ["API_KEY", "ENGINE_ID", "Google"]

_API = "https://www.googleapis.com/customsearch/v1"
API_KEY, ENGINE_ID = "GOOGLE_CSE_API_KEY", "GOOGLE_CSE_ENGINE_ID"
_OURS = frozenset({"key", "cx", "q", "num", "siteSearch", "siteSearchFilter"})


class Google(SearchProvider):
    """``api_key`` and ``engine_id`` are read from the environment where the tool runs, unless they are given.

    ``extra_params``: ``safe``, ``dateRestrict``, ``gl``, ``cr``, ``filter``, ``sort`` and others of the interface.
    Raises :class:`ConfigError` for those that the tool sets itself.
    """

    name = "google"

    def __init__(
        self,
        api_key: str = "",
        engine_id: str = "",
        base_url: str = "",
        extra_params: Mapping[str, str] | None = None,
    ) -> None:
        self._given_key, self._given_engine = api_key, engine_id
        self._url = base_url or _API
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
