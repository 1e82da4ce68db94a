"""The backend itself: from options to sandboxes, and from requests to results."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from flink_skills.errors import ConfigError, ExecutionError
from flink_skills.execution.execution_backend import BackendSettings, ExecutionBackend
from flink_skills.execution.isolation_report import IsolationLevel
from flink_skills.execution.request import CommandRequest, CommandResult
from flink_skills.integrations.remote.claims import ClaimLostError, Claims
from flink_skills.integrations.remote.kubernetes import KubernetesApi
from flink_skills.integrations.remote.runtime import RouterError, SandboxRuntime
from flink_skills.integrations.remote.sandbox import NotStartedError, Sandbox, SandboxGoneError
from flink_skills.integrations.remote.settings import SERVICE_ACCOUNT, RemoteSettings
from flink_skills.integrations.remote.template import Template, read_template

if TYPE_CHECKING:
    import aiohttp

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 15.0
_RELEASES_AT_ONCE = 16


class SandboxPool:
    """Hands out sandboxes by workspace. ``make`` makes one that is ready to run commands.

    ``idle`` is after how many seconds without a command one is given back, ``lease`` for how long one is claimed.
    """

    def __init__(self, claims: Claims, make: Callable[[], Awaitable[Sandbox]], idle: float, lease: float) -> None:
        self._claims = claims
        self._make = make
        self._idle = idle
        self._lease = lease
        self._making: dict[str, asyncio.Task[Sandbox]] = {}
        self._spare: list[Sandbox] = []
        self._upkeep: asyncio.Task[None] | None = None

    def start(self, spare: Sandbox) -> None:
        """Begin, with a sandbox that nothing has run in yet, for the first workspace that needs one."""
        self._spare.append(spare)
        self._upkeep = asyncio.create_task(self._keep_up(), name="flink-skills remote sandboxes")

    @contextlib.asynccontextmanager
    async def use(self, root: str) -> AsyncIterator[Sandbox]:
        """Provide the sandbox of a workspace, and keep it in use. Raises :class:`ExecutionError`."""
        sandbox = await self._sandbox(root)
        sandbox.running += 1
        try:
            yield sandbox
        finally:
            sandbox.running -= 1
            if not sandbox.doubtful:
                sandbox.last_used = time.monotonic()

    async def _sandbox(self, root: str) -> Sandbox:
        making = self._making.get(root)
        if making is None:
            making = self._making[root] = asyncio.create_task(self._next())
        try:
            # Others may wait for the same one: who stops waiting does not stop the making.
            sandbox = await asyncio.shield(making)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._forget(root, making)
            raise
        if sandbox.doubtful:
            await self.discard(root, sandbox)
            return await self._sandbox(root)
        return sandbox

    async def _next(self) -> Sandbox:
        if not self._spare:
            return await self._make()
        sandbox = self._spare.pop()
        sandbox.last_used = time.monotonic()
        return sandbox

    def _forget(self, root: str, making: asyncio.Task[Sandbox]) -> None:
        if self._making.get(root) is making:
            del self._making[root]

    async def discard(self, root: str, sandbox: Sandbox) -> None:
        """Release a sandbox that is unusable. The next command of the workspace gets a new one."""
        making = self._making.get(root)
        if making is not None and making.done() and not making.cancelled() and making.exception() is None:
            if making.result() is not sandbox:
                return  # somebody else was quicker
            del self._making[root]
        await self._release(sandbox)

    async def _release(self, sandbox: Sandbox) -> None:
        try:
            await self._claims.release(sandbox.claim)
        except ExecutionError as error:
            _log.warning(
                "sandbox claim %s could not be given back and ends by itself within %d s: %s",
                sandbox.claim.name,
                max(0, round(sandbox.claim.expires - time.monotonic())),
                error,
            )

    def _ready(self) -> dict[str, Sandbox]:
        return {
            root: making.result()
            for root, making in self._making.items()
            if making.done() and not making.cancelled() and making.exception() is None
        }

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(min(_LOOK_SECONDS, self._idle / 4))
            await self._look(time.monotonic())

    async def _look(self, now: float) -> None:
        for root, sandbox in self._ready().items():
            if not sandbox.running and now - sandbox.last_used >= self._idle:
                await self.discard(root, sandbox)
        for sandbox in [spare for spare in self._spare if now - spare.last_used >= self._idle]:
            self._spare.remove(sandbox)
            await self._release(sandbox)
        for sandbox in [*self._ready().values(), *self._spare]:
            if sandbox.claim.expires - now < self._lease / 2:
                try:
                    await self._claims.renew(sandbox.claim)
                except ExecutionError as error:
                    _log.warning("sandbox claim %s could not be renewed: %s", sandbox.claim.name, error)

    async def close(self) -> None:
        """Give all sandboxes back."""
        if self._upkeep is not None:
            self._upkeep.cancel()
            await asyncio.gather(self._upkeep, return_exceptions=True)
            self._upkeep = None
        for making in self._making.values():
            if not making.done():
                making.cancel()
        await asyncio.gather(*self._making.values(), return_exceptions=True)
        sandboxes = [*self._ready().values(), *self._spare]
        self._making.clear()
        self._spare.clear()
        limit = asyncio.Semaphore(_RELEASES_AT_ONCE)

        async def release(sandbox: Sandbox) -> None:
            async with limit:
                await self._release(sandbox)

        await asyncio.gather(*map(release, sandboxes))


# A worker that dies leaves its sandboxes for this much longer than an idle one would stay, at the most.
_LEASES_PER_IDLE_TIME = 2
_SHORTEST_LEASE = 600.0


class RemoteBackend(ExecutionBackend):
    """Runs commands in sandboxes of the Kubernetes agent-sandbox API, one for each workspace.

    The options are those of ``skills.shell.remote.*``. :meth:`start` has a sandbox made, runs a command in it and
    has it try to reach the network: level ``REMOTE`` is what that showed, :attr:`proved` and :attr:`not_enforced` say
    more. The folders of a command are sent there before it and what it changed comes back after it. Isolation is
    that of the RuntimeClass and the network policy of the SandboxTemplate: nothing here adds to it.

    >>> backend = RemoteBackend(BackendSettings(options={"url": "http://router.svc:8080", "template": "python"}))
    >>> await backend.start()
    >>> (await backend.run(CommandRequest(("uname", "-n"), cwd="/tmp"))).stdout
    b'flink-skills-3f0c2b\\n'
    """

    name = "remote"
    level = IsolationLevel.REMOTE
    proves_itself = True

    def __init__(
        self,
        settings: BackendSettings,
        *,
        environ: Mapping[str, str] | None = None,
        account: Path = SERVICE_ACCOUNT,
    ) -> None:
        if settings.network and settings.hosts:
            raise ConfigError(
                "the remote backend cannot enforce option skills.shell.network-hosts: leave it empty, and list the "
                "hosts in spec.networkPolicy.egress of the SandboxTemplate"
            )
        self._settings = settings
        self._remote = RemoteSettings.read(settings.options, os.environ if environ is None else environ, account)
        self._lease = max(_SHORTEST_LEASE, _LEASES_PER_IDLE_TIME * self._remote.idle_timeout)
        self._starting = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None
        self._claims: Claims | None = None
        self._pool: SandboxPool | None = None
        self._commands: set[asyncio.Task[CommandResult]] = set()
        self._version = ""
        self.proved: tuple[str, ...] = ()
        self.not_enforced = ()

    @property
    def version(self) -> str:
        return self._version

    async def start(self) -> None:
        async with self._starting:
            if self._pool is not None:
                return
            try:
                await self._start()
            except BaseException:
                await self._close_session()
                raise

    async def _start(self) -> None:
        self._session = _new_session(self._remote)
        api = KubernetesApi(self._remote, self._session)
        await api.find_version()
        template = await read_template(api, self._remote)
        template.check_network(allowed=self._settings.network)
        self._claims = Claims(api, self._remote, template, self._lease)
        sandbox = await self._make()
        try:
            await self._prove(sandbox, template, api.version)
        except BaseException:
            with contextlib.suppress(ExecutionError):  # the error that is being raised says more
                await self._claims.release(sandbox.claim)
            raise
        self._pool = SandboxPool(self._claims, self._make, self._remote.idle_timeout, self._lease)
        self._pool.start(sandbox)

    async def _make(self) -> Sandbox:
        """A sandbox that has the program. Raises :class:`ExecutionError`."""
        claims, session = self._claims, self._session
        if claims is None or session is None:
            raise ExecutionError("the remote backend is closed")
        began = time.monotonic()
        claim = await claims.make()
        runtime = SandboxRuntime(self._remote, session, claim, claims.refresh)
        sandbox = Sandbox(claim, runtime, self._settings.user)
        try:
            # A pod that is ready may not be known to the router yet.
            patience = max(5.0, self._remote.start_timeout - (time.monotonic() - began))
            await sandbox.prepare(patience)
        except BaseException:
            with contextlib.suppress(ExecutionError):  # the error that is being raised says more
                await claims.release(claim)
            raise
        return sandbox

    async def _prove(self, sandbox: Sandbox, template: Template, version: str) -> None:
        denied = not self._settings.network
        about = await sandbox.about(_addresses(self._remote) if denied else ())
        reachable = [str(address) for address in about.get("reachable") or []]
        if reachable:
            raise ExecutionError(
                f"a sandbox of template {template.name!r} can connect to {', '.join(reachable)}, and "
                "skills.shell.network is 'deny': use a network plugin that enforces NetworkPolicy and give the "
                "template a spec.networkPolicy with 'egress: []', or set skills.shell.network to 'allow'"
            )
        with tempfile.TemporaryDirectory() as folder:
            token = secrets.token_hex(16)
            (Path(folder) / "in").write_text(token)
            result = await sandbox.run(
                # No workspace: the first one to get this sandbox finds nothing in its place.
                CommandRequest(("sh", "-c", "cat in && mv in out"), cwd=folder, writable=(folder,))
            )
            back = Path(folder) / "out"
            if result.stdout.decode("utf-8", "replace") != token or not back.is_file() or back.read_text() != token:
                raise ExecutionError(
                    f"a command in a sandbox of template {template.name!r} did not return the file that it received "
                    f"({result.error or result.stderr[:200]!r}): check the image of the template"
                )
        self.proved = ("another_pod", "round_trip", *(("network_denied",) if denied else ()))
        self.not_enforced = tuple(sorted(template.gaps(network=self._settings.network)))
        kernel = str(about.get("kernel", ""))[:80]
        self._version = f"agent-sandbox {version}, template {template.name}, kernel {kernel}"

    async def run(self, request: CommandRequest) -> CommandResult:
        pool = self._pool
        if pool is None:
            return CommandResult(error="the remote backend is not started or already closed")
        if not Path(request.cwd).is_dir():  # noqa: ASYNC240 - one look at a local folder
            return CommandResult(
                error=f"the command cannot start: the working directory {request.cwd!r} does not exist"
            )
        task = asyncio.ensure_future(self._run(pool, request))
        self._commands.add(task)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        finally:
            self._commands.discard(task)
        if task.cancelled():
            return CommandResult(error="the remote backend was closed while the command ran")
        return task.result()

    async def _run(self, pool: SandboxPool, request: CommandRequest) -> CommandResult:
        try:
            try:
                return await self._run_once(pool, request)
            except NotStartedError:
                return await self._run_once(pool, request)
        except ExecutionError as error:
            return CommandResult(error=str(error))

    async def _run_once(self, pool: SandboxPool, request: CommandRequest) -> CommandResult:
        root = request.root or request.cwd
        async with pool.use(root) as sandbox:
            try:
                return await sandbox.run(request)
            except (SandboxGoneError, ClaimLostError, RouterError):
                await pool.discard(root, sandbox)
                raise

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        for task in self._commands:
            task.cancel()
        await asyncio.gather(*self._commands, return_exceptions=True)
        if pool is not None:
            await pool.close()
        await self._close_session()

    async def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _new_session(settings: RemoteSettings) -> aiohttp.ClientSession:
    try:
        import aiohttp
    except ImportError as error:
        raise ConfigError("the remote backend requires aiohttp: install flink-skills[remote]") from error
    connector = aiohttp.TCPConnector(ssl=settings.tls(), limit=0)
    # No proxy of the environment and no cookies: these are addresses of the cluster, and sandboxes are not trusted.
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())


def _addresses(settings: RemoteSettings) -> tuple[str, ...]:
    """What a command without the network must not reach, and what is there for certain: the API and the router."""
    found: dict[str, None] = {}
    for url in (settings.api, settings.url):
        parts = urlsplit(url)
        host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
        found[f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"] = None
    return tuple(found)
