"""A cluster with agent-sandbox, as far as a client sees it: custom resources with a controller, and a router."""

from __future__ import annotations

import asyncio
import copy
import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.integrations.remote.pods import Pod

EXTENSIONS = "extensions.agents.x-k8s.io"
TOKEN = "token-of-the-service-account"

Fault = Callable[[web.Request], "web.StreamResponse | None"]


def failure(status: int, reason: str, message: str, **headers: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason}
    return web.json_response({**body, "message": message}, status=status, headers=headers)


class Cluster:
    """Two servers, ``api`` and ``url``, on free ports. Attributes are what tests change.

    ``faults`` are asked in turn before a request is served; the first answer is taken. ``starting`` are the reasons
    that a claim shows one after the other before its sandbox is ready; the last one stays if ``stuck``. ``ahead``
    is how far its clocks are ahead of the worker's.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.namespace = "agents"
        self.ahead = timedelta(0)
        self.versions = ["v1beta1", "v1alpha1"]
        self.forbidden: set[tuple[str, str]] = set()
        self.faults: list[Fault] = []
        self.starting: list[tuple[str, str]] = [("SandboxMissing", "Sandbox does not exist")]
        self.stuck = False
        self.unroutable = 0
        self.policy_enforced = True
        self.image: dict[str, str] = {}
        self.router_token = ""
        self.requests: list[str] = []
        self.pods: dict[str, Pod] = {}
        self.made = 0
        self._version = 100
        self._objects: dict[tuple[str, str], dict[str, Any]] = {}
        self._events: list[dict[str, Any]] = []
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self.api = self.url = ""
        self.template("python")
        self._put("sandboxwarmpools", {"metadata": {"name": "pool"}, "spec": _template_ref("python")})

    def template(self, name: str, **spec: Any) -> None:
        """Put a template; by default one whose pods cannot connect to anything."""
        pod = {
            "runtimeClassName": "gvisor",
            "securityContext": {"runAsNonRoot": True},
            "automountServiceAccountToken": False,
            "containers": [{"name": "runtime", "image": "python-runtime-sandbox"}],
        }
        policy = {"ingress": [{"from": []}], "egress": []}
        self._put(
            "sandboxtemplates",
            {"metadata": {"name": name}, "spec": {"podTemplate": {"spec": pod}, "networkPolicy": policy, **spec}},
        )

    def remove(self, resource: str, name: str) -> None:
        del self._objects[resource, name]

    @property
    def claims(self) -> list[dict[str, Any]]:
        return [found for (resource, _), found in self._objects.items() if resource == "sandboxclaims"]

    @property
    def options(self) -> dict[str, str]:
        return {
            "url": self.url,
            "api": self.api,
            "namespace": self.namespace,
            "template": "python",
            "token": TOKEN,
            "start-timeout": "20 s",
        }

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Cluster]:
        runners = []
        for handler in (self._on_api, self._on_router):
            app = web.Application(client_max_size=1 << 30)
            app.router.add_route("*", "/{path:.*}", handler)
            app.on_response_prepare.append(self._tell_time)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            runners.append(runner)
        self.api, self.url = (f"http://127.0.0.1:{runner.addresses[0][1]}" for runner in runners)
        try:
            yield self
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for runner in runners:
                await runner.cleanup()
            for pod in self.pods.values():
                pod.end()

    @property
    def now(self) -> datetime:
        """The time by the cluster's clocks, which are ``ahead`` of the worker's."""
        return datetime.now(timezone.utc) + self.ahead

    async def _tell_time(self, request: web.Request, answer: web.StreamResponse) -> None:
        answer.headers["Date"] = format_datetime(self.now, usegmt=True)

    def _fault(self, request: web.Request) -> web.StreamResponse | None:
        for fault in self.faults:
            answer = fault(request)
            if answer is not None:
                return answer
        return None

    async def _on_api(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return failure(401, "Unauthorized", "Unauthorized")
        if request.path == f"/apis/{EXTENSIONS}":
            return self._fault(request) or self._group()
        _, _, group, version, _, namespace, resource, *name = request.path.split("/")
        verb = _verb(request, bool(name))
        self.requests.append(f"{verb} {resource}")
        fault = self._fault(request)
        if fault is not None:
            return fault
        if (verb, resource) in self.forbidden:
            return failure(
                403, "Forbidden", f'{resource}.{group} is forbidden: User "flink" cannot {verb} resource "{resource}"'
            )
        if version not in self.versions or namespace != self.namespace:
            return failure(404, "NotFound", "the server could not find the requested resource")
        if verb == "watch":
            return await self._watch(request, resource)
        if verb == "list":
            items = [found for (kind, _), found in self._objects.items() if kind == resource]
            return web.json_response({"kind": "List", "items": items})
        if verb == "create":
            return self._create(resource, await request.json(), version)
        found = self._objects.get((resource, name[0]))
        if found is None:
            return failure(404, "NotFound", f'{resource}.{group} "{name[0]}" not found')
        if verb == "patch":
            if request.content_type != "application/merge-patch+json":
                return failure(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
            self._put(resource, _merged(found, await request.json()))
        elif verb == "delete":
            wanted = (await request.json()).get("preconditions", {}).get("uid")
            if wanted and wanted != found["metadata"]["uid"]:
                return failure(409, "Conflict", "the UID in the precondition does not match")
            self.delete(name[0])
            return web.json_response({"kind": "Status", "status": "Success"})
        return web.json_response(self._objects[resource, name[0]])

    def _group(self) -> web.Response:
        if not self.versions:
            return failure(404, "NotFound", "the server could not find the requested resource")
        versions = [{"groupVersion": f"{EXTENSIONS}/{name}", "version": name} for name in self.versions]
        return web.json_response({"kind": "APIGroup", "name": EXTENSIONS, "versions": versions})

    def _create(self, resource: str, body: dict[str, Any], version: str) -> web.Response:
        name = body["metadata"]["name"]
        if (resource, name) in self._objects:
            return failure(409, "AlreadyExists", f'sandboxclaims.{EXTENSIONS} "{name}" already exists')
        needed = "warmPoolRef" if version == "v1beta1" else "sandboxTemplateRef"
        if needed not in body["spec"]:
            return failure(422, "Invalid", f"spec.{needed}: Required value")
        made = self._put(resource, body)
        task = asyncio.ensure_future(self._control(name))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return web.json_response(made, status=201)

    async def _control(self, name: str) -> None:
        """What the controller does about a claim."""
        for reason, message in self.starting:
            await asyncio.sleep(0)
            self._condition(name, "False", reason, message)
        if self.stuck or ("sandboxclaims", name) not in self._objects:
            return
        await asyncio.sleep(0)
        self.made += 1
        sandbox = f"pool-{self.made}"
        self.pods[sandbox] = Pod(
            self.folder / sandbox, connected=not self.policy_enforced or self._egress(), image=self.image
        )
        status = {"sandbox": {"name": sandbox, "podIPs": ["10.1.2.3"]}}
        self._condition(name, "True", "DependenciesReady", "Pod is Ready", **status)

    def _egress(self) -> bool:
        policy = self._objects["sandboxtemplates", "python"]["spec"].get("networkPolicy")
        return policy is None or bool(policy["egress"])

    def _condition(self, name: str, status: str, reason: str, message: str, **more: Any) -> None:
        claim = self._objects.get(("sandboxclaims", name))
        if claim is not None:
            condition = {"type": "Ready", "status": status, "reason": reason, "message": message}
            self._put("sandboxclaims", {**claim, "status": {"conditions": [condition], **more}})

    def delete(self, name: str) -> None:
        """Delete a claim with its sandbox, as the garbage collection does."""
        claim = self._objects.pop(("sandboxclaims", name))
        self._version += 1
        claim["metadata"]["resourceVersion"] = str(self._version)
        self._tell("DELETED", claim)
        sandbox = claim.get("status", {}).get("sandbox", {}).get("name")
        if sandbox in self.pods:
            self.pods[sandbox].end()

    def restart(self, sandbox: str) -> None:
        """The container of a sandbox starts anew, with nothing that was written to it."""
        pod = self.pods[sandbox]
        pod.end()
        self.pods[sandbox] = Pod(pod.folder, connected=pod.connected, image=self.image)

    def expire(self) -> list[str]:
        """Delete the claims whose time is over; returns their names."""
        now = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        over = [
            claim["metadata"]["name"]
            for claim in self.claims
            if claim["spec"].get("lifecycle", {}).get("shutdownTime", "9999") < now
        ]
        for name in over:
            self.delete(name)
        return over

    def _put(self, resource: str, body: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        made = copy.deepcopy(body)
        made["metadata"].setdefault("uid", str(uuid.uuid4()))
        made["metadata"]["resourceVersion"] = str(self._version)
        key = resource, made["metadata"]["name"]
        kind = "MODIFIED" if key in self._objects else "ADDED"
        self._objects[key] = made
        if resource == "sandboxclaims":
            self._tell(kind, made)
        return made

    def _tell(self, kind: str, claim: dict[str, Any]) -> None:
        self._events.append({"type": kind, "object": claim, "version": self._version})
        task = asyncio.ensure_future(self._wake())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _watch(self, request: web.Request, resource: str) -> web.StreamResponse:
        assert resource == "sandboxclaims"
        wanted = request.query["fieldSelector"].removeprefix("metadata.name=")
        since = int(request.query["resourceVersion"])
        ends_at = asyncio.get_running_loop().time() + float(request.query["timeoutSeconds"])
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        await stream.prepare(request)
        seen = 0
        while (left := ends_at - asyncio.get_running_loop().time()) > 0:
            for event in self._events[seen:]:
                if event["object"]["metadata"]["name"] == wanted and event["version"] > since:
                    line = json.dumps({"type": event["type"], "object": event["object"]}).encode() + b"\n"
                    # In two pieces, as a network would have it.
                    await stream.write(line[:40])
                    await stream.write(line[40:])
            seen = len(self._events)
            async with self._changed:
                if seen == len(self._events):
                    try:
                        await asyncio.wait_for(self._changed.wait(), left)
                    except asyncio.TimeoutError:
                        break
        return stream

    async def _on_router(self, request: web.Request) -> web.StreamResponse:
        fault = self._fault(request)
        if fault is not None:
            return fault
        if self.router_token and request.headers.get("Authorization") != f"Bearer {self.router_token}":
            return web.json_response({"detail": "Unauthorized"}, status=401)
        sandbox = request.headers.get("X-Sandbox-ID")
        if not sandbox:
            return web.json_response({"detail": "X-Sandbox-ID header is required."}, status=400)
        assert request.headers["X-Sandbox-Namespace"] == self.namespace
        assert request.headers["X-Sandbox-Pod-IP"] == "10.1.2.3"
        pod = self.pods.get(sandbox)
        if self.unroutable or pod is None or not pod.folder.is_dir():
            self.unroutable = max(0, self.unroutable - 1)
            detail = f"Could not connect to the backend sandbox: {sandbox}"
            return web.json_response({"detail": detail}, status=502)
        return await pod.answer(request, request.rel_url.raw_path.lstrip("/"))


def _template_ref(name: str) -> dict[str, Any]:
    return {"replicas": 1, "sandboxTemplateRef": {"name": name}}


def _verb(request: web.Request, named: bool) -> str:
    if request.method == "GET" and not named:
        return "watch" if request.query.get("watch") == "true" else "list"
    return {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}[request.method]


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(new, dict) or not isinstance(old, dict):
        return new
    return {**old, **{name: _merged(old.get(name), value) for name, value in new.items()}}
