"""The programs of a worker that run tools of skills: kept warm for a while, a few at a time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from flink_skills.errors import ExecutionError
from flink_skills.tools.dynamic.runner_process import Reply, RunnerProcess
from flink_skills.tools.dynamic.slots import Slots

__all__ = ["RunnerKey", "Runners"]

# Of one key, which may have tools of several skills called at once: one that hangs must not stop the others.
_MAX_PER_KEY = 2
# Loading a skill waits for a tool of no other key, and a skill that hangs as it is loaded stops no tool.
_DESCRIBING_SHARE = 2


@dataclass(frozen=True)
class RunnerKey:
    """Whose program it is. Keys of a stream have workspaces of their own, so no program is for two of them."""

    workspace: str
    skill: str
    digest: str


@dataclass
class _Place:
    """Where the program of a key is while there is one, or somebody waits for one."""

    turn: Slots = field(default_factory=lambda: Slots(1))
    runner: RunnerProcess | None = None
    users: int = 0
    busy: bool = False
    born: float = 0.0
    timer: asyncio.TimerHandle | None = None


@dataclass
class _Share:
    """What one key may use at once."""

    calls: Slots
    descriptions: Slots
    users: int = 0


class Runners:
    """Starts programs when they are asked, and ends those that nobody asks. Belongs to one event loop.

    Half as many again may run while they describe their tools; a key has at most two that are asked to call one.

    Args:
        most: Most programs at once that are asked to call tools, or kept; the one used longest ago makes place.
        idle: Seconds without a request after which a program is ended.
        life: Seconds that a program lives at most.
        wait: Most seconds that a request waits for those of other keys.
    """

    def __init__(self, *, most: int, idle: float, life: float, wait: float) -> None:
        self._most = most
        self._idle = idle
        self._life = life
        self._wait = wait
        self._places: OrderedDict[RunnerKey, _Place] = OrderedDict()
        self._shares: dict[str, _Share] = {}
        self._calls = Slots(most)
        self._descriptions = Slots(max(1, most // _DESCRIBING_SHARE))
        self._starting = 0
        self._closed = False

    async def ask(
        self,
        key: RunnerKey,
        start: Callable[[], Awaitable[RunnerProcess]],
        request: Mapping[str, Any],
        *,
        room: int,
        timeout: float,
        describes: bool = False,
    ) -> Reply:
        """Ask the program of ``key``, started by ``start`` if there is none; waits while others ask it.

        ``timeout`` (seconds) counts from when it is asked; as long it waits at most for other requests of the key.
        ``describes`` says that no tool is called. Raises what ``start`` raises, and
        :class:`~flink_skills.errors.ExecutionError` where too much is asked at once, and once this is closed.
        """
        place = self._places.setdefault(key, _Place())
        place.users += 1
        try:
            async with self._turn(key, place, timeout, describes):
                place.busy = True
                try:
                    self._places.move_to_end(key)
                    runner = await self._warm(key, place, start, timeout)
                    return await runner.ask(request, room=room, timeout=timeout)
                finally:
                    place.busy = False
                    if place.runner is not None and not place.runner.usable:
                        place.runner = None
        finally:
            place.users -= 1
            self._rest(key, place)

    @asynccontextmanager
    async def _turn(self, key: RunnerKey, place: _Place, timeout: float, describes: bool) -> AsyncIterator[None]:
        """Wait for the turn of a request: first among those of its own key, which take no place of others meanwhile."""
        most = min(_MAX_PER_KEY, self._most)
        share = self._shares.setdefault(key.workspace, _Share(Slots(most), Slots(1)))
        share.users += 1
        own = "busy with earlier calls of tools that skills bring: wait for their results, then try again"
        others = "busy: too many tools that skills bring run in this worker: try again later"
        until = asyncio.get_running_loop().time() + timeout
        try:
            async with AsyncExitStack() as taken:
                await self._take(place.turn, until, own, taken)
                await self._take(share.descriptions if describes else share.calls, until, own, taken)
                until = asyncio.get_running_loop().time() + self._wait
                await self._take(self._descriptions if describes else self._calls, until, others, taken)
                yield
        finally:
            share.users -= 1
            if not share.users:
                self._shares.pop(key.workspace, None)

    async def _take(self, slots: Slots, until: float, busy: str, taken: AsyncExitStack) -> None:
        if not await slots.take(max(0.0, until - asyncio.get_running_loop().time())):
            raise ExecutionError(busy)
        taken.callback(slots.give)

    async def close(self) -> None:
        """End all programs, also those that are being asked. Calling it again does nothing."""
        self._closed = True
        runners = [place.runner for place in self._places.values() if place.runner is not None]
        for place in self._places.values():
            if place.timer is not None:
                place.timer.cancel()
            place.runner = None
        await asyncio.gather(*(runner.end() for runner in runners))

    @property
    def alive(self) -> int:
        """How many programs run."""
        return sum(place.runner is not None and place.runner.usable for place in self._places.values())

    async def _warm(
        self, key: RunnerKey, place: _Place, start: Callable[[], Awaitable[RunnerProcess]], timeout: float
    ) -> RunnerProcess:
        if place.timer is not None:
            place.timer.cancel()
            place.timer = None
        now = asyncio.get_running_loop().time()
        if place.runner is not None and (not place.runner.usable or now - place.born + timeout > self._life):
            await _end(place)
        if self._closed:
            raise ExecutionError("the tools of skills are closed: their worker ends")
        if place.runner is None:
            self._starting += 1
            try:
                await self._make_room(key)
                runner = await start()
            finally:
                self._starting -= 1
            place.runner, place.born = runner, now
            if self._closed:  # meanwhile
                await _end(place)
                raise ExecutionError("the tools of skills are closed: their worker ends")
        return place.runner

    async def _make_room(self, key: RunnerKey) -> None:
        """End what is in the way. Where too many run, some are idle: no more are asked, or started, than may run."""
        idle = [(other, place) for other, place in self._places.items() if place.runner and not place.busy]
        stale = [(o, p) for o, p in idle if (o.workspace, o.skill) == (key.workspace, key.skill)]
        running = sum(place.runner is not None for place in self._places.values())
        over = max(0, running + self._starting - self._most - len(stale))
        chosen = stale + [entry for entry in idle if entry not in stale][:over]
        # None of them may be asked while it ends.
        runners = [place.runner for _, place in chosen]
        for _, place in chosen:
            place.runner = None
        for other, place in chosen:
            self._rest(other, place)
        await asyncio.gather(*(runner.end() for runner in runners if runner is not None))

    def _rest(self, key: RunnerKey, place: _Place) -> None:
        """Nobody asks any more: forget the place, or end its program after a while."""
        if place.users:
            return
        if place.runner is None:
            if place.timer is not None:
                place.timer.cancel()
            self._places.pop(key, None)
        elif not self._closed:
            place.timer = asyncio.get_running_loop().call_later(self._idle, self._end_idle, key, place)

    def _end_idle(self, key: RunnerKey, place: _Place) -> None:
        if place.users or self._places.get(key) is not place:
            return
        if place.runner is not None:
            place.runner.close()
            place.runner = None
        self._places.pop(key, None)


async def _end(place: _Place) -> None:
    runner, place.runner = place.runner, None
    if runner is not None:
        await runner.end()
