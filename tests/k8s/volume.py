"""The volume of the job's state, and the pod through which tests read and write it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

from tests.k8s.kubectl import Kubectl, wait_until

STATE, SKILLS = "log-triage-state", "skills"
_CLASS = os.environ.get("FLINK_SKILLS_TEST_STORAGE_CLASS", "")
_FOLDER = os.environ.get("FLINK_SKILLS_TEST_NODE_FOLDER", "/var/tmp/flink-skills-test")
_DEFAULT = "storageclass.kubernetes.io/is-default-class"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
RESTRICTED_POD = {
    "runAsNonRoot": True,
    "runAsUser": 9999,
    "runAsGroup": 9999,
    "fsGroup": 9999,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@contextlib.contextmanager
def volumes(kubectl: Kubectl, image: str) -> Iterator[None]:
    """The claims of the job's state and of its skills, with volumes behind them.

    Where the cluster makes volumes by itself nothing else is needed. Elsewhere they are folders of one node, which a
    pod prepares and removes; it needs root there, so it is in a namespace of its own.
    """
    if _CLASS or _has_default_class(kubectl):
        kubectl.apply(*(claim(name, _CLASS) for name in (STATE, SKILLS)))
        yield
        return
    node = _a_node(kubectl)
    setup = Kubectl(f"{kubectl.namespace}-setup")
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": setup.namespace}})
    try:
        folder = f"{_FOLDER}/{kubectl.namespace}"
        names = f"{STATE} {SKILLS}"
        own = f"/node/{kubectl.namespace}"
        _run_on(setup, node, image, f"mkdir {own} && cd {own} && mkdir {names} && chown 9999:9999 {names}")
        kubectl.apply(*(_volume(kubectl.namespace, name, f"{folder}/{name}", node) for name in (STATE, SKILLS)))
        kubectl.apply(*(claim(name) for name in (STATE, SKILLS)))
        try:
            yield
        finally:
            for name in (STATE, SKILLS):
                kubectl.run("delete", "persistentvolume", f"{kubectl.namespace}-{name}", "--wait=false")
            _run_on(setup, node, image, f"rm -rf {own}")
    finally:
        kubectl.run("delete", "namespace", setup.namespace, "--timeout=120s", timeout=140)


def claim(name: str, storage_class: str = "") -> dict[str, Any]:
    """A claim for a volume."""
    spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    if storage_class:
        spec["storageClassName"] = storage_class
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def desk(image: str) -> dict[str, Any]:
    """A pod that does nothing: with the volumes of the job, and no rights in the cluster."""
    paths = {STATE: "/flink-data", SKILLS: "/skills", "tmp": "/tmp"}
    mounts = [{"name": name, "mountPath": path} for name, path in paths.items()]
    claims = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in (STATE, SKILLS)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "desk", "labels": {"app": "desk"}},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "securityContext": RESTRICTED_POD,
            "containers": [
                {
                    "name": "desk",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sleep", "infinity"],
                    "securityContext": RESTRICTED,
                    "volumeMounts": mounts,
                }
            ],
            "volumes": [*claims, {"name": "tmp", "emptyDir": {}}],
        },
    }


def _has_default_class(kubectl: Kubectl) -> bool:
    return any(
        item["metadata"].get("annotations", {}).get(_DEFAULT) == "true" for item in kubectl.items("storageclasses")
    )


def _a_node(kubectl: Kubectl) -> str:
    """A node that takes pods."""
    for node in kubectl.items("nodes"):
        taints = [taint["effect"] for taint in node["spec"].get("taints", ())]
        if not node["spec"].get("unschedulable") and not {"NoSchedule", "NoExecute"} & set(taints):
            return str(node["metadata"]["name"])
    raise AssertionError("no node of the cluster takes pods")


def _volume(namespace: str, name: str, folder: str, node: str) -> dict[str, Any]:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace}-{name}"},
        "spec": {
            "capacity": {"storage": "2Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": folder},
            "claimRef": {"namespace": namespace, "name": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


def _run_on(kubectl: Kubectl, node: str, image: str, script: str) -> None:
    """Run a script as root in a pod with the node's folder at /node."""
    spec = {
        "nodeName": node,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": "main",
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-ec", script],
                "securityContext": {"runAsUser": 0, "runAsGroup": 0},
                "volumeMounts": [{"name": "node", "mountPath": "/node"}],
            }
        ],
        "volumes": [{"name": "node", "hostPath": {"path": _FOLDER, "type": "DirectoryOrCreate"}}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "main"}, "spec": spec}
    kubectl.run("create", "--filename=-", stdin=json.dumps(pod))

    def ended() -> str | None:
        phase = str(kubectl.get("pod", "main")["status"]["phase"])
        return phase if phase in ("Succeeded", "Failed") else None

    phase = wait_until(ended, 120, "the pod that prepares the node")
    assert phase == "Succeeded", kubectl.diagnostics()
    kubectl.run("delete", "pod", "main", "--wait=true")
