"""Sandboxes are claimed and released, and a refusal by the cluster becomes an error with the fix.

Examines the internals of execution on purpose.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from datetime import datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from flink_skills.errors import ExecutionError
from flink_skills.execution import IsolationLevel
from flink_skills.integrations.remote import RemoteSettings, Template
from flink_skills.integrations.remote.backend import SandboxPool
from flink_skills.integrations.remote.claims import Claims
from flink_skills.integrations.remote.kubernetes import KubernetesApi
from flink_skills.integrations.remote.runtime import SandboxRuntime
from flink_skills.integrations.remote.sandbox import Sandbox
from tests.integrations.remote.cluster import TOKEN, Cluster, Fault, failure
from tests.integrations.remote.conftest import Key, NewBackend
from tests.kit.waiting import MARGIN, until


async def refused(make: NewBackend, **options: str) -> str:
    """What :meth:`start` says when it fails."""
    with pytest.raises(ExecutionError) as caught:
        await make(**options).start()
    return str(caught.value)


def once(verb: str, resource: str, answer: web.Response | None, times: int = 1) -> Fault:
    """Give ``answer`` to the first requests of a kind; None cuts the connection."""
    left = [times]

    def fault(request: web.Request) -> web.StreamResponse | None:
        kind = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}[request.method]
        if request.query.get("watch"):
            kind = "watch"
        if kind != verb or f"/{resource}" not in request.path or not left[0]:
            return None
        left[0] -= 1
        if answer is None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        copy = web.Response(body=answer.body, status=answer.status, content_type="application/json")
        copy.headers.update({name: value for name, value in answer.headers.items() if name == "Retry-After"})
        return copy

    return fault


async def test_a_claim_says_whose_it_is_and_when_it_ends(cluster: Cluster, key: Key) -> None:
    [claim] = cluster.claims

    assert claim["apiVersion"] == "extensions.agents.x-k8s.io/v1beta1"
    assert claim["spec"]["warmPoolRef"] == {"name": "pool"}
    assert claim["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "flink-skills"
    assert claim["spec"]["lifecycle"]["shutdownPolicy"] == "Delete"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", claim["spec"]["lifecycle"]["shutdownTime"])


async def test_only_the_needed_rights_are_used(cluster: Cluster, key: Key) -> None:
    await key.sh("true")
    await key.backend.close()

    assert {
        *("get sandboxtemplates", "list sandboxwarmpools"),
        *("create sandboxclaims", "get sandboxclaims", "watch sandboxclaims", "delete sandboxclaims"),
    } >= set(cluster.requests)


async def test_a_sandbox_that_takes_its_time(cluster: Cluster, new_backend: NewBackend) -> None:
    cluster.starting = [("SandboxMissing", "Sandbox does not exist")] * 50 + [("DependenciesNotReady", "Pod exists")]
    cluster.unroutable = 3
    backend = new_backend()

    await backend.start()

    assert backend.level is IsolationLevel.REMOTE
    assert "template python" in backend.version
    assert "watch sandboxclaims" in cluster.requests


async def test_a_sandbox_that_never_gets_ready_is_given_back(cluster: Cluster, new_backend: NewBackend) -> None:
    cluster.stuck = True
    cluster.starting = [("DependenciesNotReady", "Pod exists with phase: Pending")]

    said = await refused(new_backend, start_timeout="600 ms")

    assert "was not ready within 0.6 s" in said
    assert "Pod exists with phase: Pending" in said
    assert "skills.shell.remote.start-timeout" in said
    assert cluster.claims == []


async def test_a_failure_that_is_final_is_not_waited_for(cluster: Cluster, new_backend: NewBackend) -> None:
    cluster.stuck = True
    cluster.starting = [("DependenciesNotReady", "Pod exists"), ("PodFailed", "Pod failed: OOMKilled")]
    began = time.monotonic()

    said = await refused(new_backend, start_timeout="60 s")

    assert "PodFailed: Pod failed: OOMKilled" in said and "kubectl describe pod" in said
    assert time.monotonic() - began < MARGIN
    assert cluster.claims == []


async def test_a_claim_that_somebody_deletes_while_it_is_waited_for(cluster: Cluster, new_backend: NewBackend) -> None:
    cluster.stuck = True
    starting = asyncio.ensure_future(refused(new_backend))
    await until(lambda: "watch sandboxclaims" in cluster.requests)

    cluster.delete(cluster.claims[0]["metadata"]["name"])

    assert "was deleted before its sandbox was ready" in await starting


@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        ("get", "sandboxtemplates"),
        ("list", "sandboxwarmpools"),
        ("create", "sandboxclaims"),
        ("get", "sandboxclaims"),
        ("watch", "sandboxclaims"),
    ],
)
async def test_a_missing_right_is_named(cluster: Cluster, new_backend: NewBackend, verb: str, resource: str) -> None:
    cluster.forbidden = {(verb, resource)}
    cluster.stuck = verb == "watch"

    said = await refused(new_backend)

    assert f"the verb {verb!r} on {resource}.extensions.agents.x-k8s.io" in said
    assert "'agents'" in said and "RoleBinding" in said


async def test_a_token_that_is_not_accepted(new_backend: NewBackend) -> None:
    said = await refused(new_backend, token="another")

    assert "does not accept the token" in said and "skills.shell.remote.token" in said
    assert "another" not in said


async def test_a_cluster_without_agent_sandbox(cluster: Cluster, new_backend: NewBackend) -> None:
    cluster.versions = []

    assert "install agent-sandbox with its extensions" in await refused(new_backend)


async def test_a_cluster_with_a_version_that_nobody_knows(cluster: Cluster, new_backend: NewBackend) -> None:
    cluster.versions = ["v2"]

    assert "serves only v2 of" in await refused(new_backend)


async def test_a_cluster_with_the_older_version(cluster: Cluster, new_backend: NewBackend) -> None:
    cluster.versions = ["v1alpha1"]
    await new_backend().start()

    assert cluster.claims[0]["spec"]["sandboxTemplateRef"] == {"name": "python"}


async def test_a_template_that_does_not_exist(new_backend: NewBackend) -> None:
    said = await refused(new_backend, template="pyhton")

    assert "'pyhton' does not exist in namespace 'agents'" in said and "skills.shell.remote.template" in said


async def test_a_namespace_that_does_not_exist(new_backend: NewBackend) -> None:
    assert "skills.shell.remote.namespace" in await refused(new_backend, namespace="agnets")


async def test_a_template_without_a_pool(cluster: Cluster, new_backend: NewBackend) -> None:
    cluster.remove("sandboxwarmpools", "pool")

    said = await refused(new_backend)

    assert "has no SandboxWarmPool" in said and "spec.sandboxTemplateRef.name: python" in said


async def test_a_pool_that_the_options_name(cluster: Cluster, new_backend: NewBackend) -> None:
    cluster.forbidden = {("list", "sandboxwarmpools")}
    await new_backend(warm_pool="mine").start()

    assert cluster.claims[0]["spec"]["warmPoolRef"] == {"name": "mine"}


@pytest.mark.parametrize(
    "answer",
    [
        failure(500, "InternalError", "etcdserver: leader changed"),
        failure(503, "ServiceUnavailable", "apiserver is shutting down"),
        failure(429, "TooManyRequests", "slow down", **{"Retry-After": "1"}),
        None,
    ],
    ids=["500", "503", "429", "cut"],
)
@pytest.mark.parametrize(("verb", "resource"), [("create", "sandboxclaims"), ("get", "sandboxtemplates")])
async def test_passing_failures_are_tried_again(
    cluster: Cluster, new_backend: NewBackend, verb: str, resource: str, answer: web.Response | None
) -> None:
    cluster.faults = [once(verb, resource, answer)]

    await new_backend().start()

    assert cluster.made == 1


async def test_an_api_that_stays_broken_is_named(cluster: Cluster, new_backend: NewBackend) -> None:
    cluster.faults = [once("create", "sandboxclaims", failure(500, "InternalError", "etcd is gone"), times=100)]

    said = await refused(new_backend)

    assert "returned status 500 for create sandboxclaims" in said and "etcd is gone" in said


async def test_an_api_that_is_not_there(cluster: Cluster, new_backend: NewBackend) -> None:
    said = await refused(new_backend, api="http://127.0.0.1:1")

    assert "http://127.0.0.1:1 cannot be reached" in said and "skills.shell.remote.api" in said


async def test_a_claim_whose_answer_was_lost_is_not_made_twice(cluster: Cluster, new_backend: NewBackend) -> None:
    create = cluster._create
    lost = [True]

    def create_and_lose(resource: str, body: dict[str, object], version: str) -> web.Response:
        made = create(resource, body, version)  # type: ignore[arg-type]
        return failure(504, "Timeout", "the request timed out") if lost and lost.pop() else made

    cluster._create = create_and_lose  # type: ignore[method-assign]

    await new_backend().start()

    assert len(cluster.claims) == cluster.made == 1


async def test_the_name_of_somebody_else(cluster: Cluster, new_backend: NewBackend) -> None:
    names: list[str] = []
    create = cluster._create

    def taken(resource: str, body: dict[str, object], version: str) -> web.Response:
        names.append(body["metadata"]["name"])  # type: ignore[index]
        if len(names) == 1:
            cluster._put(resource, {"metadata": {"name": names[0]}, "spec": {}})
        return create(resource, body, version)  # type: ignore[arg-type]

    cluster._create = taken  # type: ignore[method-assign]
    backend = new_backend()

    await backend.start()
    await backend.close()

    assert len(set(names)) == 2
    assert [claim["metadata"]["name"] for claim in cluster.claims] == [names[0]]


@pytest.mark.parametrize("how", ["gone", "cut", "error in the stream"])
async def test_a_watch_that_breaks_is_taken_up_again(cluster: Cluster, new_backend: NewBackend, how: str) -> None:
    cluster.starting = [("SandboxMissing", "")] * 30
    gone = failure(410, "Expired", "too old resource version")
    if how == "error in the stream":
        assert isinstance(gone.body, bytes)
        event = {"type": "ERROR", "object": json.loads(gone.body)}
        gone = web.Response(text=json.dumps(event) + "\n", content_type="application/json")
    cluster.faults = [once("watch", "sandboxclaims", None if how == "cut" else gone)]

    await new_backend().start()

    assert cluster.made == 1


async def test_a_router_that_is_not_there(cluster: Cluster, new_backend: NewBackend) -> None:
    said = await refused(new_backend, url="http://127.0.0.1:1", start_timeout="1 s")

    assert "router at http://127.0.0.1:1 does not answer" in said and "skills.shell.remote.url" in said
    assert cluster.claims == []


async def test_a_router_that_wants_a_token(cluster: Cluster, new_backend: NewBackend) -> None:
    cluster.router_token = "for-the-router"

    said = await refused(new_backend)
    assert "denied this worker access (401" in said and "skills.shell.remote.router-token" in said

    await new_backend(router_token="for-the-router").start()


async def test_the_tokens_go_only_where_they_belong(cluster: Cluster, new_backend: NewBackend) -> None:
    seen: list[tuple[bool, str | None]] = []

    def look(request: web.Request) -> None:
        seen.append((request.path.startswith("/apis/"), request.headers.get("Authorization")))

    cluster.faults = [look]
    await new_backend().start()

    assert {value for is_api, value in seen if is_api} == {f"Bearer {TOKEN}"}
    assert {value for is_api, value in seen if not is_api} == {None}


async def test_an_image_without_python(cluster: Cluster, new_backend: NewBackend) -> None:
    cluster.image = {"python3": "/no/such/python3"}

    said = await refused(new_backend)

    assert "its image needs python3" in said
    assert cluster.claims == []


async def test_something_else_than_the_runtime(cluster: Cluster, new_backend: NewBackend) -> None:
    cluster.faults = [lambda request: None if request.path.startswith("/apis/") else web.json_response({"hello": 1})]

    assert "skills.shell.remote.port" in await refused(new_backend)


async def test_redirects_are_not_followed(cluster: Cluster, new_backend: NewBackend) -> None:
    def redirect(request: web.Request) -> web.StreamResponse | None:
        if request.path.startswith("/apis/"):
            return None
        return web.Response(status=307, headers={"Location": f"{cluster.api}/apis/stolen"})

    cluster.faults = [redirect]

    assert "returned status 307" in await refused(new_backend)


async def test_idle_sandboxes_are_given_back_and_made_again(
    cluster: Cluster, new_backend: NewBackend, tmp_path: Path
) -> None:
    backend = new_backend(idle_timeout="300 ms")
    await backend.start()
    key = Key(backend, tmp_path / "ws_1")
    await key.sh("echo kept > $OUTPUT_DIR/kept")

    await until(lambda: not cluster.claims)

    assert (await key.sh("cat $OUTPUT_DIR/kept")).stdout == b"kept\n"
    # On a slow machine the second one may have been idle as well.
    assert cluster.made >= 2


async def test_a_sandbox_at_work_is_not_idle(cluster: Cluster, new_backend: NewBackend, tmp_path: Path) -> None:
    backend = new_backend(idle_timeout="100 ms")
    await backend.start()
    key = Key(backend, tmp_path / "ws_1")

    assert (await key.sh("sleep 1; echo done")).stdout == b"done\n"


async def test_a_sandbox_that_was_deleted_is_replaced(cluster: Cluster, key: Key) -> None:
    await key.sh("echo kept > $OUTPUT_DIR/kept")

    cluster.delete(cluster.claims[0]["metadata"]["name"])

    assert (await key.sh("cat $OUTPUT_DIR/kept")).stdout == b"kept\n"
    assert cluster.made == 2


async def test_a_sandbox_that_is_deleted_under_a_command(
    cluster: Cluster, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flink_skills.integrations.remote.sandbox._WAIT_SECONDS", 0.2)
    task = asyncio.ensure_future(key.run("sh", "-c", "touch started; sleep 1000"))
    started = cluster.pods["pool-1"].folder / ".flink-skills/files/workspace/work/started"
    await until(started.exists)

    cluster.delete(cluster.claims[0]["metadata"]["name"])

    result = await task
    assert result.exit_code is None and "was lost while it was in use (the claim was deleted)" in str(result.error)
    assert (await key.sh("echo again")).stdout == b"again\n"


async def test_a_sandbox_that_cannot_be_given_back_ends_by_itself(
    cluster: Cluster, key: Key, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.forbidden = {("delete", "sandboxclaims")}

    await key.backend.close()

    assert "could not be given back and ends by itself within" in caplog.text
    assert cluster.expire() == []
    [claim] = cluster.claims
    claim["spec"]["lifecycle"]["shutdownTime"] = "2020-01-01T00:00:00Z"
    assert cluster.expire()


async def test_leases_are_renewed_while_a_sandbox_is_kept(cluster: Cluster) -> None:
    settings = RemoteSettings(cluster.url, cluster.api, cluster.namespace, "python", token=TOKEN)
    async with aiohttp.ClientSession() as session:
        template = Template("python", "pool", "", managed=True, egress=False, token=False, root=False)
        claims = Claims(KubernetesApi(settings, session), settings, template, lease=1.0)
        claim = await claims.make()
        sandbox = Sandbox(claim, SandboxRuntime(settings, session, claim, claims.refresh), None)
        first = claim.expires

        async def none() -> Sandbox:
            raise AssertionError("no other sandbox is needed")

        pool = SandboxPool(claims, none, idle=60.0, lease=1.0)
        pool.start(sandbox)
        await pool._look(first - 0.4)
        assert claim.expires > first
        assert cluster.requests.count("patch sandboxclaims") == 1
        await pool._look(claim.expires - 0.9)
        assert cluster.requests.count("patch sandboxclaims") == 1
        await pool.close()
    assert cluster.claims == []


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_lease_is_by_the_clock_of_the_cluster(cluster: Cluster, hours: int) -> None:
    settings = RemoteSettings(cluster.url, cluster.api, cluster.namespace, "python", token=TOKEN)
    async with aiohttp.ClientSession() as session:
        template = Template("python", "pool", "", managed=True, egress=False, token=False, root=False)
        api = KubernetesApi(settings, session)
        await api.find_version()
        claims = Claims(api, settings, template, lease=600.0)
        claim = await claims.make()
        # The clock of one of the two machines is set while the sandbox is in use.
        cluster.ahead = timedelta(hours=hours)
        await api.get("sandboxclaims", claim.name)
        await claims.renew(claim)
        assert cluster.expire() == []
        [found] = cluster.claims
        ends = datetime.strptime(found["spec"]["lifecycle"]["shutdownTime"], "%Y-%m-%dT%H:%M:%S%z")
        assert abs(ends - cluster.now - timedelta(seconds=600)) < timedelta(seconds=60)
        await claims.release(claim)
