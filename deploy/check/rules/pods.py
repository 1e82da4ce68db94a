"""Rules about the merge of pod templates, containers and volumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from deploy.check.finding import Finding, Manifests
from deploy.check.pods import MAIN, MERGE_BY_NAME, Cluster, clusters, containers

__all__ = ["main_container", "merge_by_name", "mounts_and_volumes", "nothing_lost", "sized_volumes"]


def merge_by_name(manifests: Manifests) -> Iterator[Finding]:
    """Templates of several layers are merged by name, or a list replaces what is in the same position of another."""
    for cluster in clusters(manifests):
        layered = any(len(cluster.layers(role)) > 1 for role in cluster.pods)
        if layered and not cluster.merges_by_name:
            yield Finding(cluster.place, f'set {MERGE_BY_NAME}: "true", or its pod templates are merged by position')


def nothing_lost(manifests: Manifests) -> Iterator[Finding]:
    """Every variable, mount, volume and container of a template is in the merged pod."""
    for cluster in clusters(manifests):
        for role, pod in cluster.pods.items():
            place = f"{cluster.place}, pod of the {role}"
            there = set(_parts(pod))
            for layer in cluster.layers(role):
                parts = list(_parts(layer))
                for part in sorted(set(parts) - there):
                    yield Finding(
                        place, f"{part} is in a template and not in the merged pod: is another one in its place?"
                    )
                for part in sorted({part for part in parts if parts.count(part) > 1}):
                    yield Finding(place, f"{part} is twice in one template")


def _parts(pod: Mapping[str, Any]) -> Iterator[str]:
    """What a template brings, as texts to compare. Flink sets the image of the main container."""
    spec = pod.get("spec", {})
    for volume in spec.get("volumes", []):
        kind = ", ".join(sorted(set(volume) - {"name"}))
        yield f"volume {volume.get('name')} ({kind})"
    for container in containers(pod):
        name = container.get("name")
        yield f"container {name}"
        for variable in container.get("env", []):
            yield f"variable {variable.get('name')} of {name}"
        for mount in container.get("volumeMounts", []):
            yield f"mount of {mount.get('name')} at {mount.get('mountPath')} in {name}"


def main_container(manifests: Manifests) -> Iterator[Finding]:
    """Flink's container has the name that Flink looks for; it would add a second one to a pod with another name."""
    for cluster in clusters(manifests):
        for role, pod in cluster.pods.items():
            names = [container.get("name") for container in pod["spec"].get("containers", [])]
            if MAIN not in names:
                there = ", ".join(str(name) for name in names) or "none"
                yield Finding(cluster.place, f"the pod of the {role} has no container {MAIN} (there: {there})")
            elif names[0] != MAIN:
                yield Finding(cluster.place, f"{MAIN} is not the first container of the {role}: patches count on that")


def mounts_and_volumes(manifests: Manifests) -> Iterator[Finding]:
    """Each mount has its volume, each volume is mounted, and no two are mounted on one path."""
    for cluster, role, pod in _pods(manifests):
        place = f"{cluster.place}, pod of the {role}"
        volumes = {volume["name"] for volume in pod["spec"].get("volumes", [])}
        mounted: set[str] = set()
        for container in containers(pod):
            paths: set[str] = set()
            for mount in container.get("volumeMounts", []):
                mounted.add(mount["name"])
                if mount["name"] not in volumes:
                    yield Finding(place, f"{container['name']} mounts {mount['name']}, and there is no such volume")
                if mount["mountPath"] in paths:
                    yield Finding(place, f"{container['name']} has two mounts at {mount['mountPath']}")
                paths.add(mount["mountPath"])
        for name in sorted(volumes - mounted):
            yield Finding(place, f"volume {name} is mounted nowhere")


def sized_volumes(manifests: Manifests) -> Iterator[Finding]:
    """Each emptyDir has a size, or one job can fill the disk of its node."""
    for cluster, role, pod in _pods(manifests):
        for volume in pod["spec"].get("volumes", []):
            if "emptyDir" in volume and not (volume["emptyDir"] or {}).get("sizeLimit"):
                yield Finding(
                    f"{cluster.place}, pod of the {role}", f"volume {volume['name']}: give its emptyDir a sizeLimit"
                )


def _pods(manifests: Manifests) -> Iterator[tuple[Cluster, str, dict[str, Any]]]:
    for cluster in clusters(manifests):
        for role, pod in cluster.pods.items():
            yield cluster, role, pod
