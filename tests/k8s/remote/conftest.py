"""Backends for a real cluster with agent-sandbox.

Environment variables, in addition to those of the parent folder:

* FLINK_SKILLS_TEST_SANDBOX_IMAGE: the image of the sandboxes, loaded into the cluster;
* FLINK_SKILLS_TEST_ROUTER: URL of the sandbox router. Without it, kubectl forwards a port to it;
* FLINK_SKILLS_TEST_RUNTIME_CLASS: RuntimeClass of the sandboxes. Without it they share the node's kernel;
* FLINK_SKILLS_TEST_SANDBOX_ARCHIVE: the same image as an OCI archive. A node that pulls it must share this machine's
  loopback;
* FLINK_SKILLS_TEST_LOSE_NODE, FLINK_SKILLS_TEST_RETURN_NODE: shell commands that disconnect the node NODE with the pod
  POD_IP, and connect it again;
* NETWORK_POLICY=none: the network plugin does not enforce NetworkPolicy, and commands have the network.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from flink_skills.execution import BackendSettings
from flink_skills.integrations.remote import RemoteBackend
from tests.integrations.remote.conftest import Key
from tests.k8s.kubectl import Kubectl
from tests.k8s.remote.sandboxes import ENFORCED, Sandboxes
from tests.kit.passable import passable_folder

NewBackend = Callable[..., RemoteBackend]
_SYSTEM = "agent-sandbox-system"


@pytest.fixture(scope="session")
def router(reachable: None) -> Iterator[str]:
    """Return the URL of the sandbox router. Skip the test without agent-sandbox."""
    system = Kubectl(_SYSTEM)
    if not system.answers("get", "crd", "sandboxclaims.extensions.agents.x-k8s.io"):
        pytest.skip("the cluster does not have agent-sandbox with its extensions")
    url = os.environ.get("FLINK_SKILLS_TEST_ROUTER")
    if url:
        yield url
    else:
        with system.forward("service/sandbox-router-svc", 8080) as port:
            yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def sandboxes(router: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandboxes]:
    """A new namespace that admits only pods of the standard ``restricted``, with the documented objects."""
    name = f"flink-skills-test-{secrets.token_hex(3)}"
    kubectl = Kubectl(name)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    with contextlib.ExitStack() as stack:
        stack.callback(kubectl.run, "delete", "namespace", name, "--timeout=150s", timeout=170)
        yield Sandboxes.create(kubectl, router, tmp_path_factory.mktemp("sandboxes"))


def settings(sandboxes: Sandboxes, **options: str) -> BackendSettings:
    """Return settings of a backend. Commands have the network only if the cluster cannot deny it."""
    given = {name.replace("_", "-"): value for name, value in options.items()}
    return BackendSettings(network=not ENFORCED, options=sandboxes.options(**given))


@pytest.fixture
async def new_backend(sandboxes: Sandboxes) -> AsyncIterator[NewBackend]:
    """Return a function that creates backends with additional options, without starting them."""
    made: list[RemoteBackend] = []

    def make(**options: str) -> RemoteBackend:
        made.append(RemoteBackend(settings(sandboxes, **options), environ={}))
        return made[-1]

    yield make
    for backend in made:
        await backend.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_backend(sandboxes: Sandboxes) -> AsyncIterator[RemoteBackend]:
    """A started backend of the tests of a module that only run commands."""
    # Each test has a key, and a small node has no room for the sandboxes of all.
    made = RemoteBackend(settings(sandboxes, idle_timeout="20 s"), environ={})
    await made.start()
    yield made
    await made.close()


@pytest.fixture
def shared_key(shared_backend: RemoteBackend) -> Iterator[Key]:
    """Yield a new key with a new sandbox."""
    with passable_folder() as folder:
        yield Key(shared_backend, folder / "ws_1")


@pytest.fixture
async def key(new_backend: NewBackend, tmp_path: Path) -> Key:
    """Return a key of a new backend."""
    backend = new_backend()
    await backend.start()
    return Key(backend, tmp_path / "workspaces" / "ws_1")
