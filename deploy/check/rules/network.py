"""Rules about what is around the pods: the network policy and disruption budgets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from deploy.check.finding import Finding, Manifests, Object
from deploy.check.jobs import Job, jobs
from deploy.check.pods import Cluster, clusters
from deploy.check.quantities import read_count, read_ports
from deploy.check.rules.job_files import setups
from deploy.check.rules.skills import ENDPOINTS
from deploy.check.tables import table_options

__all__ = ["destinations", "disruption_budgets", "policy", "spread"]

REST = 8081
DNS = 53
SPACE = "kubernetes.io/metadata.name"
LOOPBACK = re.compile(r"localhost|127\.[\d.]+|::1")


def policy(manifests: Manifests) -> Iterator[Finding]:
    """Both pods are behind a policy that denies by default, and that lets through what Flink needs."""
    for cluster in clusters(manifests):
        for role, pod in cluster.pods.items():
            labels = pod["metadata"]["labels"]
            policies = [
                found
                for found in manifests.of_kind("NetworkPolicy")
                if _selects(found["spec"].get("podSelector", {}), labels)
            ]
            for direction in ("Ingress", "Egress"):
                if not any(direction in found["spec"].get("policyTypes", []) for found in policies):
                    yield Finding(
                        cluster.place, f"no NetworkPolicy denies {direction.lower()} of the {role}: do labels match?"
                    )
        yield from _openings(cluster, manifests)


def _openings(cluster: Cluster, manifests: Manifests) -> Iterator[Finding]:
    policies = manifests.of_kind("NetworkPolicy")
    ingress = [rule for found in policies for rule in found["spec"].get("ingress", [])]
    egress = [rule for found in policies for rule in found["spec"].get("egress", [])]
    peer = cluster.pods["taskmanager"]["metadata"]["labels"]
    for name, rules, key in (("in", ingress, "from"), ("out", egress, "to")):
        if not any(_selects(one.get("podSelector"), peer) for rule in rules for one in rule.get(key, [])):
            yield Finding(cluster.place, f"its pods cannot reach each other: allow them {name} in the NetworkPolicy")
        if any(not rule.get(key) for rule in rules):
            yield Finding(cluster.place, f"a rule of the NetworkPolicy opens {name} to everybody: name {key}")
    if not any(DNS in _ports(rule) for rule in egress):
        yield Finding(cluster.place, "the NetworkPolicy lets no names be looked up (port 53)")
    if not any(REST in _ports(rule) for rule in ingress):
        yield Finding(cluster.place, f"the NetworkPolicy keeps the operator out (port {REST})")
    for key, port in cluster.configuration.items():
        if key.startswith("metrics.reporter.") and key.endswith(".port") and not read_ports(port) & _all_ports(ingress):
            yield Finding(cluster.place, f"the NetworkPolicy keeps the scraper out (port {port})")


def disruption_budgets(manifests: Manifests) -> Iterator[Finding]:
    """A budget selects a pod of a FlinkDeployment and leaves room for a drain."""
    for found in manifests.of_kind("PodDisruptionBudget"):
        place = f"PodDisruptionBudget {found['metadata']['name']}"
        selected = [
            (cluster, role)
            for cluster in clusters(manifests)
            for role, pod in cluster.pods.items()
            if _selects(found["spec"].get("selector", {}), pod["metadata"]["labels"])
        ]
        if not selected:
            yield Finding(place, "selects no pod of a FlinkDeployment: do labels match?")
        for cluster, role in selected:
            replicas = read_count((cluster.spec.get("jobManager") or {}).get("replicas", 1))
            if role == "taskmanager":
                yield Finding(
                    place, "selects TaskManagers: how many there are is Flink's business, and it would block drains"
                )
            elif replicas is not None:
                yield from (Finding(place, message) for message in _room(found["spec"], replicas))


def _room(spec: Mapping[str, Any], replicas: int) -> Iterator[str]:
    for key in ("minAvailable", "maxUnavailable"):
        if key not in spec:
            continue
        text = str(spec[key])
        number = read_count(text.removesuffix("%"))
        if number is None or (text.endswith("%") and number > 100):
            yield f"spec.{key}: cannot read '{text}'; write a number or a percentage such as 50%"
            continue
        # Kubernetes rounds both up.
        pods = -(-replicas * number // 100) if text.endswith("%") else number
        if (key == "minAvailable" and pods >= replicas) or (key == "maxUnavailable" and pods == 0):
            yield "leaves no JobManager to evict, so a drain never ends: add replicas, or drop it"


def spread(manifests: Manifests) -> Iterator[Finding]:
    """Constraints that spread pods count the pods of this job, by labels that they have."""
    for cluster in clusters(manifests):
        for role, pod in cluster.pods.items():
            for constraint in pod["spec"].get("topologySpreadConstraints") or []:
                if not _selects(constraint.get("labelSelector"), pod["metadata"]["labels"]):
                    yield Finding(
                        f"{cluster.place}, pod of the {role}",
                        f"topologySpreadConstraints count pods that are not its own: the label app is {cluster.name}",
                    )


def destinations(manifests: Manifests) -> Iterator[Finding]:
    """Ports of servers that the job's models, tables and spans name are open in the NetworkPolicy."""
    for job in jobs(manifests):
        labels = job.cluster.pods["taskmanager"]["metadata"]["labels"]
        policies = [
            found
            for found in manifests.of_kind("NetworkPolicy")
            if _selects(found["spec"].get("podSelector", {}), labels)
            and "Egress" in found["spec"].get("policyTypes", [])
        ]
        rules = [rule for found in policies for rule in found["spec"].get("egress") or []]
        for what, host, port in dict.fromkeys(_named(job)):
            if policies and not any(_opens(rule, host, port, labels) for rule in rules):
                yield Finding(
                    job.place,
                    f"{what} names {host}:{port}, and no egress rule of the NetworkPolicy lets the pods there",
                )


