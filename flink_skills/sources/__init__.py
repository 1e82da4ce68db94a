"""Where skills come from: paths, job-JAR resources and URLs, and the store that keeps what was fetched."""

from flink_skills.sources.base import SkillSource, SourceContext, SourceTree
from flink_skills.sources.registry import open_source, register_source, source_kinds
from flink_skills.sources.spec import SourceSpec

__all__ = [
    "SkillSource",
    "SourceContext",
    "SourceSpec",
    "SourceTree",
    "open_source",
    "register_source",
    "source_kinds",
]
