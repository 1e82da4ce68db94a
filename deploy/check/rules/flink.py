"""Rules about Flink and its operator: what the API server takes and the operator then refuses, or worse, accepts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from deploy.check.finding import Finding, Manifests
from deploy.check.jobs import OF_THE_CLUSTER, jobs
from deploy.check.pods import clusters, flat
from deploy.check.quantities import read_ports

__all__ = ["logs", "metrics", "names", "of_the_cluster", "refused_keys", "sessions"]

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
# Loggers that write the environment of Python processes, keys of models included, and the levels that keep them from
# it: the second one does it at ERROR as well, when it could not end a process in peace.
TELLS_ENVIRONMENT = {
    "org.apache.flink.client.python.PythonEnvUtils": ("WARN", "ERROR", "FATAL", "OFF"),
    "org.apache.beam.runners.fnexecution.control.DefaultJobBundleFactory": ("OFF", "FATAL"),
}


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


def of_the_cluster(manifests: Manifests) -> Iterator[Finding]:
    """A job's file sets only what a running cluster takes from a job."""
    for job in jobs(manifests):
        flink = job.document.get("flink")
        for key, _ in flat(flink) if isinstance(flink, Mapping) else ():
            if key.startswith(OF_THE_CLUSTER):
                yield Finding(
                    job.place, f"flink.{key} of {job.file} has no effect in a job: set it in flinkConfiguration"
                )


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
        if (
            own is not None
            and int(own.get("parallelism", 0)) < 1
            and "replicas" not in cluster.spec.get("taskManager", {})
        ):
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
                ports = {p["containerPort"] for c in pod["spec"].get("containers", []) for p in c.get("ports", [])}
                read = read_ports(port)
                if not read:
                    yield Finding(cluster.place, f"{prefix}port: cannot read '{port}'; write a port or a range")
                elif not ports & read:
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
        for name, quiet in TELLS_ENVIRONMENT.items():
            if levels.get(name, "INFO").upper() not in quiet:
                yield Finding(cluster.place, f"{name} logs variables with their secrets: set its level to {quiet[0]}")
