"""The objects of docs/remote.md in a namespace of a real cluster, as the backend ``remote`` uses them."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.k8s.deployment import CHECKOUT
from tests.k8s.kubectl import Kubectl, wait_until

__all__ = ["ARCHIVE", "ENFORCED", "LOSE_NODE", "Sandboxes"]

ENFORCED = os.environ.get("NETWORK_POLICY") != "none"
"""Whether the cluster's network plugin enforces NetworkPolicy."""

ARCHIVE = os.environ.get("FLINK_SKILLS_TEST_SANDBOX_ARCHIVE", "")
"""Path of the sandboxes' image as an OCI archive, for a node that pulls images from this machine's loopback."""

LOSE_NODE = os.environ.get("FLINK_SKILLS_TEST_LOSE_NODE", "")
"""Shell command that disconnects the node NODE with the pod POD_IP."""

_RETURN_NODE = os.environ.get("FLINK_SKILLS_TEST_RETURN_NODE", "")
_IMAGE = os.environ.get("FLINK_SKILLS_TEST_SANDBOX_IMAGE", "localhost/python-runtime-sandbox:test")
_RUNTIME_CLASS = os.environ.get("FLINK_SKILLS_TEST_RUNTIME_CLASS", "")
_ACCOUNT = "flink-skills"
_RBAC = "rbac.authorization.k8s.io"
_START = "300 s"


def manifests() -> dict[str, dict[str, Any]]:
    """Return the objects that docs/remote.md documents, by kind."""
    text = (CHECKOUT / "docs" / "remote.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return {found["kind"]: found for block in blocks for found in yaml.safe_load_all(block) if "kind" in found}


@dataclass(frozen=True)
class Sandboxes:
    """Sandboxes in the namespace of ``kubectl``. ``url`` is the router's address."""

    kubectl: Kubectl
    url: str
    api: str
    token: str
    ca_file: str

    @classmethod
    def create(cls, kubectl: Kubectl, url: str, folder: Path) -> Sandboxes:
        """Apply the documented objects, and read the address and the certificates of the API from the kubeconfig."""
        found = manifests()
        template = found["SandboxTemplate"]
        template["spec"] = spec_with(template["spec"])
        found["SandboxWarmPool"]["spec"]["replicas"] = 1
        account = {"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": kubectl.namespace}
        binding = {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": _ACCOUNT},
            "subjects": [account],
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": found["Role"]["metadata"]["name"]},
        }
        documents = [template, found["SandboxWarmPool"], found["Role"], binding]
        for document in documents:
            document["metadata"].pop("namespace", None)
        kubectl.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": _ACCOUNT}}, *documents)
        view = yaml.safe_load(kubectl.run("config", "view", "--raw", "--minify", "--flatten"))
        cluster = view["clusters"][0]["cluster"]
        certificates = folder / "ca.crt"
        certificates.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
        token = kubectl.run("create", "token", _ACCOUNT, "--duration=3h").strip()
        return cls(kubectl, url, cluster["server"], token, str(certificates))

    def options(self, **more: str) -> dict[str, str]:
        """Return the options ``skills.shell.remote.*`` for the documented template."""
        return {
            "url": self.url,
            "api": self.api,
            "namespace": self.kubectl.namespace,
            "template": manifests()["SandboxTemplate"]["metadata"]["name"],
            "token": self.token,
            "ca-file": self.ca_file,
            "start-timeout": _START,
            **more,
        }

    def add_template(self, name: str, **spec: Any) -> None:
        """Apply another template, with a pool of the same name that keeps no sandboxes."""
        documented = manifests()
        api = documented["SandboxTemplate"]["apiVersion"]
        self.kubectl.apply(
            {
                "apiVersion": api,
                "kind": "SandboxTemplate",
                "metadata": {"name": name},
                "spec": {**spec_with(documented["SandboxTemplate"]["spec"]), **spec},
            },
            {
                "apiVersion": api,
                "kind": "SandboxWarmPool",
                "metadata": {"name": name},
                "spec": {"replicas": 0, "sandboxTemplateRef": {"name": name}},
            },
        )

    def claims(self) -> list[str]:
        """Return the names of the claims of all workers."""
        return [str(item["metadata"]["name"]) for item in self.kubectl.items("sandboxclaims")]

    def processes(self, pod: str) -> str:
        """Return the command lines of all processes in a sandbox."""
        return self.kubectl.execute(pod, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")

    def kill(self, pod: str) -> None:
        """Remove a pod as if its node were lost, without notifying its processes."""
        self.kubectl.run("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")

    @contextlib.contextmanager
    def without_node_of(self, pod: str) -> Iterator[None]:
        """Disconnect the node of a pod, and connect it again at the end."""
        found = self.kubectl.get(f"pod/{pod}")
        variables = {**os.environ, "NODE": found["spec"]["nodeName"], "POD_IP": found["status"]["podIP"]}
        try:
            subprocess.run(LOSE_NODE, shell=True, env=variables, check=True)
            yield
        finally:
            subprocess.run(_RETURN_NODE, shell=True, env=variables, check=True)

    def wait_for_no_claims(self) -> None:
        wait_until(lambda: not self.claims(), 120, "the claims to be deleted")


def spec_with(spec: dict[str, Any], image: str = _IMAGE) -> dict[str, Any]:
    """Return the documented spec with the tests' image and runtime class, and requests that a small node satisfies."""
    pod = {**spec["podTemplate"]["spec"], "terminationGracePeriodSeconds": 0}
    pod.pop("runtimeClassName")
    if _RUNTIME_CLASS:
        pod["runtimeClassName"] = _RUNTIME_CLASS
    [container] = pod["containers"]
    resources = {**container["resources"], "requests": {"cpu": "10m", "memory": "64Mi"}}
    pod["containers"] = [{**container, "image": image, "imagePullPolicy": "IfNotPresent", "resources": resources}]
    return {**spec, "podTemplate": {"spec": pod}}
