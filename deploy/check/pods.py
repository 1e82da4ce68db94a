"""The pods that come of a FlinkDeployment: its templates merged in the operator's way, with what Flink adds to them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from deploy.check.finding import Manifests, Object

__all__ = ["MAIN", "Cluster", "Layer", "clusters", "containers", "flat", "merged"]

MAIN = "flink-main-container"
MERGE_BY_NAME = "kubernetes.operator.pod-template.merge-arrays-by-name"
TEMPLATES = {"jobmanager": "jobManager", "taskmanager": "taskManager"}

Layer = Mapping[str, Any]


def merged(lower: Layer, upper: Layer, *, by_name: bool) -> dict[str, Any]:
    """One pod template laid over another one, as operator 1.15 does it.

    Objects are merged field by field. Lists are merged by the names of their elements where that is asked for and every
    element on both sides has a name; else element by element, by position. Elements of one list with the same name
    become one, which is how a volume that is mounted twice can lose a mount.
    """
    result = copy.deepcopy(dict(lower))
    for key, value in upper.items():
        mine = result.get(key)
        if isinstance(mine, list) and isinstance(value, list):
            result[key] = _merged_lists(mine, value, by_name)
        elif isinstance(mine, dict) and isinstance(value, Mapping):
            result[key] = merged(mine, value, by_name=by_name)
        else:
            result[key] = copy.deepcopy(value)
    return result


def _merged_lists(lower: list[Any], upper: list[Any], by_name: bool) -> list[Any]:
    if by_name and all(isinstance(element, Mapping) and "name" in element for element in [*lower, *upper]):
        named = {element["name"]: element for element in lower}
        for name, element in {element["name"]: element for element in upper}.items():
            named[name] = merged(named[name], element, by_name=by_name) if name in named else element
        return list(named.values())
    result = list(lower)
    for position, element in enumerate(upper):
        if position >= len(result):
            result.append(element)
        elif isinstance(element, Mapping) and isinstance(result[position], Mapping):
            result[position] = merged(result[position], element, by_name=by_name)
        # A text in the same position stays as it is in the lower layer: nothing is merged into it.
    return result


@dataclass(frozen=True)
class Cluster:
    """A FlinkDeployment, with its configuration flat and its pods merged."""

    manifests: Manifests
    deployment: Object

    @property
    def name(self) -> str:
        return str(self.deployment["metadata"]["name"])

    @property
    def spec(self) -> Mapping[str, Any]:
        return cast("Mapping[str, Any]", self.deployment["spec"])

    @property
    def place(self) -> str:
        return f"FlinkDeployment {self.name}"

    @cached_property
    def configuration(self) -> dict[str, str]:
        """Flink's configuration; nested keys are joined with dots, as the operator does."""
        return dict(flat(self.spec.get("flinkConfiguration") or {}))

    @property
    def merges_by_name(self) -> bool:
        return self.configuration.get(MERGE_BY_NAME) == "true"

    def layers(self, role: str) -> list[Layer]:
        """The templates of a role (``jobmanager`` or ``taskmanager``), the common one first."""
        own = self.spec.get(TEMPLATES[role], {}).get("podTemplate")
        return [layer for layer in (self.spec.get("podTemplate"), own) if layer]

    def pod(self, role: str) -> dict[str, Any]:
        """The merged pod of a role, with the labels, the image and the account that Flink gives it."""
        result: dict[str, Any] = {"metadata": {}, "spec": {}}
        for layer in self.layers(role):
            result = merged(result, layer, by_name=self.merges_by_name)
        labels = {"app": self.name, "component": role, "type": "flink-native-kubernetes"}
        result["metadata"]["labels"] = {**result["metadata"].get("labels", {}), **labels}
        spec = result["spec"]
        spec["serviceAccountName"] = self.account(role)
        for container in spec.get("containers", []):
            if container["name"] == MAIN:
                container["image"] = self.spec.get("image")
        return result

    @cached_property
    def pods(self) -> dict[str, dict[str, Any]]:
        """The merged pods by role."""
        return {role: self.pod(role) for role in TEMPLATES}

    def account(self, role: str) -> str | None:
        """The service account of a role's pods."""
        own = self.configuration.get(f"kubernetes.{role}.service-account")
        return own or self.spec.get("serviceAccount")


def clusters(manifests: Manifests) -> list[Cluster]:
    """The FlinkDeployments of an overlay."""
    return [Cluster(manifests, found) for found in manifests.of_kind("FlinkDeployment")]


def containers(pod: Layer) -> Iterator[Mapping[str, Any]]:
    """All containers of a pod, those that run before it included."""
    spec = pod.get("spec", {})
    yield from spec.get("initContainers", [])
    yield from spec.get("containers", [])


def flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested keys joined with dots, values as texts."""
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            yield from flat(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(inner).lower() if isinstance(inner, bool) else str(inner)
