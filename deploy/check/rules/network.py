"""Rules about what is around the pods: the network policy and disruption budgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from deploy.check.finding import Finding, Manifests, Object
from deploy.check.pods import Cluster, clusters

__all__ = ["disruption_budgets", "policy"]

REST = 8081
DNS = 53


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
        if key.startswith("metrics.reporter.") and key.endswith(".port") and int(port) not in _all_ports(ingress):
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
            if role == "taskmanager":
                yield Finding(
                    place, "selects TaskManagers: how many there are is Flink's business, and it would block drains"
                )
            elif int(found["spec"].get("minAvailable", 0)) >= int(
                cluster.spec.get("jobManager", {}).get("replicas", 1)
            ):
                yield Finding(place, "leaves no JobManager to evict, so a drain never ends: add replicas, or drop it")


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
