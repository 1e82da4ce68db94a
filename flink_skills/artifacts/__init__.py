"""Artifacts: files that turns keep, by name and version, in any place that fsspec knows.

>>> store = ArtifactStore.open(config)                                      # skills.artifacts.dir
>>> store.save(owner_of("triage", '"job-1"'), "report.md", b"# All is well", "text/markdown").version
"""

from flink_skills.artifacts.artifact_names import (
    SCHEMES,
    ArtifactError,
    Reference,
    artifact_ref,
    check_name,
    owner_of,
    parse_reference,
)
from flink_skills.artifacts.artifact_store import Artifact, ArtifactStore

__all__ = [
    "SCHEMES",
    "Artifact",
    "ArtifactError",
    "ArtifactStore",
    "Reference",
    "artifact_ref",
    "check_name",
    "owner_of",
    "parse_reference",
]
