"""Artifacts: files that turns keep, by name and version, in any place that fsspec knows.

>>> store = ArtifactStore.open(config)                                      # skills.artifacts.dir
>>> store.save(owner_of("triage", '"job-1"'), "report.md", b"# All is well", "text/markdown").version
"""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.artifacts.artifact_names import ArtifactError as ArtifactError
    from flink_skills.artifacts.artifact_names import Reference as Reference
    from flink_skills.artifacts.artifact_names import artifact_ref as artifact_ref
    from flink_skills.artifacts.artifact_names import check_name as check_name
    from flink_skills.artifacts.artifact_names import owner_of as owner_of
    from flink_skills.artifacts.artifact_names import parse_reference as parse_reference
    from flink_skills.artifacts.artifact_store import Artifact as Artifact
    from flink_skills.artifacts.artifact_store import ArtifactStore as ArtifactStore
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
