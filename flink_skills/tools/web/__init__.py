"""Tools that reach the web: ``web_fetch`` and ``web_search``. They need the extra ``web``."""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.tools.web.addresses import Resolver as Resolver
    from flink_skills.tools.web.addresses import WebError as WebError
    from flink_skills.tools.web.fetch import WebFetchTool as WebFetchTool
    from flink_skills.tools.web.search import WebSearchTool as WebSearchTool
    from flink_skills.tools.web.search import sources_policy as sources_policy
    from flink_skills.tools.web.search_providers import ScriptedSearch as ScriptedSearch
    from flink_skills.tools.web.search_providers import SearchHit as SearchHit
    from flink_skills.tools.web.search_providers import SearchProvider as SearchProvider
    from flink_skills.tools.web.search_providers import SearchRequest as SearchRequest
    from flink_skills.tools.web.search_providers import SearchResults as SearchResults
    from flink_skills.tools.web.web_pages import charset_of as charset_of
    from flink_skills.tools.web.web_pages import decode as decode
    from flink_skills.tools.web.web_pages import to_markdown as to_markdown
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
