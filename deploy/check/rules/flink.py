"""Rules about Flink and its operator: what the API server takes and the operator then refuses, or worse, accepts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from deploy.check.finding import Finding, Manifests
from deploy.check.pods import Cluster, clusters
from deploy.check.quantities import read_memory

__all__ = ["logs", "memory_beside_the_jvm", "metrics", "names", "refused_keys", "sessions"]

# Pods and services are named after it, and Kubernetes allows 63 characters.
NAME = re.compile(r"[a-z]([-a-z0-9]{0,43}[a-z0-9])?")
REFUSED = {
    "kubernetes.namespace": "metadata.namespace",
    "kubernetes.cluster-id": "metadata.name",
    "high-availability.cluster-id": "metadata.name",
}
OVERWRITTEN = {
    "kubernetes.container.image.ref": "spec.image",
    "kubernetes.container.image": "spec.image",
    "kubernetes.container.image.pull-policy": "spec.imagePullPolicy",
    "kubernetes.service-account": "spec.serviceAccount",
    "kubernetes.jobmanager.cpu.amount": "spec.jobManager.resource.cpu",
    "kubernetes.taskmanager.cpu.amount": "spec.taskManager.resource.cpu",
    "kubernetes.jobmanager.replicas": "spec.jobManager.replicas",
    "kubernetes.pod-template-file.default": "spec.podTemplate",
    "kubernetes.pod-template-file.jobmanager": "spec.jobManager.podTemplate",
    "kubernetes.pod-template-file.taskmanager": "spec.taskManager.podTemplate",
    "jobmanager.memory.process.size": "spec.jobManager.resource.memory",
    "taskmanager.memory.process.size": "spec.taskManager.resource.memory",
    "parallelism.default": "spec.job.parallelism",
}
LOG_FILES = {"log4j-console.properties", "logback-console.xml"}
# Loggers that write the environment of Python processes, keys of models included, at INFO.
TELLS_ENVIRONMENT = (
    "org.apache.flink.client.python.PythonEnvUtils",
    "org.apache.beam.runners.fnexecution.control.DefaultJobBundleFactory",
)
QUIET = ("WARN", "ERROR", "FATAL", "OFF")
# What one worker process needs before its first turn, and the JVM beside its heap.
WORKER = 192 << 20
JVM = 192 << 20


def names(manifests: Manifests) -> Iterator[Finding]:
    """Names that the operator takes; a service account, which it does not check."""
    for cluster in clusters(manifests):
        if not NAME.fullmatch(cluster.name):
            yield Finding(cluster.place, "name: at most 45 characters, a to z, 0 to 9 and -, a letter first")
        if not cluster.spec.get("serviceAccount"):
            yield Finding(cluster.place, "spec.serviceAccount is empty: the operator deploys it all the same")
        for key in cluster.spec.get("logConfiguration", {}):
            if key not in LOG_FILES:
                yield Finding(cluster.place, f"spec.logConfiguration.{key}: only {' and '.join(sorted(LOG_FILES))}")


def refused_keys(manifests: Manifests) -> Iterator[Finding]:
    """Keys that the operator refuses, and those that a field of the resource silently replaces."""
    for cluster in clusters(manifests):
        for key in cluster.configuration:
            if key in REFUSED:
                yield Finding(
                    cluster.place, f"flinkConfiguration.{key} is refused by the operator: it is {REFUSED[key]}"
                )
            if key in OVERWRITTEN:
                yield Finding(cluster.place, f"flinkConfiguration.{key} has no effect: set {OVERWRITTEN[key]}")
    for job in manifests.of_kind("FlinkSessionJob"):
        for key in job["spec"].get("flinkConfiguration", {}):
            if key in REFUSED:
                yield Finding(f"FlinkSessionJob {job['metadata']['name']}", f"flinkConfiguration.{key} is refused")


def memory_beside_the_jvm(manifests: Manifests) -> Iterator[Finding]:
    """Room in the TaskManager's container for the worker processes, which Flink's memory model does not know."""
    for cluster in clusters(manifests):
        configuration = cluster.configuration
        for role in ("jobManager", "taskManager"):
            memory = cluster.spec.get(role, {}).get("resource", {}).get("memory")
            if memory is None:
                yield Finding(cluster.place, f"spec.{role}.resource.memory is missing")
            elif read_memory(memory) is None:
                yield Finding(cluster.place, f"spec.{role}.resource.memory: cannot read '{memory}'; write 4096m")
        yield from _overhead(cluster, configuration)


def _overhead(cluster: Cluster, configuration: dict[str, str]) -> Iterator[Finding]:
    processes = int(configuration.get("skills.worker.processes", "0")) or 4
    room = read_memory(configuration.get("taskmanager.memory.jvm-overhead.min", "192m")) or 0
    beside = _unmanaged(cluster, configuration)
    needed = JVM + processes * WORKER
    if room + beside < needed:
        yield Finding(
            cluster.place,
            f"{(room + beside) >> 20} MiB for the JVM's overhead and {processes} workers: raise "
            f"taskmanager.memory.jvm-overhead.min to {needed >> 20}m, or set fewer skills.worker.processes",
        )
    for role in ("jobmanager", "taskmanager"):
        least = read_memory(configuration.get(f"{role}.memory.jvm-overhead.min", "192m"))
        most = read_memory(configuration.get(f"{role}.memory.jvm-overhead.max", "1g"))
        if least is None or most is None or least > most:
            yield Finding(cluster.place, f"{role}.memory.jvm-overhead: min is above max, or one cannot be read")


def _unmanaged(cluster: Cluster, configuration: dict[str, str]) -> int:
    """What the container's limit is above Flink's process size."""
    factor = float(configuration.get("kubernetes.taskmanager.memory.limit-factor", "1"))
    process = read_memory(cluster.spec.get("taskManager", {}).get("resource", {}).get("memory", "0")) or 0
    return int(process * (factor - 1))


def sessions(manifests: Manifests) -> Iterator[Finding]:
    """A session job names a cluster that has no job of its own, and a cluster has slots for its jobs."""
    by_name = {cluster.name: cluster for cluster in clusters(manifests)}
    for job in manifests.of_kind("FlinkSessionJob"):
        place = f"FlinkSessionJob {job['metadata']['name']}"
        cluster = by_name.get(job["spec"].get("deploymentName", ""))
        if cluster is None:
            yield Finding(place, f"deploymentName {job['spec'].get('deploymentName')}: no such FlinkDeployment here")
        elif "job" in cluster.spec:
            yield Finding(place, f"{cluster.name} has a job of its own: take spec.job out of it")
        uri = job["spec"].get("job", {}).get("jarURI", "https:")
        if not uri.startswith("https:"):
            yield Finding(place, f"jarURI {uri}: the operator itself fetches it, by default only from https")
    for cluster in by_name.values():
        own = cluster.spec.get("job")
        if own is not None and own.get("parallelism", 0) < 1 and "replicas" not in cluster.spec.get("taskManager", {}):
            yield Finding(cluster.place, "spec.job.parallelism must be at least 1")
        if own is not None and not str(own.get("jarURI", "local:")).startswith("local:"):
            yield Finding(cluster.place, f"jarURI {own['jarURI']}: only local: is sure to be there")


def metrics(manifests: Manifests) -> Iterator[Finding]:
    """Each reporter that is named has a factory, and Prometheus' port is open in both pods."""
    for cluster in clusters(manifests):
        named = [name.strip() for name in cluster.configuration.get("metrics.reporters", "").split(",") if name.strip()]
        for name in named:
            prefix = f"metrics.reporter.{name}."
            factory = cluster.configuration.get(f"{prefix}factory.class")
            if factory is None:
                yield Finding(cluster.place, f"metrics.reporters names {name}: set {prefix}factory.class")
            port = cluster.configuration.get(f"{prefix}port")
            if port is None or "Prometheus" not in str(factory):
                continue
            for role, pod in cluster.pods.items():
                ports = [str(p["containerPort"]) for c in pod["spec"].get("containers", []) for p in c.get("ports", [])]
                if port not in ports:
                    yield Finding(
                        cluster.place, f"the {role} reports on port {port}, and its container does not have it"
                    )


def logs(manifests: Manifests) -> Iterator[Finding]:
    """Loggers that would write secrets are quiet, which the operator's own log configuration does not care for."""
    for cluster in clusters(manifests):
        text = cluster.spec.get("logConfiguration", {}).get("log4j-console.properties")
        if text is None:
            yield Finding(
                cluster.place, "no log4j-console.properties in spec.logConfiguration: the operator's logs secrets"
            )
            continue
        lines = (line.partition("=") for line in text.splitlines() if not line.lstrip().startswith("#"))
        settings = {key.strip(): value.strip() for key, _, value in lines}
        levels = {
            value: settings.get(f"{key.removesuffix('.name')}.level", settings.get("rootLogger.level", "INFO"))
            for key, value in settings.items()
            if key.startswith("logger.") and key.endswith(".name")
        }
        for name in TELLS_ENVIRONMENT:
            if levels.get(name, "INFO").upper() not in QUIET:
                yield Finding(cluster.place, f"{name} logs variables with their secrets: set its level to WARN")
