"""Permits for requests to a chat model, within this worker's share of the limits of a job.

The limits apply to the workers of a job on a TaskManager. Workers are processes, and each of them has an equal share.
"""

from __future__ import annotations

import asyncio
import logging
import time
from types import TracebackType

from flink_skills.errors import ModelError
from flink_skills.models.circuit import Circuits
from flink_skills.models.messages import ModelRequest, Usage
from flink_skills.models.setup import ModelSetup
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.skill.skill_inspection import about_tokens
from flink_skills.telemetry.activity import current_activity

_log = logging.getLogger("flink_skills.model")
_MINUTE = 60.0
# A request can start late by this many seconds, and the next ones make up for it.
_MAX_LATENESS = 0.05
# Maximum seconds for which a Retry-After applies to other requests, and between two looks at the time of a start.
_MAX_PAUSE = 60.0
_MAX_SLEEP = 0.25
_OUTPUT_ESTIMATE = 256
_MIN_LOGGED_WAIT = 10.0
_LOG_INTERVAL = 60.0


class WorkerLimits:
    """Permits and circuits of the models that the agents of a worker request.

    Args:
        workers: Number of workers of the job on the TaskManager.
        index: Index of this worker among them, from 0.

    >>> limits = WorkerLimits(workers=4, index=3)
    """

    def __init__(self, workers: int = 1, index: int = 0) -> None:
        self._workers = workers
        self._index = index
        self._permits: dict[tuple[object, ...], Permits] = {}
        self.circuits = Circuits()

    def permits(self, setup: ModelSetup, config: SkillConfig) -> Permits | None:
        """Return the permits of a model. Agents share those of one model at one address with one key.

        Return None for the offline model without limits.
        """
        concurrent = config.get(SkillOptions.MODEL_MAX_CONCURRENT)
        rates = (config.get(SkillOptions.MODEL_MAX_PER_MINUTE), config.get(SkillOptions.MODEL_MAX_TOKENS_PER_MINUTE))
        if setup.provider == "offline" and not (concurrent or any(rates)):
            return None
        key = (setup.label, setup.base_url or "", setup.key_place, concurrent, *rates)
        if key not in self._permits:
            share = concurrent // self._workers + (self._index < concurrent % self._workers)
            if 0 < concurrent < self._workers:
                _log.warning(
                    "model %s: %s = %d is less than the %d workers of this TaskManager, and each has at least one "
                    "request, so there can be %d at the same time. Use fewer workers (skills.worker.processes).",
                    setup.label,
                    SkillOptions.MODEL_MAX_CONCURRENT.key,
                    concurrent,
                    self._workers,
                    self._workers,
                )
            per_minute, tokens = (rate / self._workers for rate in rates)
            self._permits[key] = Permits(
                setup.label,
                concurrent=max(share, 1) if concurrent else 0,
                per_minute=per_minute,
                tokens_per_minute=tokens,
            )
        return self._permits[key]


