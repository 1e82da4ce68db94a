"""Permits for requests to a chat model, within limits that all workers of a TaskManager keep together.

The limits are options of the job, and what the provider announces in its responses. Workers are processes, so they
share a file, see :mod:`flink_skills.models.shared_limits`. Requests of one worker are admitted in their order.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import logging
import random
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from flink_skills.errors import ModelError
from flink_skills.models.base import ChatModel
from flink_skills.models.messages import ModelRequest, Usage
from flink_skills.models.quota import Quota
from flink_skills.models.setup import ModelSetup
from flink_skills.models.shared_limits import POLL, SharedLimits, TokenCost
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.skill.skill_inspection import about_tokens
from flink_skills.sources.locking import os_error_hint
from flink_skills.telemetry.activity import current_activity

__all__ = ["Permit", "Permits"]

_log = logging.getLogger("flink_skills.model")
_SAY_AFTER = 10.0
_SAY_AGAIN = 60.0


class Permits:
    """Permits for requests to one model. ``folder`` is the same for all processes that share the limits.

    Args:
        name: What logs and errors call the model.
        folder: Folder of the shared file. It is created.
        concurrent: Maximum number of requests at the same time; 0: no limit.
        per_minute: Maximum number of requests that begin in a minute, evenly spread; 0: no limit.
        tokens_per_minute: Maximum number of tokens in a minute, evenly spread; 0: no limit.

    A request waits in ``async with``, and holds its permit until the block ends::

        async with permits.one(request) as permit:
            response = await model.request(request)
            permit.used(response.usage)
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        concurrent: int = 0,
        per_minute: int = 0,
        tokens_per_minute: int = 0,
    ) -> None:
        self._name = name
        self._folder = folder
        self._limits = SharedLimits(
            folder / "limits", concurrent=concurrent, per_minute=per_minute, tokens=tokens_per_minute
        )
        self._queue: deque[Permit] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._logged = -_SAY_AGAIN
        #: The last error after which all requests pause, and when the event loop received it.
        self.last_error: tuple[str, float] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @classmethod
    def by_name(
        cls,
        models: Mapping[str, ChatModel],
        setups: Mapping[str, ModelSetup],
        config: SkillConfig,
        scratch_dir: str,
    ) -> dict[str, Permits]:
        """Return the permits of each chat model that the options or its provider may limit.

        Agents share the permits of one model at one address with one key. The permits follow what the models announce.
        """
        limits = {
            "concurrent": config.get(SkillOptions.MODEL_MAX_CONCURRENT),
            "per_minute": config.get(SkillOptions.MODEL_MAX_PER_MINUTE),
            "tokens_per_minute": config.get(SkillOptions.MODEL_MAX_TOKENS_PER_MINUTE),
        }
        found = {}
        for name, setup in setups.items():
            if any(limits.values()) or setup.provider != "offline":
                place = "\0".join((setup.label, setup.base_url or "", setup.api_key_env or ""))
                folder = Path(scratch_dir) / "permits" / hashlib.sha256(place.encode()).hexdigest()[:16]
                found[name] = cls(setup.label, folder, **limits)
                models[name].on_quota = found[name].on_quota
        return found

    def one(self, request: ModelRequest | None = None) -> Permit:
        """Return the permit of a request. Entering it waits. Enter it once."""
        return Permit(self, request)

    def on_quota(self, headers: Mapping[str, str], status: int) -> None:
        """Follow the quota that a response announces, see :attr:`ChatModel.on_quota`.

        Raises:
            OSError: The shared file cannot be used.
        """
        if quota := Quota.read(headers):
            permit = _current.get()
            cost = permit.cost if permit is not None and permit.permits is self else None
            self._limits.hear(time.monotonic(), quota, status, cost)

    def close(self) -> None:
        """Return all permits and close the file."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._limits.close()

    async def take(self, permit: Permit) -> None:
        """Wait until ``permit`` is admitted. Called by the permit."""
        limits = self._limits
        try:
            if not limits.apply:
                return
            permit.asked = time.monotonic()
            permit.estimate(limits)
            if not self._queue and limits.admit(permit.asked, permit.asked, permit.cost) == 0:
                permit.admitted = True
                return
        except OSError as error:
            raise self._failure(error) from error
        permit.future = asyncio.get_running_loop().create_future()
        self._queue.append(permit)
        if len(self._queue) == 1:
            self._serve()
        try:
            await permit.future
        except OSError as error:
            raise self._failure(error) from error
        except asyncio.CancelledError:
            if permit.admitted:
                self.free(permit)
            elif self._queue and self._queue[0] is permit:
                self._serve()
            raise
        finally:
            permit.waited = time.monotonic() - permit.asked

    def free(self, permit: Permit) -> None:
        """Return a permit, and admit the requests that waited for it. Called by the permit."""
        if permit.admitted:
            permit.admitted = False
            self._limits.release()
            if self._queue:
                # One place is free. More are not looked for, because each look takes the lock.
                self._serve(1)

    def settle(self, permit: Permit, usage: Usage) -> None:
        """Correct the estimate of a permit. Called by the permit."""
        if permit.cost.inputs and usage.input_tokens:
            self._limits.settle(permit.cost, usage.input_tokens, usage.output_tokens, permit.about)

    def _serve(self, most: int | None = None) -> None:
        """Admit up to ``most`` requests from the head of the queue. If requests remain, a timer tries again."""
        queue, limits, wait = self._queue, self._limits, POLL
        while queue:
            permit = queue[0]
            if permit.future is None or permit.future.done():
                queue.popleft()
                continue
            if most == 0:
                break
            now = time.monotonic()
            try:
                wait = limits.admit(now, permit.asked, permit.cost)
            except OSError as error:
                queue.popleft()
                permit.future.set_exception(error)
                continue
            if wait > 0:
                self._log_wait(now, now - permit.asked)
                break
            queue.popleft()
            permit.admitted = True
            permit.future.set_result(None)
            wait, most = POLL, None if most is None else most - 1
        if not queue:
            limits.forget()
        elif self._timer is None:
            # Spread, so that processes do not meet at the lock again and again.
            self._timer = asyncio.get_running_loop().call_later(wait * random.uniform(1.0, 1.1), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._serve()

    def _failure(self, error: OSError) -> ModelError:
        fix = os_error_hint(error) or "let the worker write there"
        return ModelError(
            f"model {self._name}: its limits cannot be kept, {self._folder}: {error.strerror or error}: {fix}",
            retryable=True,
        )

    def _log_wait(self, now: float, waited: float) -> None:
        if waited >= _SAY_AFTER and now - self._logged >= _SAY_AGAIN:
            self._logged = now
            _log.warning(
                "model %s: %d requests wait for %s, the first one for %.0f s; raise the limit if the provider allows "
                "more",
                self._name,
                len(self._queue),
                self._limits.reason,
                waited,
            )


class Permit:
    """The permit of one request; see :class:`Permits`."""

    __slots__ = ("_request", "about", "admitted", "asked", "cost", "future", "permits", "waited")

    def __init__(self, permits: Permits, request: ModelRequest | None) -> None:
        self._request = request
        self.permits = permits
        self.cost = TokenCost()
        self.about = 0
        self.asked = 0.0
        self.admitted = False
        self.future: asyncio.Future[None] | None = None
        #: Seconds for which the request waited.
        self.waited = 0.0

    async def __aenter__(self) -> Permit:
        """Wait for the permit. Raises :class:`ModelError` if the limits cannot be kept."""
        try:
            await self.permits.take(self)
        finally:
            if self.waited and (activity := current_activity()) is not None:
                attributes = activity.attributes
                attributes["limit_wait"] = attributes.get("limit_wait", 0.0) + self.waited
        _current.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _current.set(None)
        self.permits.free(self)

    def used(self, usage: Usage) -> None:
        """Note the tokens that the response states: they replace the estimate."""
        self.permits.settle(self, usage)

    def estimate(self, limits: SharedLimits) -> None:
        """Estimate the tokens of the request if a limit counts them."""
        request = self._request
        if request is None or not limits.count_tokens:
            return
        texts = [message.content for message in request.messages]
        self.about = about_tokens("".join((request.system, *texts)))
        most = request.settings.get("max_tokens")
        self.cost.inputs = limits.input_estimate(self.about)
        self.cost.outputs = limits.output_estimate(float(most) if isinstance(most, (int, float)) else None)


_current: contextvars.ContextVar[Permit | None] = contextvars.ContextVar("flink_skills_permit", default=None)
