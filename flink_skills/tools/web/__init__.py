"""Tools that reach the web: ``web_fetch`` and ``web_search``. They need the extra ``web``."""

from flink_skills.tools.web.failures import WebError
from flink_skills.tools.web.fetch import WebFetchTool
from flink_skills.tools.web.markdown import to_markdown
from flink_skills.tools.web.network import Resolver
from flink_skills.tools.web.provider import SearchHit, SearchProvider, SearchRequest, SearchResults
from flink_skills.tools.web.scripted import ScriptedSearch
from flink_skills.tools.web.search import WebSearchTool, sources_policy
from flink_skills.tools.web.texts import charset_of, decode

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
