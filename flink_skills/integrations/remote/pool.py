"""The sandboxes of a worker: one for each workspace, made when it is first needed, given back when it is idle."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from flink_skills.errors import ExecutionError
from flink_skills.integrations.remote.claims import Claims
from flink_skills.integrations.remote.sandbox import Sandbox

__all__ = ["SandboxPool"]

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
        """The sandbox of a workspace, which is not given back meanwhile. Raises :class:`ExecutionError`."""
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
        """Give a sandbox back that is of no use any more; the next command of the workspace gets a new one."""
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
