"""Sandboxes on a real cluster: pods that go away, quotas, images, leases, and the network."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from flink_skills.errors import ExecutionError
from flink_skills.execution import BackendSettings, Limits
from flink_skills.integrations.remote import RemoteBackend
from tests.integrations.remote.conftest import Key
from tests.k8s.kubectl import wait_until
from tests.k8s.remote.conftest import NewBackend
from tests.k8s.remote.registry import slow_registry
from tests.k8s.remote.sandboxes import ARCHIVE, ENFORCED, LOSE_NODE, Sandboxes, manifests, spec_with
from tests.kit.waiting import until

pytestmark = pytest.mark.k8s


async def pod_of(key: Key) -> str:
    """Return the name of the pod that runs the key's commands."""
    return (await key.sh("uname -n")).stdout.decode().strip()


async def test_each_key_has_a_pod(key: Key, tmp_path: Path, sandboxes: Sandboxes) -> None:
    other = Key(key.backend, tmp_path / "workspaces" / "ws_2")

    first, second = await pod_of(key), await pod_of(other)

    pods = {str(pod["metadata"]["name"]) for pod in sandboxes.kubectl.items("pods")}
    assert first != second
    assert {first, second} <= pods


async def test_the_report(key: Key) -> None:
    assert {"another_pod", "round_trip"} <= set(key.backend.proved)
    assert ("network_denied" in key.backend.proved) == ENFORCED
    assert "service_account_token_in_sandbox" not in key.backend.not_enforced
    assert "root_in_sandbox" not in key.backend.not_enforced
    assert key.backend.version.startswith("agent-sandbox v1")


async def test_commands_leave_no_processes(key: Key, sandboxes: Sandboxes) -> None:
    pod = await pod_of(key)

    await key.sh("setsid sleep 4711 > /dev/null 2>&1 & exit 0")
    late = await key.run("sh", "-c", "setsid sleep 4711 & trap '' TERM; sleep 4711", limits=Limits(wall_time=1))

    assert late.timed_out
    assert "4711" not in await asyncio.to_thread(sandboxes.processes, pod)


async def test_cancelling_ends_the_command(key: Key, sandboxes: Sandboxes) -> None:
    pod = await pod_of(key)
    task = asyncio.ensure_future(key.run("sh", "-c", "setsid sleep 4711 & sleep 4711"))
    await until(lambda: "4711" in sandboxes.processes(pod), within=60, pause=0.5)

    task.cancel()
    await asyncio.wait([task])

    assert "4711" not in await asyncio.to_thread(sandboxes.processes, pod)


async def test_a_pod_that_is_lost_during_a_command(key: Key, sandboxes: Sandboxes) -> None:
    await key.sh("echo kept > $OUTPUT_DIR/kept")
    pod = await pod_of(key)
    task = asyncio.ensure_future(key.run("sh", "-c", "sleep 4711"))
    await until(lambda: "4711" in sandboxes.processes(pod), within=60, pause=0.5)

    await asyncio.to_thread(sandboxes.kill, pod)

    result = await asyncio.wait_for(task, 180)
    assert result.exit_code is None and result.error
    assert (await key.sh("cat $OUTPUT_DIR/kept")).stdout == b"kept\n"


async def test_a_pod_that_is_lost_between_commands(key: Key, sandboxes: Sandboxes) -> None:
    await key.sh("echo kept > $OUTPUT_DIR/kept")
    await asyncio.to_thread(sandboxes.kill, await pod_of(key))

    async def answers() -> bool:
        return (await key.run("cat", str(key.out / "kept"))).stdout == b"kept\n"

    await until(answers, within=180)


async def test_a_claim_that_is_deleted_is_replaced(key: Key, sandboxes: Sandboxes) -> None:
    await key.sh("echo kept > $OUTPUT_DIR/kept")
    claims = await asyncio.to_thread(sandboxes.claims)
    await asyncio.to_thread(sandboxes.kubectl.run, "delete", "sandboxclaims", *claims)

    assert (await key.sh("cat $OUTPUT_DIR/kept")).stdout == b"kept\n"


async def test_idle_sandboxes_are_released(new_backend: NewBackend, sandboxes: Sandboxes, tmp_path: Path) -> None:
    backend = new_backend(idle_timeout="2 s")
    await backend.start()
    key = Key(backend, tmp_path / "ws_1")
    await key.sh("echo kept > $OUTPUT_DIR/kept")

    await asyncio.to_thread(sandboxes.wait_for_no_claims)

    assert (await key.sh("cat $OUTPUT_DIR/kept")).stdout == b"kept\n"


async def test_the_controller_ends_the_sandboxes_of_a_lost_worker(key: Key, sandboxes: Sandboxes) -> None:
    pod = await pod_of(key)
    past = '{"spec": {"lifecycle": {"shutdownTime": "2020-01-01T00:00:00Z"}}}'
    for claim in await asyncio.to_thread(sandboxes.claims):
        await asyncio.to_thread(
            sandboxes.kubectl.run, "patch", "sandboxclaim", claim, "--type=merge", f"--patch={past}"
        )

    def gone() -> bool:
        return f"pod/{pod}" not in sandboxes.kubectl.names("pods") and not sandboxes.claims()

    await asyncio.to_thread(wait_until, gone, 120, "the controller to delete the sandbox")


