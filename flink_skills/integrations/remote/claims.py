"""Claims: how a sandbox is asked for, waited for, kept and given back."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from flink_skills.errors import ExecutionError
from flink_skills.integrations.remote.kubernetes import EXTENSIONS, SANDBOXES, ApiError, KubernetesApi
from flink_skills.integrations.remote.settings import RemoteSettings
from flink_skills.integrations.remote.template import Template

_RESOURCE = "sandboxclaims"
_OWNER = "flink-skills.worker"
_ATTEMPTS = 3
# Failures that the controller does not recover from, with the fix.
_FINAL = {
    "TemplateNotFound": "create the SandboxTemplate, or correct skills.shell.remote.template",
    "WarmPoolNotFound": "create the SandboxWarmPool, or correct skills.shell.remote.warm-pool",
    "InvalidMetadata": "check the admission rules of the cluster",
    "InvalidConfiguration": "correct the SandboxTemplate",
    "EnvVarsInjectionRejected": "correct the SandboxTemplate",
    "VolumeClaimTemplatesError": "correct the volumes of the SandboxTemplate",
    "PodFailed": "read the reason with 'kubectl describe pod'; the image must run the sandbox runtime",
    "PodSucceeded": "use an image that runs the sandbox runtime until it is stopped",
    "ClaimExpired": "check the clocks of the worker's and the controller's hosts",
    "SandboxExpired": "check the clocks of the worker's and the controller's hosts",
}


class ClaimLostError(ExecutionError):
    """Somebody else ended a sandbox that is in use."""


@dataclass
class Claim:
    """A claim that has a sandbox. ``address`` is the pod's, empty where the API does not say it."""

    name: str
    uid: str
    sandbox: str
    address: str
    expires: float


