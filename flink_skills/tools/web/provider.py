"""What a search engine has to do for :class:`~flink_skills.tools.web.search.WebSearchTool`."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flink_skills.hints import none_is_default
from flink_skills.tools.web.failures import WebError

__all__ = ["Get", "Response", "SearchHit", "SearchProvider", "SearchRequest", "SearchResults"]


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
