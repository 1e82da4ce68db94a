"""One response of a chat model, as a durable step: asked for again while the model fails in a transient way."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flink_skills.agents.codec import response_from_json, response_to_json
from flink_skills.agents.journal import NOTHING_ASKED, Asked
from flink_skills.agents.messages import ModelRequest, ModelResponse
from flink_skills.agents.notices import Notice
from flink_skills.agents.well_formed import well_formed_response
from flink_skills.errors import ModelError
from flink_skills.options import SkillOptions
from flink_skills.telemetry import OnDelta, Withdrawn, delta_listener, note, observe
from flink_skills.tools.streaming import ArgumentFeed

if TYPE_CHECKING:
    from flink_skills.agents.agent_run import AgentRun
    from flink_skills.agents.generation import ModelRuntime
    from flink_skills.tools.base import Tool, ToolContext

__all__ = ["respond"]

_log = logging.getLogger("flink_skills.model")
_LONGEST_WAIT = 30.0


async def respond(
    run: AgentRun,
    model: ModelRuntime,
    step: str,
    request: ModelRequest,
    *,
    calls: str = "",
    notices: Sequence[Notice] = (),
    additions: Mapping[str, str] | None = None,
    asked: Asked = NOTHING_ASKED,
) -> ModelResponse:
    """What ``model`` answers to ``request`` in ``step``; ``notices`` and ``additions`` to the system text are
    journalled with it, and calls that it asks for will be the steps ``calls`` with ``.0``, ``.1`` and so on.

    The request is not compared with that of the journal: instructions, tools and skills may change while a turn is
    under way.
    """

    async def ask() -> Any:
        digests = run.digests_of(model)
        # The skills that are loaded when the request is made: its tokens are what they cost.
        loaded = {"skills": list(digests), "digests": digests}
        with observe("chat", model.name, step, request=request, setup=model.setup, **loaded) as activity:
            response = well_formed_response(await _heard(run, model, request, calls))
            activity.attributes["response"] = response
        entry = response_to_json(response)
        if notices:
            entry["n"] = [notice.to_json() for notice in notices]
        return {**entry, "p": dict(additions)} if additions else entry

    response = response_from_json(await run.durable(step, ask, asked))
    run.add_usage(response.usage)
    return response


async def _heard(run: AgentRun, model: ModelRuntime, request: ModelRequest, calls: str) -> ModelResponse:
    """The answer, which those who listen get while it arrives: observers of the turn, and tools that are streaming."""
    on_delta = delta_listener()
    scope = run.turn.scope
    if on_delta is not None and (scope.attempt > 1 or scope.resumed or scope.restarts):
        on_delta(Withdrawn(restarted=True))
    tools = await run.tools_of(model)
    if not (tools.is_streaming and request.tools):
        return await _request_with_retries(run, model, request, on_delta)

    async def context_of(tool: Tool, index: int) -> ToolContext:
        return await run.turn.tool_context(run, model, f"{calls}.{index}", workspace=tool.uses_workspace)

    async with ArgumentFeed(tools, context_of, on_delta) as feed:
        return await _request_with_retries(run, model, request, feed)


async def _request(model: ModelRuntime, request: ModelRequest, on_delta: OnDelta | None) -> ModelResponse:
    if on_delta is None:
        return await model.chat_model.request(request)
    return await model.chat_model.stream(request, on_delta)


async def _request_with_retries(
    run: AgentRun, model: ModelRuntime, request: ModelRequest, on_delta: OnDelta | None
) -> ModelResponse:
    config = run.runtime.config
    retries = config.get(SkillOptions.MODEL_MAX_RETRIES)
    wait = config.get(SkillOptions.MODEL_RETRY_BACKOFF)
    for attempt in range(retries + 1):
        try:
            # A pause before the next attempt holds no permit, and waiting for one is not part of the request's time.
            if model.permits is None:
                return await _request(model, request, on_delta)
            async with model.permits.one(request) as permit:
                response = await _request(model, request, on_delta)
                permit.used(response.usage)
                return response
        except ModelError as error:
            if not error.retryable:
                raise
            if attempt == retries:
                raise ModelError(f"{error} (given up after {attempt + 1} attempts)") from error
            # Jitter, so that a thousand turns that failed together do not return together.
            pause = min(wait * 2**attempt, _LONGEST_WAIT) * random.uniform(0.5, 1.0)
            pause = error.retry_after if error.retry_after is not None else pause
            _log.info("chat model %s: %s; again in %.1f s", model.name, error, pause)
            note("retry", model=model.name, error=str(error), attempt=attempt + 1, pause=pause)
            if on_delta is not None:
                on_delta(Withdrawn(restarted=True))
            await asyncio.sleep(pause)
    raise AssertionError("unreachable")
