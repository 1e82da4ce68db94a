"""The runtime of a sandbox, as the sandbox router passes it on: run a command, send a file, fetch a file."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote

from flink_skills.errors import ExecutionError
from flink_skills.integrations.remote.claims import Claim
from flink_skills.integrations.remote.settings import RemoteSettings

if TYPE_CHECKING:
    import aiohttp

_T = TypeVar("_T")
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.0)
_TRANSFER_SECONDS = 60.0
# For the way there and back of a command that takes as long as it was allowed to.
_SPARE_SECONDS = 20.0
_SHORT = 65_536
_CHUNK = 1 << 20


class RouterError(ExecutionError):
    """The router or the runtime behind it did not do what was asked. ``status`` is 0 when no answer came."""

    def __init__(self, message: str, status: int = 0, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable


class Executed(NamedTuple):
    """Output and exit code of a command in the runtime.

    ``repeated`` is True if an earlier request for the same command failed. That request may have run the command.
    """

    stdout: str
    stderr: str
    exit_code: int
    repeated: bool = False


class SandboxRuntime:
    """Talks to one sandbox. What fails in passing is tried again for ``patience`` seconds: all of it may be repeated.

    ``find`` brings the claim up to date, for a sandbox that has moved; it raises when there is none any more.
    """

    def __init__(
        self,
        settings: RemoteSettings,
        session: aiohttp.ClientSession,
        claim: Claim,
        find: Callable[[Claim], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._session = session
        self._claim = claim
        self._find = find

    async def execute(self, command: str, *, seconds: float, most: int, patience: float) -> Executed:
        """Run plain words in the runtime's folder, for up to ``seconds``; the answer is read up to ``most`` bytes."""

        requests = 0

        async def once() -> Executed:
            nonlocal requests
            requests += 1
            body = json.dumps({"command": command}).encode()
            headers = {"Content-Type": "application/json"}
            data = await self._exchange("POST", "execute", seconds, most, data=body, headers=headers)
            try:
                found = json.loads(data)
                return Executed(str(found["stdout"]), str(found["stderr"]), int(found["exit_code"]), requests > 1)
            except (ValueError, KeyError, TypeError) as error:
                raise RouterError(
                    f"{self._who()} returned an invalid response to 'execute' ({data[:120]!r}): the image of the "
                    "SandboxTemplate must serve the agent-sandbox runtime API on the port skills.shell.remote.port"
                ) from error

        return await self._patiently(once, patience)

    async def upload(self, path: str, data: bytes, *, patience: float) -> None:
        """Write a file in the runtime's folder."""
        import aiohttp

        async def once() -> None:
            form = aiohttp.FormData(quote_fields=False)  # the runtime takes the name as it comes
            form.add_field("file", data, filename=path, content_type="application/octet-stream")
            await self._exchange("POST", "upload", _TRANSFER_SECONDS, _SHORT, data=form)

        await self._patiently(once, patience)

    async def download(self, path: str, into: IO[bytes], most: int, *, patience: float) -> None:
        """Read a file of up to ``most`` bytes of the runtime's folder."""

        async def once() -> None:
            into.seek(0)
            into.truncate()
            await self._exchange("GET", f"download/{quote(path, safe='')}", _TRANSFER_SECONDS, most, into=into)

        await self._patiently(once, patience)

    async def check(self) -> None:
        """Raise the error of ``find`` when there is no sandbox any more."""
        await self._find(self._claim)

    async def _patiently(self, once: Callable[[], Awaitable[_T]], patience: float) -> _T:
        ends_at = time.monotonic() + patience
        pauses = iter(_PAUSES)
        while True:
            try:
                return await once()
            except RouterError as error:
                pause = next(pauses, _PAUSES[-1])
                if not error.retryable or time.monotonic() + pause > ends_at:
                    raise
            await asyncio.sleep(pause)
            await self._find(self._claim)

    async def _exchange(
        self,
        method: str,
        path: str,
        seconds: float,
        most: int,
        *,
        data: Any = None,
        headers: dict[str, str] | None = None,
        into: IO[bytes] | None = None,
    ) -> bytes:
        """The body of the answer, or what of it went to ``into`` instead."""
        import aiohttp

        try:
            async with self._session.request(
                method,
                f"{self._settings.url}/{path}",
                data=data,
                headers={**self._routing(seconds), **(headers or {})},
                timeout=aiohttp.ClientTimeout(total=seconds + _SPARE_SECONDS, sock_connect=_SPARE_SECONDS),
                allow_redirects=False,
            ) as answer:
                if answer.status != 200:
                    raise self._refused(answer.status, await answer.content.read(1024), path)
                body = bytearray()
                size = 0
                async for chunk in answer.content.iter_chunked(_CHUNK):
                    size += len(chunk)
                    if size > most:
                        raise RouterError(f"{self._who()} sent more than the allowed {most} bytes")
                    if into is None:
                        body += chunk
                    else:
                        await asyncio.to_thread(into.write, chunk)
                return bytes(body)
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:
            raise RouterError(
                f"the sandbox router at {self._settings.url} does not answer ({str(error) or type(error).__name__}): "
                "check skills.shell.remote.url, and allow the worker's pod to connect to it in the network policies",
                retryable=not isinstance(error, aiohttp.ClientSSLError),
            ) from error

    def _routing(self, seconds: float) -> dict[str, str]:
        headers = {
            "X-Sandbox-ID": self._claim.sandbox,
            "X-Sandbox-Namespace": self._settings.namespace,
            "X-Sandbox-Port": str(self._settings.port),
            "X-Sandbox-Timeout": f"{seconds + _SPARE_SECONDS:.0f}",
        }
        if self._claim.address:
            # Sandboxes from a pool have no name in DNS.
            headers["X-Sandbox-Pod-IP"] = self._claim.address
        if self._settings.router_token:
            headers["Authorization"] = f"Bearer {self._settings.router_token}"
        return headers

    def _refused(self, status: int, body: bytes, path: str) -> RouterError:
        detail = body.decode("utf-8", "replace")[:300]
        if status in {401, 403} and not path.startswith("download"):
            return RouterError(
                f"the sandbox router at {self._settings.url} denied this worker access ({status}: {detail}): set "
                "skills.shell.remote.router-token to a token that it accepts",
                status,
            )
        what = path.partition("/")[0]
        return RouterError(
            f"{self._who()} returned status {status} for {what!r}: {detail}", status, retryable=status in _PASSING
        )

    def _who(self) -> str:
        return f"sandbox {self._claim.sandbox!r}"
