"""Where skills come from: paths, job-JAR resources and URLs, and the store that keeps what was fetched."""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.sources.address import AddressPolicy as AddressPolicy
    from flink_skills.sources.address import host_of as host_of
    from flink_skills.sources.address import is_reserved as is_reserved
    from flink_skills.sources.downloads import RemoteFile as RemoteFile
    from flink_skills.sources.entries import ArchiveRefusedError as ArchiveRefusedError
    from flink_skills.sources.prefixes import AllowedPrefixes as AllowedPrefixes
    from flink_skills.sources.skill_source import CodeSource as CodeSource
    from flink_skills.sources.skill_source import SkillSource as SkillSource
    from flink_skills.sources.skill_source import SourceContext as SourceContext
    from flink_skills.sources.skill_source import SourceSpec as SourceSpec
    from flink_skills.sources.skill_source import SourceTree as SourceTree
    from flink_skills.sources.skill_source import open_source as open_source
    from flink_skills.sources.skill_source import register_source as register_source
    from flink_skills.sources.skill_source import source_kinds as source_kinds
    from flink_skills.sources.skill_source import unregister_source as unregister_source
    from flink_skills.sources.store import Store as Store
    from flink_skills.sources.store import StoredTree as StoredTree
    from flink_skills.sources.store import remove_tree as remove_tree
    from flink_skills.sources.upkeep import FetchRecord as FetchRecord
    from flink_skills.sources.wellknown import INDEX_PATH as INDEX_PATH
    from flink_skills.sources.wellknown import SCHEMA as SCHEMA
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
