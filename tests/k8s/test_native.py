"""The same manifests by Flink's own client (``deploy.native``), without the operator and without high availability."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.k8s.deployment import (
    CHECKOUT,
    IMAGE,
    JOB_MANAGER,
    NAME,
    PLANTED,
    TASK_MANAGER,
    Job,
    Variant,
    overlay,
    without_claims,
)
from tests.k8s.kubectl import Kubectl, wait_until
from tests.k8s.volume import RESTRICTED, RESTRICTED_POD

pytestmark = pytest.mark.k8s

NO_HIGH_AVAILABILITY = [
    {"op": "remove", "path": f"/spec/flinkConfiguration/high-availability.{name}"} for name in ("type", "storageDir")
]
_RBAC = "rbac.authorization.k8s.io"
#: What Flink's client makes: the JobManager's Deployment with its ConfigMaps and services.
CLIENT_RULES = [
    {
        "apiGroups": [""],
        "resources": ["services", "configmaps"],
        "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
    },
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list", "watch", "create", "delete"]},
]


def client(files: Path) -> list[dict[str, Any]]:
    """A pod that runs the script of ``deploy.native`` in the cluster, and its account."""
    names = [
        str(path.relative_to(files)) for path in files.rglob("*") if path.is_file() and path.name != "objects.yaml"
    ]
    items = [{"key": name.replace("/", "-"), "path": name} for name in names]
    mounts = {"submission": "/submission", "tmp": "/tmp", "log": "/opt/flink/log"}
    container = {
        "name": "client",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["bash", "/submission/run.sh"],
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
    }
    pod = {
        "serviceAccountName": "client",
        "restartPolicy": "Never",
        "securityContext": RESTRICTED_POD,
        "containers": [container],
        "volumes": [
            {"name": "submission", "configMap": {"name": "submission", "items": items}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "log", "emptyDir": {}},
        ],
    }
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "client"},
        "subjects": [{"kind": "ServiceAccount", "name": "client"}],
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": "client"},
    }
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "client"}},
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": {"name": "client"}, "rules": CLIENT_RULES},
        binding,
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "submission"},
            "data": {item["key"]: (files / item["path"]).read_text() for item in items},
        },
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "client"}, "spec": pod},
    ]


@pytest.fixture(scope="module")
def native(namespace: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """The job of the local overlay, submitted by ``flink run --target kubernetes-application``."""
    files = tmp_path_factory.mktemp("native")
    with overlay(namespace, Variant(patches=(*PLANTED, *NO_HIGH_AVAILABILITY))) as folder:
        module = [sys.executable, "-m", "deploy.native", str(folder), "--namespace", namespace.namespace]
        subprocess.run([*module, "--output", str(files)], check=True, cwd=CHECKOUT)
    namespace.apply(*without_claims((files / "objects.yaml").read_text()), *client(files))

    def submitted() -> bool:
        phase = namespace.get("pod", "client")["status"]["phase"]
        assert phase != "Failed", f"the client failed:\n{namespace.logs('client')}"
        return bool(phase == "Succeeded")

    wait_until(submitted, 300, "the client to submit the job")
    return Job(namespace, namespace.pod("app=desk"))


def test_the_job_answers(native: Job) -> None:
    stamp = native.ask("native", "a parcel at the harbour")
    assert stamp["place"] == "harbour"


def test_the_listed_rights_are_enough_without_high_availability(native: Job) -> None:
    for pod in (native.task_manager(), native.kubectl.pod(JOB_MANAGER)):
        refused = [line for line in native.kubectl.logs(pod).splitlines() if "forbidden" in line.lower()]
        assert not refused, refused
    # Without it nobody elects a leader by a ConfigMap.
    assert f"configmap/{NAME}-cluster-config-map" not in native.kubectl.names("configmaps")


def test_a_lost_task_manager_is_made_again(native: Job) -> None:
    ids = native.send(
        [{"job": "lost", "incident": f"lost-{n}", "lines": ["a parcel at the harbour"]} for n in range(20)]
    )
    native.kubectl.kill(TASK_MANAGER)
    found = native.wait_for(ids, deadline=400)
    assert [json.loads(answers[0])["parcel"] for answers in found.values() if len(answers) == 1] == ids


def test_deletion_of_the_deployment_leaves_nothing(native: Job) -> None:
    native.kubectl.run("delete", "deployment", NAME, "--timeout=120s", timeout=140)

    def nothing() -> bool:
        return not native.kubectl.names("pods,deployments,replicasets,services,configmaps", f"app={NAME}")

    wait_until(nothing, 120, "all that belongs to the job to be gone")