class Permits:
    """Permits for requests to one model. Requests are admitted in their order.

    A request waits in ``async with``, and has its permit until the block ends::

        async with permits.one(request) as permit:
            response = await model.request(request)
            permit.used(response.usage)

    Args:
        name: Name of the model in log lines.
        concurrent: Maximum number of requests at the same time. 0 means no limit.
        per_minute: Maximum number of requests that start in a minute, evenly spread. 0 means no limit.
        tokens_per_minute: Maximum number of tokens in a minute, evenly spread. 0 means no limit.
    """

    def __init__(
        self, name: str, *, concurrent: int = 0, per_minute: float = 0.0, tokens_per_minute: float = 0.0
    ) -> None:
        self._name = name
        self._slots = asyncio.Semaphore(concurrent) if concurrent else None
        # The request that starts next has the lock while it waits for its time.
        self._next = asyncio.Lock()
        # With the lateness, no minute has more starts than the limit.
        self._interval = (_MINUTE + _MAX_LATENESS) / per_minute if per_minute else 0.0
        self._token_interval = (_MINUTE + _MAX_LATENESS) / tokens_per_minute if tokens_per_minute else 0.0
        # Earliest times of the next start, in seconds of the monotonic clock.
        self._request_due = self._tokens_due = self._paused_until = 0.0
        self._is_limited = bool(concurrent or per_minute or tokens_per_minute)
        self._logged = -_LOG_INTERVAL
        #: The last error after which all requests pause, and when the event loop received it.
        self.last_error: tuple[str, float] | None = None

    def one(self, request: ModelRequest | None = None) -> Permit:
        """Return the permit of a request. Entering it waits. Enter it only one time."""
        return Permit(self, request)

    def failed(self, error: ModelError) -> None:
        """Pause all requests if the provider asks for a pause, at most for a minute."""
        if error.retry_after is not None:
            self.last_error = str(error), asyncio.get_running_loop().time()
            self._paused_until = max(self._paused_until, time.monotonic() + min(error.retry_after, _MAX_PAUSE))
            self._is_limited = True

    async def acquire(self, permit: Permit) -> None:
        """Wait for a slot, and then for the time of the start. Called by the permit."""
        if not self._is_limited:
            return
        started = time.monotonic()
        has_slot = False
        reason = SkillOptions.MODEL_MAX_CONCURRENT.key
        try:
            if self._slots is not None:
                await self._slots.acquire()
                has_slot = True
            if self._interval or self._token_interval or self._paused_until > started:
                reason = self._reason()
                await self._wait_for_start(permit)
        except BaseException:
            if has_slot:
                self.release()
            raise
        finally:
            now = time.monotonic()
            permit.waited = now - started
            if permit.waited >= _MIN_LOGGED_WAIT and now - self._logged >= _LOG_INTERVAL:
                self._logged = now
                _log.warning(
                    "model %s: a request waited %.0f s for %s. Raise the limit if the provider allows more.",
                    self._name,
                    permit.waited,
                    reason,
                )

    def release(self) -> None:
        """Return a slot. Called by the permit."""
        if self._slots is not None:
            self._slots.release()

    def correct(self, estimate: float, tokens: int) -> None:
        """Replace the estimated tokens of a request. The next request starts at most a minute later."""
        if self._token_interval:
            # A server can report any number.
            self._tokens_due += min((tokens - estimate) * self._token_interval, _MINUTE)

    def _reason(self) -> str:
        if self._paused_until >= max(self._request_due, self._tokens_due):
            return "Retry-After of the provider"
        if self._request_due >= self._tokens_due:
            return SkillOptions.MODEL_MAX_PER_MINUTE.key
        return SkillOptions.MODEL_MAX_TOKENS_PER_MINUTE.key

    async def _wait_for_start(self, permit: Permit) -> None:
        async with self._next:
            while True:
                now = time.monotonic()
                wait = max(self._request_due, self._tokens_due, self._paused_until) - now
                if wait <= 0:
                    break
                # A response can change the time.
                await asyncio.sleep(min(wait, _MAX_SLEEP))
            earliest = now - _MAX_LATENESS
            self._request_due = max(self._request_due, earliest) + self._interval
            if self._token_interval:
                tokens = permit.estimate_tokens()
                self._tokens_due = max(self._tokens_due, earliest) + tokens * self._token_interval


class Permit:
    """Permit of one request; see :class:`Permits`."""

    __slots__ = ("_estimate", "_permits", "_request", "waited")

    def __init__(self, permits: Permits, request: ModelRequest | None) -> None:
        self._permits = permits
        self._request = request
        self._estimate = 0.0
        #: Seconds for which the request waited.
        self.waited = 0.0

    async def __aenter__(self) -> Permit:
        try:
            await self._permits.acquire(self)
        finally:
            if self.waited and (activity := current_activity()) is not None:
                attributes = activity.attributes
                attributes["limit_wait"] = attributes.get("limit_wait", 0.0) + self.waited
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._permits.release()

    def used(self, usage: Usage) -> None:
        """Replace the estimated tokens by those of the response."""
        if self._estimate and usage.input_tokens:
            self._permits.correct(self._estimate, usage.input_tokens + usage.output_tokens)

    def estimate_tokens(self) -> float:
        """Return the estimated input and output tokens of the request. Called by the permits."""
        if self._request is not None:
            texts = [message.content for message in self._request.messages]
            max_tokens = self._request.settings.get("max_tokens")
            outputs = min(max_tokens, _OUTPUT_ESTIMATE) if isinstance(max_tokens, (int, float)) else _OUTPUT_ESTIMATE
            self._estimate = about_tokens("".join((self._request.system, *texts))) + outputs
        return self._estimate
