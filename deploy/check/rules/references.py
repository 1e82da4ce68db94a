"""Rules about what pods name: ConfigMaps of the overlay; secrets and claims that the namespace must have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from deploy.check.finding import Finding, Manifests
from deploy.check.pods import clusters, containers

__all__ = ["expected", "objects_exist"]


def objects_exist(manifests: Manifests) -> Iterator[Finding]:
    """A ConfigMap and a service account that a pod names is in the overlay. (Kustomize does not tell.)"""
    for cluster in clusters(manifests):
        for role, pod in cluster.pods.items():
            place = f"{cluster.place}, pod of the {role}"
            account = pod["spec"].get("serviceAccountName")
            if account and manifests.named("ServiceAccount", account) is None:
                yield Finding(place, f"service account {account} is not in the overlay")
            for kind, name, optional in _named(pod):
                if kind == "ConfigMap" and not optional and manifests.named(kind, name) is None:
                    yield Finding(place, f"ConfigMap {name} is not in the overlay: add a configMapGenerator")


def expected(manifests: Manifests) -> list[str]:
    """What must be in the namespace already: secrets and claims that the overlay only names."""
    found: set[str] = set()
    for cluster in clusters(manifests):
        for pod in cluster.pods.values():
            for kind, name, optional in _named(pod):
                if kind in ("Secret", "PersistentVolumeClaim") and manifests.named(kind, name) is None:
                    found.add(f"{kind} {name}{' (optional)' if optional else ''}")
            if "runtimeClassName" in pod["spec"]:
                found.add(f"RuntimeClass {pod['spec']['runtimeClassName']}")
    return sorted(found)


def _named(pod: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Kind, name, and whether the pod starts without it."""
    for volume in pod["spec"].get("volumes", []):
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"], volume["configMap"].get("optional", False)
        if "secret" in volume:
            yield "Secret", volume["secret"]["secretName"], volume["secret"].get("optional", False)
        if "persistentVolumeClaim" in volume:
            yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"], False
        for source in volume.get("projected", {}).get("sources", []):
            for key, kind in (("configMap", "ConfigMap"), ("secret", "Secret")):
                if key in source:
                    yield kind, source[key]["name"], source[key].get("optional", False)
    for container in containers(pod):
        for variable in container.get("env", []):
            value = variable.get("valueFrom", {})
            for key, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
                if key in value:
                    yield kind, value[key]["name"], value[key].get("optional", False)
        for source in container.get("envFrom", []):
            for key, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
                if key in source:
                    yield kind, source[key]["name"], source[key].get("optional", False)
