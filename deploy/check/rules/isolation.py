"""Rules about what a pod may do on its node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from deploy.check.finding import Finding, Manifests
from deploy.check.pods import clusters, containers

__all__ = ["restricted", "writable_folders"]

SECCOMP = ("RuntimeDefault", "Localhost")
# Flink writes its log and garbage collector files, and its temporary files; Python and Java do so too.
WRITTEN = ("/tmp", "/opt/flink/log")  # noqa: S108


def restricted(manifests: Manifests) -> Iterator[Finding]:
    """The pod security standard "restricted", for every container."""
    for cluster in clusters(manifests):
        for role, pod in cluster.pods.items():
            place = f"{cluster.place}, pod of the {role}"
            of_pod = pod["spec"].get("securityContext", {})
            for message in _pod_problems(pod["spec"], of_pod):
                yield Finding(place, message)
            for container in containers(pod):
                for message in _container_problems(container.get("securityContext", {}), of_pod):
                    yield Finding(f"{place}, container {container['name']}", message)


def _pod_problems(spec: Mapping[str, Any], context: Mapping[str, Any]) -> Iterator[str]:
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name):
            yield f"{name} is on"
    if context.get("runAsUser") == 0 or context.get("runAsGroup") == 0:
        yield "securityContext runs it as root"
    if not context.get("fsGroup"):
        yield "securityContext has no fsGroup, so volumes may belong to root"
    for volume in spec.get("volumes", []):
        if "hostPath" in volume:
            yield f"volume {volume['name']} is a folder of the node"


def _container_problems(context: Mapping[str, Any], of_pod: Mapping[str, Any]) -> Iterator[str]:
    if context.get("runAsNonRoot", of_pod.get("runAsNonRoot")) is not True:
        yield "securityContext needs runAsNonRoot: true"
    if context.get("runAsUser") == 0:
        yield "securityContext runs it as root"
    if context.get("privileged"):
        yield "it is privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield "securityContext needs allowPrivilegeEscalation: false"
    if context.get("readOnlyRootFilesystem") is not True:
        yield "securityContext needs readOnlyRootFilesystem: true"
    capabilities = context.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []) or set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
        yield "securityContext needs capabilities: {drop: [ALL]} and no others"
    if {**of_pod, **context}.get("seccompProfile", {}).get("type") not in SECCOMP:
        yield "securityContext needs seccompProfile: {type: RuntimeDefault}"


def writable_folders(manifests: Manifests) -> Iterator[Finding]:
    """With a read-only root, what Flink writes to is on a volume."""
    for cluster in clusters(manifests):
        for role, pod in cluster.pods.items():
            for container in pod["spec"].get("containers", [])[:1]:
                if not container.get("securityContext", {}).get("readOnlyRootFilesystem"):
                    continue
                writable = {m["mountPath"] for m in container.get("volumeMounts", []) if not m.get("readOnly")}
                for folder in sorted(set(WRITTEN) - writable):
                    yield Finding(
                        f"{cluster.place}, pod of the {role}", f"{folder} is read-only: mount an emptyDir there"
                    )
