"""How much a chat model is asked at once and in a minute, together by all workers of a TaskManager.

Workers are processes, so what they share is a folder: locks of the kernel on its files are the places, and a file says
when the next request may begin. A worker that dies gives its places back, whatever killed it.
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
from collections.abc import AsyncIterator
from pathlib import Path

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

    ``concurrent`` is how many requests may be under way, ``per_minute`` how many may begin in a minute; 0: any number.
    Requests of one process are served in the order in which they ask.
    """

    def __init__(self, name: str, folder: Path, *, concurrent: int = 0, per_minute: int = 0) -> None:
        self._name = name
        self._folder = folder
        self._concurrent = concurrent
        self._interval = 60.0 / per_minute if per_minute else 0.0
        # Only the first one in the queue of this process looks for a place, or takes a time.
        self._first = asyncio.Lock()
        self._freed = asyncio.Event()
        self._said = -_SAY_AGAIN
        folder.mkdir(parents=True, exist_ok=True)

    @classmethod
    def of(cls, setup: ModelSetup, config: SkillConfig, scratch_dir: str) -> Permits | None:
        """Those of the options, for one model at one place: agents that use the same one share them. None where
        nothing is limited."""
        concurrent = config.get(SkillOptions.MODEL_MAX_CONCURRENT)
        per_minute = config.get(SkillOptions.MODEL_MAX_PER_MINUTE)
        if not concurrent and not per_minute:
            return None
        place = f"{setup.label}\0{setup.base_url or ''}"
        folder = Path(scratch_dir) / "permits" / hashlib.sha256(place.encode()).hexdigest()[:16]
        return cls(setup.label, folder, concurrent=concurrent, per_minute=per_minute)

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
                # Closing alone would leave the lock to a copy of the descriptor in a forked process.
                with contextlib.suppress(OSError):
                    fcntl.flock(place, fcntl.LOCK_UN)
                os.close(place)
                self._freed.set()

    async def _place(self) -> int:
        """The descriptor of a locked file: one of as many as requests may be under way."""
        began = time.monotonic()
        while True:
            self._freed.clear()
            found = self._free_place()
            if found is not None:
                return found
            self._say(time.monotonic() - began, f"skills.model.max-concurrent = {self._concurrent}")
            # A place of this process wakes us; for one of another process we look again.
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._freed.wait(), _POLL * random.uniform(0.7, 1.3))

    def _free_place(self) -> int | None:
        start = random.randrange(self._concurrent)
        for offset in range(self._concurrent):
            number = (start + offset) % self._concurrent
            descriptor = self._open(f"place-{number}")
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            except BaseException:
                os.close(descriptor)
                raise
            return descriptor
        return None

    def _take_time(self) -> float:
        """How many seconds from now the next request may begin; that time is then taken."""
        descriptor = self._open("next")
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

    def _open(self, name: str) -> int:
        return os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

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