class Claims:
    """Makes claims for one worker. ``lease`` is for how many seconds at a time a sandbox is asked for.

    A worker that dies cannot give sandboxes back: the controller deletes them at the end of their lease.
    """

    def __init__(self, api: KubernetesApi, settings: RemoteSettings, template: Template, lease: float) -> None:
        self._api = api
        self._settings = settings
        self._template = template
        self._lease = lease
        self._worker = secrets.token_hex(8)

    async def make(self) -> Claim:
        """Claim a sandbox and wait until it is ready. Raises :class:`ExecutionError`; nothing is left behind then."""
        deadline = time.monotonic() + self._settings.start_timeout
        claim = await self._create()
        try:
            await self._ready(claim, deadline)
        except BaseException:
            await self.release(claim)
            raise
        return claim

    async def _create(self) -> Claim:
        for _ in range(_ATTEMPTS):
            name = f"flink-skills-{secrets.token_hex(8)}"
            try:
                made = await self._api.create(_RESOURCE, self._body(name))
            except ApiError as error:
                if error.status != 409:
                    raise
                # Ours if the answer to an earlier attempt was lost.
                made = await self._api.get(_RESOURCE, name)
                if (made.get("metadata", {}).get("labels") or {}).get(_OWNER) != self._worker:
                    continue
            return Claim(name, str(made.get("metadata", {}).get("uid", "")), "", "", time.monotonic() + self._lease)
        raise ExecutionError(
            f"{_ATTEMPTS} random names for a SandboxClaim were taken in namespace {self._settings.namespace!r}: set "
            "skills.shell.remote.namespace to a separate namespace for this job"
        )

    def _body(self, name: str) -> dict[str, Any]:
        labels = {
            "app.kubernetes.io/managed-by": "flink-skills",
            "agents.x-k8s.io/created-by": "flink-skills",
            _OWNER: self._worker,
        }
        spec: dict[str, Any] = {"lifecycle": self._lifecycle()}
        if self._api.version == "v1alpha1":
            spec["sandboxTemplateRef"] = {"name": self._template.name}
            spec["warmpool"] = self._template.warm_pool or "default"
        else:
            spec["warmPoolRef"] = {"name": self._template.warm_pool}
        return {
            "apiVersion": f"{EXTENSIONS}/{self._api.version}",
            "kind": "SandboxClaim",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
        }

    def _lifecycle(self) -> dict[str, str]:
        ends = self._api.now() + timedelta(seconds=self._lease)
        return {"shutdownTime": ends.strftime("%Y-%m-%dT%H:%M:%SZ"), "shutdownPolicy": "Delete"}

    async def _ready(self, claim: Claim, deadline: float) -> None:
        status = "the controller has not set its status yet"
        while True:
            found = await self._found(claim)
            status = self._look(claim, found) or status
            since = str(found.get("metadata", {}).get("resourceVersion", "0"))
            while not claim.sandbox:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ExecutionError(await self._too_late(claim, status))
                try:
                    async for event in self._api.watch(_RESOURCE, claim.name, since, left):
                        since, news = self._on_event(claim, event, since)
                        status = news or status
                        if claim.sandbox:
                            return
                except ApiError as error:
                    if error.status != 410 and not error.retryable:
                        raise
                break  # the watch has ended: look again
            else:
                return

    async def _found(self, claim: Claim) -> dict[str, Any]:
        try:
            return await self._api.get(_RESOURCE, claim.name)
        except ApiError as error:
            if error.status == 404:
                raise _deleted(claim) from error
            raise

    def _on_event(self, claim: Claim, event: Mapping[str, Any], since: str) -> tuple[str, str]:
        found = event.get("object") or {}
        if event.get("type") == "DELETED":
            raise _deleted(claim)
        version = str(found.get("metadata", {}).get("resourceVersion") or since)
        return version, self._look(claim, found) if event.get("type") in {"ADDED", "MODIFIED"} else ""

    def _look(self, claim: Claim, found: Mapping[str, Any]) -> str:
        """Take over what the claim's status says; returns why it is not ready yet. Raises when it never will be."""
        status = found.get("status") or {}
        sandbox = status.get("sandbox") or {}
        ready: Mapping[str, Any] = next(
            (item for item in status.get("conditions") or [] if item.get("type") == "Ready"), {}
        )
        reason, message = str(ready.get("reason", "")), str(ready.get("message", ""))[:500]
        if ready.get("status") == "True" and sandbox.get("name"):
            claim.sandbox = str(sandbox["name"])
            claim.address = str(next(iter(sandbox.get("podIPs") or []), ""))
        elif ready.get("status") == "False" and reason in _FINAL:
            raise ExecutionError(
                f"the template {self._template.name!r} provides no sandbox ({reason}: {message}): {_FINAL[reason]}"
            )
        return f"{reason}: {message}" if reason else ""

    async def _too_late(self, claim: Claim, status: str) -> str:
        detail = status
        try:
            conditions = (await self._api.get("sandboxes", claim.name, SANDBOXES)).get("status", {}).get("conditions")
            for item in conditions or []:
                if item.get("type") == "PodScheduled" and item.get("status") == "False":
                    detail = f"{status}; its pod is not scheduled ({item.get('reason')}: {item.get('message')})"
        except ApiError:
            detail = status  # warm sandboxes have other names, and reading them is a right that is not needed otherwise
        return (
            f"the sandbox of claim {claim.name!r} was not ready within {self._settings.start_timeout:g} s ({detail}): "
            "add capacity for its pod to the cluster, keep sandboxes warm with spec.replicas of the SandboxWarmPool, "
            "or raise skills.shell.remote.start-timeout"
        )

    async def refresh(self, claim: Claim) -> None:
        """Ask again where the sandbox is. Raises :class:`ClaimLostError` when it is not there any more."""
        try:
            found = await self._api.get(_RESOURCE, claim.name)
        except ApiError as error:
            if error.status == 404:
                raise ClaimLostError(_lost(claim, "the claim was deleted")) from error
            raise
        if found.get("metadata", {}).get("uid") != claim.uid or found.get("metadata", {}).get("deletionTimestamp"):
            raise ClaimLostError(_lost(claim, "the claim was replaced or is being deleted"))
        try:
            self._look(claim, found)
        except ExecutionError as error:
            raise ClaimLostError(_lost(claim, str(error))) from error

    async def renew(self, claim: Claim) -> None:
        """Ask for the sandbox for another lease."""
        await self._api.patch(_RESOURCE, claim.name, {"spec": {"lifecycle": self._lifecycle()}})
        claim.expires = time.monotonic() + self._lease

    async def release(self, claim: Claim) -> None:
        """Give the sandbox back. Raises :class:`ApiError` when that could not be said; the lease ends it then."""
        await self._api.delete(_RESOURCE, claim.name, claim.uid)


def _deleted(claim: Claim) -> ExecutionError:
    return ExecutionError(
        f"SandboxClaim {claim.name!r} was deleted before its sandbox was ready: do not delete claims with the label "
        "app.kubernetes.io/managed-by=flink-skills"
    )


def _lost(claim: Claim, reason: str) -> str:
    return (
        f"the sandbox of claim {claim.name!r} was lost while it was in use ({reason}): do not delete claims with the "
        "label app.kubernetes.io/managed-by=flink-skills, and check the events of the pod for an eviction"
    )
