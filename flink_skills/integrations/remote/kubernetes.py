"""The few calls of the Kubernetes API that sandboxes need, with errors that name the fix."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from flink_skills.errors import ExecutionError
from flink_skills.integrations.remote.settings import RemoteSettings

if TYPE_CHECKING:
    import aiohttp

EXTENSIONS = "extensions.agents.x-k8s.io"
SANDBOXES = "agents.x-k8s.io"
_PASSING = frozenset({429, 500, 502, 503, 504})
_PAUSES = (0.2, 0.5, 1.0, 2.0)
_MAX_PAUSE = 5.0
_REQUEST_SECONDS = 15.0
_ANSWER_LIMIT = 8 << 20


class ApiError(ExecutionError):
    """The Kubernetes API refused a request or could not be reached. ``status`` is 0 for the latter.

    ``retry_after`` is the wait in seconds that the server asked for, 0 for none.
    """

    def __init__(self, message: str, status: int = 0, *, retryable: bool = False, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable
        self.retry_after = retry_after


class KubernetesApi:
    """Custom resources of one namespace.

    ``resource`` is a plural such as ``sandboxclaims``; ``group`` is :data:`EXTENSIONS` for all but ``sandboxes``.
    """

    def __init__(self, settings: RemoteSettings, session: aiohttp.ClientSession) -> None:
        self._settings = settings
        self._session = session
        self.version = "v1beta1"
        # What the API server's clock said, and when that was by ours that nobody sets.
        self._said: tuple[datetime, float] | None = None

    def now(self) -> datetime:
        """The time by the clock of the API server, which is that of the controller; ours until it has answered.

        The clock of this machine may be an hour behind: a lease that it is asked for would be over at once.
        """
        if self._said is None:
            return datetime.now(timezone.utc)
        then, at = self._said
        return then + timedelta(seconds=time.monotonic() - at)

    def _note_time(self, date: str | None) -> None:
        try:
            self._said = parsedate_to_datetime(date or "").astimezone(timezone.utc), time.monotonic()
        except (TypeError, ValueError):
            return  # a proxy may leave it out: what an earlier answer said still holds

    async def find_version(self) -> None:
        """Learn which version of agent-sandbox the cluster has. Raises :class:`ApiError` where it has none we know."""
        try:
            found = await self._request("GET", f"/apis/{EXTENSIONS}", "get", "")
        except ApiError as error:
            if error.status == 404:
                raise self._no_group() from error
            raise
        served = [version.get("version") for version in found.get("versions", [])]
        for known in ("v1beta1", "v1alpha1"):
            if known in served:
                self.version = known
                return
        raise self._no_group(f"only {', '.join(map(str, served))}")

    async def get(self, resource: str, name: str, group: str = EXTENSIONS) -> dict[str, Any]:
        return await self._request("GET", self._path(group, resource, name), "get", resource)

    async def list(self, resource: str) -> list[dict[str, Any]]:
        found = await self._request("GET", self._path(EXTENSIONS, resource), "list", resource)
        return [item for item in found.get("items", []) if isinstance(item, dict)]

    async def create(self, resource: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object under its name; repeated after a lost answer, so 409 may be about our own."""
        return await self._request("POST", self._path(EXTENSIONS, resource), "create", resource, body)

    async def patch(self, resource: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._request("PATCH", self._path(EXTENSIONS, resource, name), "patch", resource, body)

    async def delete(self, resource: str, name: str, uid: str) -> None:
        """Delete the object ``uid``; one that is gone, or another of the same name, is none of our business."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}}
        try:
            await self._request("DELETE", self._path(EXTENSIONS, resource, name), "delete", resource, body)
        except ApiError as error:
            if error.status not in {404, 409}:
                raise

    async def watch(self, resource: str, name: str, since: str, seconds: float) -> AsyncIterator[dict[str, Any]]:
        """Changes of one object after version ``since``, for ``seconds`` or until the server ends it.

        Raises :class:`ApiError`, with status 410 when ``since`` is too long ago.
        """
        import aiohttp

        query = {
            "watch": "true",
            "fieldSelector": f"metadata.name={name}",
            "resourceVersion": since,
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        timeout = aiohttp.ClientTimeout(total=seconds + 1, sock_connect=_REQUEST_SECONDS)
        try:
            async with self._session.get(
                self._settings.api + self._path(EXTENSIONS, resource),
                params=query,
                headers=self._headers(),
                timeout=timeout,
                allow_redirects=False,
            ) as answer:
                if answer.status != 200:
                    raise self._refused(answer.status, await _json(answer), "watch", resource)
                pending = bytearray()
                async for chunk in answer.content.iter_any():
                    pending += chunk
                    if len(pending) > _ANSWER_LIMIT:
                        raise ApiError(f"the Kubernetes API at {self._settings.api} sent an event over 8 MiB", 502)
                    *lines, rest = pending.split(b"\n")
                    pending = bytearray(rest)
                    for line in filter(None, lines):
                        event = json.loads(line)
                        if event.get("type") == "ERROR":
                            status = event.get("object") or {}
                            raise self._refused(int(status.get("code") or 500), status, "watch", resource)
                        yield event
        except (aiohttp.ClientError, asyncio.TimeoutError, ValueError):
            return  # the caller looks at the object itself and watches on

    def _path(self, group: str, resource: str, name: str = "") -> str:
        path = f"/apis/{group}/{self.version}/namespaces/{self._settings.namespace}/{resource}"
        return f"{path}/{name}" if name else path

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._settings.bearer()}", "Accept": "application/json"}

    async def _request(
        self, method: str, path: str, verb: str, resource: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        for pause in _PAUSES:
            try:
                return await self._once(method, path, verb, resource, body)
            except ApiError as error:
                if not error.retryable:
                    raise
                await asyncio.sleep(min(error.retry_after or pause, _MAX_PAUSE))
        return await self._once(method, path, verb, resource, body)

    async def _once(
        self, method: str, path: str, verb: str, resource: str, body: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        import aiohttp

        headers = self._headers()
        data = None
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
            data = json.dumps(body).encode()
        try:
            async with self._session.request(
                method,
                self._settings.api + path,
                data=data,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=_REQUEST_SECONDS),
                allow_redirects=False,
            ) as answer:
                self._note_time(answer.headers.get("Date"))
                found = await _json(answer)
                if answer.status in {200, 201, 202}:
                    return found
                refused = self._refused(answer.status, found, verb, resource)
                refused.retry_after = _seconds(answer.headers.get("Retry-After"))
                raise refused
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:
            raise ApiError(
                f"the Kubernetes API at {self._settings.api} cannot be reached ({_reason(error)}): check "
                "skills.shell.remote.api, skills.shell.remote.ca-file and the network policies of the worker's pod",
                retryable=not isinstance(error, aiohttp.ClientSSLError),
            ) from error

    def _refused(self, status: int, found: Mapping[str, Any], verb: str, resource: str) -> ApiError:
        settings = self._settings
        reason = str(found.get("message") or found.get("reason") or "no reason")[:500]
        where = f"{resource} in namespace {settings.namespace!r}" if resource else f"the API group {EXTENSIONS}"
        if status == 401:
            fix = "check skills.shell.remote.token, or that the service account's token has not expired"
            return ApiError(f"the Kubernetes API at {settings.api} does not accept the token: {fix}", status)
        if status == 403:
            group = SANDBOXES if resource == "sandboxes" else EXTENSIONS
            fix = (
                f"allow the worker's service account the verb {verb!r} on {resource}.{group} with a Role and a "
                f"RoleBinding in that namespace"
            )
            return ApiError(f"the Kubernetes API denied {verb} {where} ({reason}): {fix}", status)
        message = f"the Kubernetes API at {settings.api} returned status {status} for {verb} {where}: {reason}"
        return ApiError(message, status, retryable=status in _PASSING)

    def _no_group(self, found: str = "") -> ApiError:
        versions = found or "no versions"
        return ApiError(
            f"the cluster at {self._settings.api} serves {versions} of {EXTENSIONS}: install agent-sandbox with its "
            "extensions in this cluster, in a release that has v1beta1",
            404,
        )


async def _json(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    data = await answer.content.read(_ANSWER_LIMIT)
    while len(data) < _ANSWER_LIMIT and (more := await answer.content.read(_ANSWER_LIMIT - len(data))):
        data += more
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"message": data[:200].decode("utf-8", "replace")}


def _seconds(text: str | None) -> float:
    return float(text) if text and text.isdecimal() else 0.0


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
