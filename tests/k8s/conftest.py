"""A namespace, a volume and the deployed job, for tests on a real cluster.

Settings are variables of the environment:

* KUBECONFIG, and KUBECTL: a kubectl, or a command that wraps one;
* OPERATOR=none: the tests that need the Flink Kubernetes Operator are skipped;
* FLINK_SKILLS_TEST_IMAGE and FLINK_SKILLS_TEST_IMAGE_2: the image in its two versions, loaded into the cluster;
* FLINK_SKILLS_TEST_STORAGE_CLASS: for the volumes. Without it and without a default class, they are folders of a node.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Generator, Iterator

import pytest

from tests.k8s.deployment import IMAGE, PLANTED, PLANTED_VALUE, Job, Variant
from tests.k8s.kubectl import Kubectl, KubectlError
from tests.k8s.volume import desk, volumes


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds what the cluster says to the report of a failed test, while it still has its pods."""
    report = yield
    if report.failed:
        namespaces = [value.kubectl for value in item.funcargs.values() if isinstance(value, Job)]
        namespaces += [value for value in item.funcargs.values() if isinstance(value, Kubectl)]
        for kubectl in namespaces[:1]:
            report.sections.append(("the cluster", kubectl.diagnostics()))
    return report


@pytest.fixture(scope="session")
def reachable() -> None:
    """Skips where there is no cluster."""
    if not os.environ.get("KUBECONFIG"):
        pytest.skip("no cluster: KUBECONFIG is not set")
    if not Kubectl("default").answers("get", "--raw", "/readyz", "--request-timeout=10s"):
        pytest.skip("no cluster: the API server of KUBECONFIG does not answer")


@pytest.fixture(scope="session")
def operator(reachable: None) -> None:
    """Skips without the operator."""
    if os.environ.get("OPERATOR") == "none":
        pytest.skip("OPERATOR=none")
    if not Kubectl("default").answers("get", "crd", "flinkdeployments.flink.apache.org"):
        pytest.skip("the cluster does not have the Flink Kubernetes Operator (set OPERATOR=none to say so)")


@pytest.fixture(scope="module")
def namespace(reachable: None) -> Iterator[Kubectl]:
    """A new namespace that admits only pods of the standard ``restricted``, with volumes, a desk and a secret."""
    name = f"flink-skills-test-{secrets.token_hex(3)}"
    kubectl = Kubectl(name)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    planted = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "planted"}}
    kubectl.apply({**planted, "stringData": {"key": PLANTED_VALUE}})
    with contextlib.ExitStack() as stack:
        stack.callback(_remove, kubectl)
        stack.enter_context(volumes(kubectl, IMAGE))
        kubectl.apply(desk(IMAGE))
        yield kubectl
        # The volumes are removed after the pods that use them.
        _remove(kubectl)


def _remove(kubectl: Kubectl) -> None:
    """Delete the namespace. A deployment that the operator cannot clean up would keep it forever."""
    if not kubectl.answers("get", "namespace", kubectl.namespace):
        return
    kubectl.run("delete", "namespace", kubectl.namespace, "--wait=false")
    try:
        kubectl.run("wait", "--for=delete", f"namespace/{kubectl.namespace}", "--timeout=150s", timeout=170)
    except KubectlError:
        for found in kubectl.names("flinkdeployments"):
            kubectl.run("patch", found, "--type=merge", '--patch={"metadata":{"finalizers":null}}')
        kubectl.run("wait", "--for=delete", f"namespace/{kubectl.namespace}", "--timeout=150s", timeout=170)


@pytest.fixture(scope="module")
def job(operator: None, namespace: Kubectl) -> Job:
    """The job of the local overlay under the operator, running."""
    found = Job(namespace, namespace.pod("app=desk"))
    found.deploy(Variant(patches=PLANTED))
    return found
