"""Rules about checkpoints, savepoints and high availability."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from deploy.check.finding import Finding, Manifests
from deploy.check.pods import Cluster, clusters

__all__ = ["checkpoints_and_availability", "shared_folders"]

INTERVAL = "execution.checkpointing.interval"
CHECKPOINTS = "execution.checkpointing.dir"
SAVEPOINTS = "execution.checkpointing.savepoint-dir"
STORAGE = "high-availability.storageDir"
AVAILABILITY = "high-availability.type"
OLD = {
    "state.checkpoints.dir": CHECKPOINTS,
    "state.savepoints.dir": SAVEPOINTS,
    "high-availability": AVAILABILITY,
    "state.backend": "state.backend.type",
    "state.backend.incremental": "execution.checkpointing.incremental",
}


def checkpoints_and_availability(manifests: Manifests) -> Iterator[Finding]:
    """Upgrades, checkpoints, savepoints, high availability and standby JobManagers fit together."""
    for cluster in clusters(manifests):
        for message in _problems(cluster, _upgrade_modes(cluster, manifests)):
            yield Finding(cluster.place, message)


def _upgrade_modes(cluster: Cluster, manifests: Manifests) -> set[str]:
    jobs = [cluster.spec["job"]] if "job" in cluster.spec else []
    jobs += [
        job["spec"]["job"]
        for job in manifests.of_kind("FlinkSessionJob")
        if job["spec"].get("deploymentName") == cluster.name and "job" in job["spec"]
    ]
    return {job.get("upgradeMode", "stateless") for job in jobs}


def _problems(cluster: Cluster, modes: set[str]) -> Iterator[str]:
    configuration = cluster.configuration
    for key in sorted(set(OLD) & set(configuration)):
        yield f"flinkConfiguration.{key} is of Flink 1: write {OLD[key]}"
    if INTERVAL not in configuration:
        yield f"{INTERVAL} is not set: a lost TaskManager would be a failed job"
    for mode in sorted(modes):
        if mode == "stateless":
            yield "upgradeMode stateless: an upgrade would forget sessions and unfinished turns; take last-state"
        elif CHECKPOINTS not in configuration:
            yield f"upgradeMode {mode} needs {CHECKPOINTS}"
        if mode == "savepoint" and SAVEPOINTS not in configuration:
            yield f"upgradeMode savepoint needs {SAVEPOINTS}"
        if mode == "last-state" and not _available(configuration):
            yield f"upgradeMode last-state after a failure needs {AVAILABILITY}: kubernetes"
    if _available(configuration) and STORAGE not in configuration:
        yield f"{AVAILABILITY} needs {STORAGE}"
    if _available(configuration) and CHECKPOINTS not in configuration:
        yield f"{AVAILABILITY} without {CHECKPOINTS} finds a job again, and not its state"
    if int(cluster.spec.get("jobManager", {}).get("replicas", 1)) > 1 and not _available(configuration):
        yield f"several JobManagers need {AVAILABILITY}: kubernetes"
    if "kubernetes.operator.periodic.savepoint.interval" in configuration and SAVEPOINTS not in configuration:
        yield f"periodic savepoints need {SAVEPOINTS}"
    if configuration.get("kubernetes.operator.deployment.rollback.enabled") == "true" and not _available(configuration):
        yield f"a rollback by the operator needs {AVAILABILITY}: kubernetes"


def _available(configuration: dict[str, str]) -> bool:
    return configuration.get(AVAILABILITY, "NONE").lower() not in ("none", "")


def shared_folders(manifests: Manifests) -> Iterator[Finding]:
    """A folder for state is an object store, or on a volume that outlives its pod, mounted at one path in both pods."""
    for cluster in clusters(manifests):
        for key in (CHECKPOINTS, SAVEPOINTS, STORAGE):
            if key not in cluster.configuration:
                continue
            address = urlsplit(cluster.configuration[key])
            if not address.scheme:
                yield Finding(cluster.place, f"{key}: write a scheme, such as s3://… or file:///…")
            elif address.scheme == "file":
                for role in cluster.pods:
                    if (kind := _volume_below(cluster, role, address.path)) != "persistentVolumeClaim":
                        where = f"on a volume of kind {kind}" if kind else "on no volume"
                        yield Finding(
                            cluster.place, f"{key}: {address.path} is {where} in the {role}, and ends with its pod"
                        )


def _volume_below(cluster: Cluster, role: str, path: str) -> str | None:
    spec = cluster.pods[role]["spec"]
    mounts = [mount for container in spec.get("containers", [])[:1] for mount in container.get("volumeMounts", [])]
    around = [mount for mount in mounts if f"{path}/".startswith(mount["mountPath"].rstrip("/") + "/")]
    if not around:
        return None
    mount = max(around, key=lambda found: len(found["mountPath"]))
    volume: dict[str, object] = next(
        (volume for volume in spec.get("volumes", []) if volume["name"] == mount["name"]), {}
    )
    return next(iter(sorted(set(volume) - {"name"})), None)
