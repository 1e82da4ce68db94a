"""What a container of Flink finds in its pod: the files of volumes, and environment variables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from deploy.check.pods import MAIN, Cluster

__all__ = ["Environment", "Files", "environment", "files_of", "main_container", "mount_around", "volume_of", "within"]

# Set by Flink's image, by Flink, or by Kubernetes for every pod.
_ALWAYS = re.compile(
    r"PATH|HOME|HOSTNAME|PWD|LANG|USER|TMPDIR|JAVA_HOME|_?FLINK_\w+|KUBERNETES_\w+|\w+_SERVICE_(HOST|PORT\w*)"
)


@dataclass
class Environment:
    """The variables of a container: those with a value that the overlay tells, and None for the others.

    ``is_open``: it takes all of a Secret or ConfigMap that is not in the overlay, so any variable may be there.
    """

    values: dict[str, str | None] = field(default_factory=dict)
    is_open: bool = False

    def has(self, name: str) -> bool:
        """Whether the variable is there, or may be."""
        return self.is_open or name in self.values or _ALWAYS.fullmatch(name) is not None


@dataclass(frozen=True)
class Files:
    """Files of a mount by path, with their texts (None: no text). ``whole``: there are no others."""

    texts: Mapping[str, str | None]
    whole: bool = True


def main_container(cluster: Cluster, role: str) -> Mapping[str, Any]:
    """Flink's container, by its name."""
    containers: list[dict[str, Any]] = cluster.pods[role]["spec"].get("containers") or []
    return next((found for found in containers if found.get("name") == MAIN), containers[0] if containers else {})


def within(path: str, folder: str) -> bool:
    """Whether a path is a folder, or is below it."""
    return PurePosixPath(path).is_relative_to(folder)


def mount_around(cluster: Cluster, role: str, path: str) -> Mapping[str, Any] | None:
    """The mount of Flink's container that a path is on."""
    mounts = [
        mount for mount in main_container(cluster, role).get("volumeMounts") or [] if within(path, mount["mountPath"])
    ]
    return max(mounts, key=lambda mount: len(mount["mountPath"]), default=None)


def volume_of(cluster: Cluster, role: str, mount: Mapping[str, Any]) -> Mapping[str, Any]:
    """The volume of a mount, empty where there is none."""
    volumes: list[dict[str, Any]] = cluster.pods[role]["spec"].get("volumes") or []
    return next((volume for volume in volumes if volume.get("name") == mount["name"]), {})


def files_of(cluster: Cluster, role: str, mount: Mapping[str, Any]) -> Files | None:
    """The files of a mounted ConfigMap of the overlay; None for every other volume."""
    volume = volume_of(cluster, role, mount)
    sources = [volume] if "configMap" in volume else (volume.get("projected") or {}).get("sources") or []
    texts: dict[str, str | None] = {}
    whole = all("configMap" in source for source in sources)
    for source in sources:
        if "configMap" not in source:
            continue
        given = source["configMap"]
        found = cluster.manifests.named("ConfigMap", given.get("name", ""))
        if found is None:
            whole = False
            continue
        keys: dict[str, str | None] = {**dict.fromkeys(found.get("binaryData") or {}), **(found.get("data") or {})}
        for path, key in _items(given, keys):
            if key in keys:
                texts[path] = keys[key]
    if not sources or (not texts and not whole):
        return None
    only = mount.get("subPath")
    if only is not None:
        texts = {"": texts[only]} if only in texts else {}
    root = PurePosixPath(mount["mountPath"])
    return Files({str(root / path): text for path, text in texts.items()}, whole)


def _items(given: Mapping[str, Any], keys: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Path and key of each file of a volume."""
    if given.get("items"):
        yield from ((item["path"], item["key"]) for item in given["items"])
    else:
        yield from ((key, key) for key in keys)


def environment(cluster: Cluster, role: str) -> Environment:
    """The variables of Flink's container."""
    found = Environment()
    container = main_container(cluster, role)
    for source in container.get("envFrom") or []:
        name = (source.get("configMapRef") or {}).get("name", "")
        known = cluster.manifests.named("ConfigMap", name) if name else None
        if known is None:
            found.is_open = True
            continue
        found.values |= {f"{source.get('prefix', '')}{key}": text for key, text in (known.get("data") or {}).items()}
    prefix = {"jobmanager": "containerized.master.env.", "taskmanager": "containerized.taskmanager.env."}[role]
    for key, value in cluster.configuration.items():
        if key.startswith(prefix):
            found.values[key.removeprefix(prefix)] = value
    secrets = cluster.configuration.get("kubernetes.env.secretKeyRef", "")
    found.values |= dict.fromkeys(re.findall(r"env:\s*([\w.-]+)", secrets))
    for variable in container.get("env") or []:
        value = variable.get("value", None if "valueFrom" in variable else "")
        found.values[variable["name"]] = None if value is None or "$(" in str(value) else str(value)
    return found
