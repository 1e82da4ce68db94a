"""Every rule that an overlay must satisfy, in the order in which findings are most useful."""

from __future__ import annotations

from deploy.check import schemas
from deploy.check.finding import Rule
from deploy.check.rules import (
    access,
    flink,
    images,
    isolation,
    job_files,
    memory,
    network,
    pods,
    references,
    secret_values,
    skills,
    state,
)

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    schemas.flink_kinds,
    schemas.kubernetes_kinds,
    pods.merge_by_name,
    pods.nothing_lost,
    pods.main_container,
    schemas.merged_pods,
    pods.mounts_and_volumes,
    pods.sized_volumes,
    isolation.restricted,
    isolation.writable_folders,
    flink.names,
    flink.refused_keys,
    flink.of_the_cluster,
    memory.values,
    memory.memory_of_flink,
    memory.memory_beside_the_jvm,
    flink.sessions,
    flink.logs,
    flink.metrics,
    state.checkpoints_and_availability,
    state.shared_folders,
    state.table_folders,
    skills.options,
    skills.sources,
    skills.folders,
    skills.sizes,
    skills.one_component,
    skills.addresses,
    skills.lock_file,
    skills.tracing,
    job_files.job_files,
    job_files.references,
    job_files.model_keys,
    references.objects_exist,
    secret_values.by_reference,
    images.pinned,
    access.listed_verbs,
    access.enough,
    access.bindings,
    network.policy,
    network.destinations,
    network.disruption_budgets,
    network.spread,
)
