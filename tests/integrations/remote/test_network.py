"""What the template and the sandbox itself say about the network and about isolation."""

from __future__ import annotations

import pytest

from flink_skills.errors import ConfigError, ExecutionError
from flink_skills.execution import BackendSettings
from flink_skills.integrations.remote import RemoteBackend, Template
from tests.integrations.remote.cluster import Cluster
from tests.integrations.remote.conftest import Key, NewBackend


async def test_commands_have_no_network(key: Key) -> None:
    text = "import socket; socket.create_connection(('127.0.0.1', 1))"

    result = await key.run("python3", "-c", text)

    assert b"Network is unreachable" in result.stderr
    assert "network_denied" in key.backend.proved


@pytest.mark.parametrize("policy", [None, {"ingress": []} | {"egress": [{"to": []}]}], ids=["default", "open"])
async def test_a_template_that_lets_pods_connect_is_refused(
    cluster: Cluster, new_backend: NewBackend, policy: dict[str, object] | None
) -> None:
    cluster.template("python", networkPolicy=policy)

    with pytest.raises(ExecutionError, match=r"egress: \[\]") as caught:
        await new_backend().start()
    assert "skills.shell.network" in str(caught.value)
    assert cluster.claims == []


async def test_a_policy_that_nobody_enforces_is_refused(cluster: Cluster, new_backend: NewBackend) -> None:
    cluster.policy_enforced = False

    with pytest.raises(ExecutionError, match=r"can connect to 127\.0\.0\.1") as caught:
        await new_backend().start()
    assert "network plugin that enforces NetworkPolicy" in str(caught.value)
    assert cluster.claims == []


async def test_the_network_is_there_when_it_is_allowed(cluster: Cluster, new_backend: NewBackend) -> None:
    cluster.template("python", networkPolicy=None)
    backend = new_backend(network=True)

    await backend.start()

    assert "network_denied" not in backend.proved


async def test_a_policy_of_others_is_said(cluster: Cluster, new_backend: NewBackend) -> None:
    cluster.template("python", networkPolicyManagement="Unmanaged")
    backend = new_backend()

    await backend.start()

    assert "network_policy_not_managed_by_template" in backend.not_enforced


async def test_hosts_cannot_be_told_apart(cluster: Cluster) -> None:
    settings = BackendSettings(network=True, hosts=("packages.example",), options=cluster.options)

    with pytest.raises(ConfigError, match=r"skills\.shell\.network-hosts"):
        RemoteBackend(settings, environ={})


async def test_isolation_is_as_good_as_the_runtime_class(cluster: Cluster, new_backend: NewBackend) -> None:
    backend = new_backend()
    await backend.start()
    assert backend.not_enforced == ("command_environment_within_key", "only_as_strong_as_runtime_class:gvisor")

    pod = {"containers": [{"name": "runtime"}], "automountServiceAccountToken": True}
    cluster.template("python", podTemplate={"spec": pod})
    other = new_backend()
    await other.start()
    assert {"shared_kernel", "root_in_sandbox", "service_account_token_in_sandbox"} < set(other.not_enforced)


@pytest.mark.parametrize(
    ("pod", "container", "root"),
    [
        ({}, {}, True),
        ({"runAsNonRoot": True}, {}, False),
        ({"runAsUser": 1000}, {}, False),
        ({"runAsUser": 1000}, {"runAsUser": 0}, True),
        ({"runAsUser": 0}, {}, True),
        ({"runAsNonRoot": True}, {"runAsNonRoot": False}, True),
    ],
)
def test_root_in_the_pod(pod: dict[str, object], container: dict[str, object], root: bool) -> None:
    spec = {"podTemplate": {"spec": {"securityContext": pod, "containers": [{"securityContext": container}]}}}

    assert Template.parse("python", "pool", spec).root is root
