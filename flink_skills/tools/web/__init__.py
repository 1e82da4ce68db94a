"""Tools that reach the web: ``web_fetch`` and ``web_search``. They need the extra ``web``."""

from flink_skills.tools.web.addresses import Resolver, WebError
from flink_skills.tools.web.fetch import WebFetchTool
from flink_skills.tools.web.search import WebSearchTool, sources_policy
from flink_skills.tools.web.search_providers import (
    ScriptedSearch,
    SearchHit,
    SearchProvider,
    SearchRequest,
    SearchResults,
)
from flink_skills.tools.web.web_pages import charset_of, decode, to_markdown

__all__ = [
    "Resolver",
    "ScriptedSearch",
    "SearchHit",
    "SearchProvider",
    "SearchRequest",
    "SearchResults",
    "WebError",
    "WebFetchTool",
    "WebSearchTool",
    "charset_of",
    "decode",
    "sources_policy",
    "to_markdown",
]