async def test_a_quota_is_an_error_of_the_command(
    new_backend: NewBackend, sandboxes: Sandboxes, tmp_path: Path
) -> None:
    backend = new_backend(start_timeout="20 s")
    await backend.start()
    first, second = (Key(backend, tmp_path / name) for name in ("ws_1", "ws_2"))
    await first.sh("true")
    used = len(sandboxes.kubectl.items("pods"))
    sandboxes.kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "pods"},
            "spec": {"hard": {"pods": str(used)}},
        }
    )
    try:
        # The sandboxes that wait in the pool are within the quota.
        results = [await Key(backend, tmp_path / f"ws_{n}").run("true") for n in range(3, 3 + used)]
        result = next(result for result in [await second.run("true"), *results] if result.error)
        assert "was not ready within 20 s" in str(result.error)
        assert "exceeded quota" in str(result.error)
        assert (await first.sh("echo on")).stdout == b"on\n"
    finally:
        sandboxes.kubectl.run("delete", "resourcequota", "pods")


async def test_an_image_that_cannot_be_pulled(new_backend: NewBackend, sandboxes: Sandboxes) -> None:
    sandboxes.add_template("missing", **spec_with(manifests()["SandboxTemplate"]["spec"], "localhost/no-such-image:1"))
    backend = new_backend(template="missing", start_timeout="15 s")

    with pytest.raises(ExecutionError, match=r"was not ready within 15 s .*Pending"):
        await backend.start()
    await asyncio.to_thread(sandboxes.wait_for_no_claims)


@pytest.mark.skipif(not ARCHIVE, reason="FLINK_SKILLS_TEST_SANDBOX_ARCHIVE is not set")
async def test_an_image_that_is_pulled_slowly(new_backend: NewBackend, sandboxes: Sandboxes, tmp_path: Path) -> None:
    spec = manifests()["SandboxTemplate"]["spec"]
    with slow_registry(Path(ARCHIVE), seconds=25) as image:
        sandboxes.add_template("slow", **spec_with(spec, image))
        with pytest.raises(ExecutionError, match=r"was not ready within 10 s .*start-timeout"):
            await new_backend(template="slow", start_timeout="10 s").start()
        await asyncio.to_thread(sandboxes.wait_for_no_claims)

        patient = new_backend(template="slow")
        await patient.start()

    assert (await Key(patient, tmp_path / "ws_1").sh("echo on")).stdout == b"on\n"


@pytest.mark.skipif(not LOSE_NODE, reason="FLINK_SKILLS_TEST_LOSE_NODE is not set")
async def test_a_node_that_is_lost_during_a_command(key: Key, sandboxes: Sandboxes) -> None:
    await key.sh("echo kept > $OUTPUT_DIR/kept")
    pod = await pod_of(key)
    task = asyncio.ensure_future(key.run("sh", "-c", "sleep 4711"))
    await until(lambda: "4711" in sandboxes.processes(pod), within=60, pause=0.5)

    with sandboxes.without_node_of(pod):
        result = await asyncio.wait_for(task, 180)
        assert result.exit_code is None and result.error

    async def answers() -> bool:
        return (await key.run("cat", str(key.out / "kept"))).stdout == b"kept\n"

    await until(answers, within=180)


@pytest.mark.skipif(not ENFORCED, reason="NETWORK_POLICY=none")
async def test_commands_cannot_connect(key: Key, sandboxes: Sandboxes) -> None:
    text = """
import socket, sys
for address in sys.argv[1:]:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 3).close()
    except OSError:
        continue
    print(address)
with open("/etc/resolv.conf") as file:
    servers = [line.split()[1] for line in file if line.startswith("nameserver")]
for server in servers:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as name_server:
        name_server.settimeout(3)
        try:
            name_server.sendto(b"\\0\\1\\1\\0\\0\\1" + bytes(6) + b"\\7example\\3com\\0\\0\\1\\0\\1", (server, 53))
            name_server.recv(512)
        except OSError:
            continue
    print(server)
"""
    await key.sh("true")
    pods = [pod["status"]["podIP"] for pod in sandboxes.kubectl.items("pods") if pod["status"].get("podIP")]
    own = (await key.sh("hostname -i")).stdout.decode().strip()
    addresses = [url.rpartition("//")[2] for url in (sandboxes.api, sandboxes.url)]
    addresses += [f"{address}:8888" for address in pods if address != own]

    result = await key.run("python3", "-c", text, *addresses)

    assert (result.exit_code, result.stdout) == (0, b""), result


@pytest.mark.skipif(ENFORCED, reason="the network plugin enforces NetworkPolicy")
async def test_a_plugin_that_does_not_enforce_policies_is_rejected(sandboxes: Sandboxes) -> None:
    backend = RemoteBackend(BackendSettings(options=sandboxes.options()), environ={})

    with pytest.raises(ExecutionError, match="network plugin that enforces NetworkPolicy"):
        await backend.start()


async def test_a_template_that_allows_the_network_is_rejected(sandboxes: Sandboxes) -> None:
    sandboxes.add_template("open", networkPolicy={"egress": [{}]})
    backend = RemoteBackend(BackendSettings(options=sandboxes.options(template="open")), environ={})

    with pytest.raises(ExecutionError, match="allows sandboxes to connect"):
        await backend.start()
