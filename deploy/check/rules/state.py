"""Rules about checkpoints, savepoints and high availability."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from deploy.check.finding import Finding, Manifests
from deploy.check.jobs import Job, jobs
from deploy.check.mounts import mount_around, volume_of, within
from deploy.check.pods import Cluster
from deploy.check.quantities import read_count, read_duration
from deploy.check.tables import table_options

__all__ = ["checkpoints_and_availability", "shared_folders", "table_folders"]

INTERVAL = "execution.checkpointing.interval"
CHECKPOINTS = "execution.checkpointing.dir"
SAVEPOINTS = "execution.checkpointing.savepoint-dir"
STORAGE = "high-availability.storageDir"
AVAILABILITY = "high-availability.type"
# What outlives a pod. An ephemeral volume is deleted with it.
LASTING = ("persistentVolumeClaim", "nfs", "csi", "hostPath")
OLD = {
    "state.checkpoints.dir": CHECKPOINTS,
    "state.savepoints.dir": SAVEPOINTS,
    "high-availability": AVAILABILITY,
    "state.backend": "state.backend.type",
    "state.backend.incremental": "execution.checkpointing.incremental",
}


def checkpoints_and_availability(manifests: Manifests) -> Iterator[Finding]:
    """Upgrades, checkpoints, savepoints, high availability and standby JobManagers fit together."""
    for job in jobs(manifests):
        for message in [*_of_cluster(job.cluster), *_of_job(job)]:
            yield Finding(job.cluster.place, message)


def _of_job(job: Job) -> Iterator[str]:
    for key in sorted(set(OLD) & set(job.settings)):
        yield f"{job.named(key)} is of Flink 1: write {OLD[key]}"
    if INTERVAL not in job.settings:
        yield f"{INTERVAL} is not set: a lost TaskManager would be a failed job"
    elif read_duration(job.get(INTERVAL, "1 s")) == 0:
        yield f"{job.named(INTERVAL)} is 0, so there are no checkpoints: a lost TaskManager would be a failed job"
    if job.spec is None:
        return
    mode = job.spec.get("upgradeMode", "stateless")
    if mode == "stateless":
        yield "upgradeMode stateless: an upgrade would forget sessions and unfinished turns; take last-state"
    elif CHECKPOINTS not in job.settings:
        yield f"upgradeMode {mode} needs {CHECKPOINTS}"
    if mode == "savepoint" and SAVEPOINTS not in job.settings:
        yield f"upgradeMode savepoint needs {SAVEPOINTS}"
    if mode == "last-state" and not _available(job.cluster.configuration):
        yield f"upgradeMode last-state after a failure needs {AVAILABILITY}: kubernetes"


def _of_cluster(cluster: Cluster) -> Iterator[str]:
    configuration = cluster.configuration
    if _available(configuration) and STORAGE not in configuration:
        yield f"{AVAILABILITY} needs {STORAGE}"
    if _available(configuration) and CHECKPOINTS not in configuration:
        yield f"{AVAILABILITY} without {CHECKPOINTS} finds a job again, and not its state"
    replicas = read_count((cluster.spec.get("jobManager") or {}).get("replicas", 1))
    if replicas is not None and replicas > 1 and not _available(configuration):
        yield f"several JobManagers need {AVAILABILITY}: kubernetes"
    if "kubernetes.operator.periodic.savepoint.interval" in configuration and SAVEPOINTS not in configuration:
        yield f"periodic savepoints need {SAVEPOINTS}"
    if configuration.get("kubernetes.operator.deployment.rollback.enabled") == "true" and not _available(configuration):
        yield f"a rollback by the operator needs {AVAILABILITY}: kubernetes"


def _available(configuration: dict[str, str]) -> bool:
    return configuration.get(AVAILABILITY, "NONE").lower() not in ("none", "")


def shared_folders(manifests: Manifests) -> Iterator[Finding]:
    """A folder for state is an object store, or on a volume that outlives its pod, mounted at one path in both pods."""
    for job in jobs(manifests):
        for key in (CHECKPOINTS, SAVEPOINTS, STORAGE):
            if key not in job.settings or job.is_unknown(key):
                continue
            cluster, address = job.cluster, urlsplit(job.get(key))
            if not address.scheme:
                yield Finding(cluster.place, f"{job.named(key)}: write a scheme, such as s3://… or file:///…")
            elif address.scheme == "file":
                for role in cluster.pods:
                    if (kind := _volume_below(cluster, role, address.path)) not in LASTING:
                        where = f"on a volume of kind {kind}" if kind else "on no volume"
                        yield Finding(
                            cluster.place,
                            f"{job.named(key)}: {address.path} is {where} in the {role}, and ends with its pod",
                        )


def table_folders(manifests: Manifests) -> Iterator[Finding]:
    """A local folder that a table names is on a volume of both pods, or in the image below /opt."""
    for job in jobs(manifests):
        for table_option, value in table_options(job):
            if table_option != "path" or "${" in value or (urlsplit(value).scheme or "file") != "file":
                continue
            path = urlsplit(value).path
            for role in job.cluster.pods:
                if path.startswith("/") and not within(path, "/opt") and mount_around(job.cluster, role, path) is None:
                    yield Finding(job.place, f"tables: path {value} is on no volume in the {role}")


def _volume_below(cluster: Cluster, role: str, path: str) -> str | None:
    mount = mount_around(cluster, role, path)
    if mount is None:
        return None
    return next(iter(sorted(set(volume_of(cluster, role, mount)) - {"name"})), None)
