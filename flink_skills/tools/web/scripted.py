"""A search engine for tests: it finds what it was told to find."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flink_skills.tools.web.provider import Get, SearchHit, SearchProvider, SearchRequest, SearchResults

__all__ = ["ScriptedSearch"]


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
