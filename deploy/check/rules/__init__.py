"""Every rule that an overlay must satisfy, in the order in which findings are most useful."""

from __future__ import annotations

from deploy.check import schemas
from deploy.check.finding import Rule
from deploy.check.rules import access, flink, images, isolation, network, pods, references, secret_values, skills, state

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
    flink.memory_beside_the_jvm,
    flink.sessions,
    flink.logs,
    flink.metrics,
    state.checkpoints_and_availability,
    state.shared_folders,
    skills.options,
    skills.sources,
    skills.folders,
    skills.job_files,
    references.objects_exist,
    secret_values.by_reference,
    images.pinned,
    access.listed_verbs,
    access.enough,
    access.bindings,
    network.policy,
    network.disruption_budgets,
)