def _named(job: Job) -> Iterator[tuple[str, str, int]]:
    """What names a server, the server, and its port; those of the pod itself need no rule."""
    addresses = [(f"base_url of model {setup.label}", setup.base_url or "") for setup in setups(job)]
    known = job.environment("taskmanager").values
    addresses += [(name, known.get(name) or "") for name in ENDPOINTS]
    for what, address in addresses:
        parts = urlsplit(address)
        try:
            port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
        except ValueError:
            continue  # a finding of the job's file
        if parts.hostname and port and not LOOPBACK.fullmatch(parts.hostname):
            yield what, parts.hostname, port
    for key, value in table_options(job):
        if key.endswith("bootstrap.servers"):
            for server in value.split(","):
                host, _, digits = server.strip().rpartition(":")
                if (number := read_count(digits)) and "${" not in host and not LOOPBACK.fullmatch(host):
                    yield key, host, number


def _opens(rule: Object, host: str, port: int, labels: Mapping[str, str]) -> bool:
    """Whether a rule lets a pod reach a port of a host, as far as its name tells where that is."""
    peers = rule.get("to") or []
    if peers and not any(_may_be(peer, host, labels) for peer in peers):
        return False
    ports = rule.get("ports")
    return not ports or any(
        not str(one.get("port", port)).isdigit()  # a name, of the other pod's container
        or int(one.get("port", port)) <= port <= int(one.get("endPort", one.get("port", port)))
        for one in ports
        if one.get("protocol", "TCP") == "TCP"
    )


def _may_be(peer: Mapping[str, Any], host: str, labels: Mapping[str, str]) -> bool:
    space = peer.get("namespaceSelector")
    if space is None:
        pods = peer.get("podSelector")
        # The job's own pods serve nothing that it names.
        return pods is None or not (pods.get("matchLabels") and _selects(pods, labels))
    wanted = (space.get("matchLabels") or {}).get(SPACE)
    parts = host.split(".")
    if wanted is None or len(parts) < 2 or not (len(parts) == 2 or parts[2] == "svc"):
        return True
    return bool(wanted == parts[1])


def _selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a selector takes a pod; an empty one takes every pod."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    return all(_holds(expression, labels) for expression in selector.get("matchExpressions", []))


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(expression["key"])
    return {
        "In": value in expression.get("values", []),
        "NotIn": value not in expression.get("values", []),
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[expression["operator"]]


def _ports(rule: Object) -> set[int]:
    return {int(port["port"]) for port in rule.get("ports", []) if str(port.get("port", "")).isdigit()}


def _all_ports(rules: list[Object]) -> set[int]:
    return {port for rule in rules for port in _ports(rule)}
