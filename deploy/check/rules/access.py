"""Rules about service accounts and roles: enough for Flink, listed one by one, and no more for TaskManagers."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.check.finding import Finding, Manifests, Object
from deploy.check.pods import Cluster, clusters

__all__ = ["bindings", "enough", "listed_verbs"]

# (API group, resource): verbs. Flink in native mode requests them; measured on a cluster: docs/deployment-reference.md.
MAKES_PODS = {
    ("", "pods"): {"get", "list", "watch", "create", "delete"},
    ("apps", "deployments"): {"get"},
}
KEEPS_AVAILABILITY = {("", "configmaps"): {"get", "list", "watch", "create", "update", "patch", "delete"}}
READS_AVAILABILITY = {("", "configmaps"): {"get", "list", "watch"}}


def listed_verbs(manifests: Manifests) -> Iterator[Finding]:
    """No ``*`` in a role, and nothing of a role is for the whole cluster."""
    for kind in ("Role", "ClusterRole"):
        for found in manifests.of_kind(kind):
            place = f"{kind} {found['metadata']['name']}"
            if kind == "ClusterRole":
                yield Finding(place, "a Role of the job's namespace is enough")
            for rule in found.get("rules", []):
                for part in ("apiGroups", "resources", "verbs"):
                    if "*" in rule.get(part, []):
                        yield Finding(place, f"{part} has '*': list what is needed")
                if "secrets" in rule.get("resources", []):
                    yield Finding(place, "Flink needs no rights on secrets")


def enough(manifests: Manifests) -> Iterator[Finding]:
    """What Flink asks the API server for is allowed, and TaskManagers cannot make pods."""
    for cluster in clusters(manifests):
        available = cluster.configuration.get("high-availability.type", "").lower() == "kubernetes"
        needed = {
            "jobmanager": {**MAKES_PODS, **(KEEPS_AVAILABILITY if available else {})},
            "taskmanager": READS_AVAILABILITY if available else {},
        }
        for role, rights in needed.items():
            allowed = _rights(manifests, cluster.account(role))
            for (group, resource), verbs in rights.items():
                lacking = sorted(verbs - allowed.get((group, resource), set()))
                if lacking:
                    yield Finding(
                        cluster.place,
                        f"account {cluster.account(role)} of the {role} may not {', '.join(lacking)} {resource}",
                    )
            token = cluster.pods[role]["spec"].get("automountServiceAccountToken", True)
            if rights and token is False:
                yield Finding(
                    cluster.place, f"the {role} has no token for the API server: take automountServiceAccountToken out"
                )
        yield from _too_much(cluster, manifests)


def _too_much(cluster: Cluster, manifests: Manifests) -> Iterator[Finding]:
    allowed = _rights(manifests, cluster.account("taskmanager"))
    writes = sorted({resource for (_, resource), verbs in allowed.items() if verbs - {"get", "list", "watch"}})
    if writes:
        yield Finding(
            cluster.place,
            f"TaskManagers, where skills run, may change {', '.join(writes)}: give them an account of their own with "
            "kubernetes.taskmanager.service-account",
        )


def bindings(manifests: Manifests) -> Iterator[Finding]:
    """Each binding joins a role and accounts that are there. (A binding to nothing is no error for Kubernetes.)"""
    for found in manifests.of_kind("RoleBinding"):
        place = f"RoleBinding {found['metadata']['name']}"
        reference = found.get("roleRef", {})
        if reference.get("kind") == "Role" and manifests.named("Role", reference.get("name", "")) is None:
            yield Finding(place, f"Role {reference.get('name')} is not in the overlay")
        for subject in found.get("subjects", []):
            if subject.get("kind") == "ServiceAccount" and manifests.named("ServiceAccount", subject["name"]) is None:
                yield Finding(place, f"service account {subject['name']} is not in the overlay")


def _rights(manifests: Manifests, account: str | None) -> dict[tuple[str, str], set[str]]:
    """Verbs by API group and resource that the overlay gives to an account."""
    rights: dict[tuple[str, str], set[str]] = {}
    for binding in manifests.of_kind("RoleBinding"):
        if any(s.get("kind") == "ServiceAccount" and s.get("name") == account for s in binding.get("subjects", [])):
            role = manifests.named("Role", binding["roleRef"]["name"])
            for rule in _rules(role):
                for group in rule.get("apiGroups", []):
                    for resource in rule.get("resources", []):
                        rights.setdefault((group, resource), set()).update(rule.get("verbs", []))
    return rights


def _rules(role: Object | None) -> list[Object]:
    return [] if role is None else list(role.get("rules", []))
