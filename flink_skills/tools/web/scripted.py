"""A search engine for tests: it finds what it was told to find."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flink_skills.tools.web.provider import Answer, Ask, Found, Get, SearchProvider

__all__ = ["ScriptedSearch"]


class ScriptedSearch(SearchProvider):
    """Answers without a network, with the same results each time or with those of a function; keeps what was asked.

    >>> engine = ScriptedSearch([Found("Flink", "https://flink.apache.org/", "Streams.")])
    """

    name = "scripted"

    def __init__(self, answer: Sequence[Found] | Answer | Callable[[Ask], Answer]) -> None:
        self._answer = answer
        self.asked: list[Ask] = []

    async def search(self, ask: Ask, get: Get) -> Answer:
        self.asked.append(ask)
        if callable(self._answer):
            return self._answer(ask)
        return self._answer if isinstance(self._answer, Answer) else Answer(tuple(self._answer))
