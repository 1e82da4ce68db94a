"""Limits of requests to a chat model, at once and in a minute, which all workers of a TaskManager keep together.

Workers are processes, so they share a folder. Each place is a byte of a file, which the kernel locks for the process
that holds it. Another file has the time at which the next request may begin. A worker that is killed returns its
places.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import random
import struct
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from flink_skills.agents.models.places import Places
from flink_skills.agents.models.setup import ModelSetup
from flink_skills.errors import ModelError
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.sources.mends import machine_mend

__all__ = ["Permits"]

_log = logging.getLogger("flink_skills.model")
_POLL = 0.03
_SAY_AFTER = 10.0
_SAY_AGAIN = 60.0
_TIME = struct.Struct("=d")


class Permits:
    """Permits for requests to one model. ``folder`` is the same for all processes that share the limits.

    ``concurrent`` is the maximum of requests at once, ``per_minute`` of requests that begin in a minute; 0 is no limit.
    Requests of one process are served in the order in which they ask.
    """

    def __init__(self, name: str, folder: Path, *, concurrent: int = 0, per_minute: int = 0) -> None:
        self._name = name
        self._folder = folder
        self._concurrent = concurrent
        self._interval = 60.0 / per_minute if per_minute else 0.0
        self._places = Places(folder / "places", concurrent)
        # Only the first one in the queue of this process looks for a place, or takes a time.
        self._first = asyncio.Lock()
        self._freed = asyncio.Event()
        self._said = -_SAY_AGAIN
        folder.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        """Return all places and close the files."""
        self._places.close()

    @classmethod
    def by_name(cls, setups: Mapping[str, ModelSetup], config: SkillConfig, scratch_dir: str) -> dict[str, Permits]:
        """Return the permits of each chat model that the options limit.

        Agents share the permits of one model at one address.
        """
        concurrent = config.get(SkillOptions.MODEL_MAX_CONCURRENT)
        per_minute = config.get(SkillOptions.MODEL_MAX_PER_MINUTE)
        found = {}
        for name, setup in setups.items() if concurrent or per_minute else ():
            place = f"{setup.label}\0{setup.base_url or ''}"
            folder = Path(scratch_dir) / "permits" / hashlib.sha256(place.encode()).hexdigest()[:16]
            found[name] = cls(setup.label, folder, concurrent=concurrent, per_minute=per_minute)
        return found

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Wait for a permit and hold it. Raises :class:`ModelError` where the files cannot be used."""
        place: int | None = None
        try:
            async with self._first:
                try:
                    if self._concurrent:
                        place = await self._place()
                    if self._interval:
                        await self._wait(self._take_time(), "skills.model.max-requests-per-minute")
                except OSError as error:
                    mend = machine_mend(error) or "let the worker write there"
                    raise ModelError(
                        f"model {self._name}: its limits cannot be kept, {self._folder}: {error.strerror or error}: "
                        f"{mend}",
                        retryable=True,
                    ) from error
            yield
        finally:
            if place is not None:
                self._places.free(place)
                self._freed.set()

    async def _place(self) -> int:
        """Wait for a place and return its number."""
        began = time.monotonic()
        while True:
            self._freed.clear()
            found = self._places.take()
            if found is not None:
                return found
            self._say(time.monotonic() - began, f"skills.model.max-concurrent = {self._concurrent}")
            # A place of this process wakes us; for one of another process we look again.
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._freed.wait(), _POLL * random.uniform(0.7, 1.3))

    def _take_time(self) -> float:
        """How many seconds from now the next request may begin; that time is then taken."""
        descriptor = os.open(self._folder / "next", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Held for two system calls, so waiting for it does not hold up the loop.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # The same clock in all processes of a machine, and one that nobody sets.
            now = time.monotonic()
            kept = os.pread(descriptor, _TIME.size, 0)
            at = max(_TIME.unpack(kept)[0], now) if len(kept) == _TIME.size else now
            os.pwrite(descriptor, _TIME.pack(at + self._interval), 0)
            return float(at - now)
        finally:
            os.close(descriptor)

    async def _wait(self, seconds: float, why: str) -> None:
        if seconds > 0:
            self._say(seconds, why)
            await asyncio.sleep(seconds)

    def _say(self, waited: float, why: str) -> None:
        """Once in a while: who looks at slow turns wants to know that it is this limit."""
        now = time.monotonic()
        if waited >= _SAY_AFTER and now - self._said >= _SAY_AGAIN:
            self._said = now
            _log.warning("model %s: requests wait for %s; raise it if the provider allows more", self._name, why)
