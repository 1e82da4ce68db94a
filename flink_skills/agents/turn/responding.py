"""The request to a chat model, and its response as a durable step.

A request follows from the conversation, its skill state and its journal, so it is the same when a turn restarts. It
begins with the bytes of the one before while no skill is loaded, unloaded or chosen from: the content of loaded skills
comes behind all fixed text. A request is repeated if the model fails in a transient way.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from flink_skills.agents.declare.agent import Refusal
from flink_skills.agents.declare.answers import AnswerType
from flink_skills.agents.state.codec import response_from_json, response_to_json
from flink_skills.agents.state.history import placed
from flink_skills.agents.state.journal import NOTHING_ASKED, Asked
from flink_skills.errors import LimitError, ModelError, TurnError, counted
from flink_skills.models.base import emit_response
from flink_skills.models.endings import AnswerEnd, checked, end_of
from flink_skills.models.fallback import Attempt, Candidate
from flink_skills.models.media import for_model, has_media
from flink_skills.models.messages import Message, ModelRequest, ModelResponse
from flink_skills.models.notices import Notice
from flink_skills.models.well_formed import well_formed, well_formed_response
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.telemetry import Delta, Discarded, OnDelta, ToolCallDelta, delta_listener, emit, observe
from flink_skills.tools.calling.toolset import ArgumentFeed, Speaker
from flink_skills.tools.skills.skill_prompts import skill_block, system_block

if TYPE_CHECKING:
    from flink_skills.agents.open.generation import ModelRuntime
    from flink_skills.agents.turn.agent_turn import TurnClock
    from flink_skills.agents.turn.conversation import Conversation
    from flink_skills.agents.turn.hooks import RequestHooks
    from flink_skills.tools import SkillState
    from flink_skills.tools.base import Tool, ToolContext

_log = logging.getLogger("flink_skills.model")


class Additions:
    """The additions of one chat.

    A tool is asked for its addition when it is first offered. The journal stores the addition with the response to that
    request. A request after a failover therefore has the same addition, even if the tool returns another one by now,
    such as the next month.
    """

    __slots__ = ("_said", "new")

    def __init__(self) -> None:
        self._said: dict[str, str] = {}
        #: The additions of the last request that no earlier one had. The journal stores them with its response.
        self.new: dict[str, str] = {}

    def text(self, speakers: Mapping[str, Speaker]) -> str:
        """Return the additions to a request, the same text of several tools once."""
        self.new = {}
        for name, speaker in speakers.items():
            if name not in self._said:
                self._said[name] = self.new[name] = _asked(name, speaker)
        return "\n\n".join(dict.fromkeys(text for name in speakers if (text := self._said[name])))

    def replay(self, entry: Mapping[str, Any]) -> None:
        """Use the additions that the journal has with a response."""
        self._said.update(entry.get("p", {}))


def _asked(name: str, speaker: Speaker) -> str:
    try:
        return str(speaker.prompt_addition() or "").strip()
    except Exception:  # tools are the user's
        _log.exception("tool %s: prompt_addition() failed; the system prompt has no addition of this tool", name)
        return ""


_NOWHERE_ELSE = "Loaded skill context:"


async def build_request(
    conversation: Conversation,
    messages: Sequence[Message],
    answer_type: AnswerType,
    *,
    system: str,
    additions: Additions,
) -> ModelRequest:
    """Return the next request of a conversation.

    ``system`` is the fixed part of the system text, and ``additions`` are those of the chat.
    """
    model, state = conversation.model, conversation.skill_state
    tools = await conversation.tools()
    if tools.speakers:
        system = _joined(system, additions.text(tools.speakers))
    results = conversation.skill_results(messages)
    if len(state) and conversation.has_changed_skills():
        # Files may have to be read, and other turns run on this loop. Later they are in memory.
        system, messages = await asyncio.to_thread(_materialised, model, system, state, messages, results)
    elif len(state) or results:
        system, messages = _materialised(model, system, state, messages, results)
    if has_media(messages[conversation.without_media() :]):
        messages = await conversation.agent_turn.media.loaded(messages, model.chat_model.accepts)
    affinity = conversation.agent_turn.affinity
    return model.request(well_formed(system), messages, tools.specs(), answer_type, affinity=affinity)


def _materialised(
    model: ModelRuntime, system: str, state: SkillState, messages: Sequence[Message], results: Sequence[int]
) -> tuple[str, Sequence[Message]]:
    most = model.services.config.get(SkillOptions.PROMPT_MAX_DOC_CHARS)
    changed, homes = placed(messages, results, state, model.settings.content)
    homeless = []
    for name in sorted(state) if model.settings.content != "system" else ():
        at, home = homes.get(name, (-1, None))
        if home is not None and not home.stub:
            continue  # the conversation itself has it
        block = skill_block(name, state[name], model.view, max_doc_chars=most)
        if home is None:
            homeless.append(block)
        else:
            changed[at] = replace(home, content=well_formed(block))
    if changed:
        messages = [changed.get(at, message) for at, message in enumerate(messages)]
    if model.settings.content == "system":
        return _joined(system, system_block(state, model.view, max_doc_chars=most)), messages
    return _joined(system, *([_NOWHERE_ELSE, *homeless] if homeless else [])), messages


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


_MAX_WAIT = 30.0
# Doublings of the limit of a cut answer.
_MAX_DOUBLINGS = 2
# Conditions of a request to a model without fallbacks.
_ONLY = Attempt()
_NO_SETTINGS: Mapping[str, Any] = {}
_UNSET = object()


async def respond(
    conversation: Conversation,
    step: str,
    build: Callable[[], Awaitable[ModelRequest]],
    *,
    calls: str = "",
    notices: Sequence[Notice] = (),
    additions: Additions | None = None,
    asked: Asked = NOTHING_ASKED,
    hooks: RequestHooks | None = None,
) -> ModelResponse:
    """Return the response of the chat model to a request, as the durable step ``step``.

    A repeated step reads the response from the journal and builds no request. Instructions, tools and skills can change
    between two attempts at a turn.

    Args:
        conversation: The conversation with the model.
        step: The id of the step.
        build: Returns the request.
        calls: The calls of the response are the steps ``{calls}.0``, ``{calls}.1`` and so on.
        notices: Stored in the journal with the response.
        additions: The additions to the system text, stored in the same way.
        asked: What the step requests, and its position in the agent's code.
        hooks: The hooks of the request. Their decisions are stored with the response.

    Raises:
        ModelError: The model gave no complete answer. A cut or paused answer is returned, see :func:`end_of`.
        TurnError: A hook refuses the request.
    """
    model = conversation.model
    # The last answer, with the usage of all, of each model whose answers failed or were filtered.
    unused: list[ModelResponse] = []
    requested = False

    async def ask() -> Any:
        nonlocal requested
        requested = True
        request = await build()
        by, settings = model.name, _NO_SETTINGS
        if hooks is not None:
            decided = await hooks.before_model(request)
            if not isinstance(decided, ModelRequest):
                return _with_notes(_instead(conversation, step, decided), notices, hooks, additions)
            settings = {name: of for name, of in decided.settings.items() if request.settings.get(name, _UNSET) != of}
            # The hook may have created the request.
            request = replace(decided, affinity=conversation.agent_turn.affinity)
        digests = conversation.digests
        # The skills that are loaded when the request is made: its tokens are what they cost.
        loaded = {"skills": list(digests), "digests": digests}

        async def ask_one(of: ModelRuntime | Candidate, attempt: Attempt = _ONLY) -> ModelResponse:
            sent, more = request, loaded
            if of.name != model.name:
                # Everything else is that of the model that was asked first.
                sent = replace(
                    request,
                    messages=for_model(request.messages, of.chat_model.accepts),
                    settings={**(of.setup.settings if of.setup is not None else {}), **settings},
                )
                more = {**loaded, "fallback_of": model.name}
            with observe("chat", of.name, step, request=sent, setup=of.setup, **more) as activity:
                for name, reason in attempt.passed:
                    emit("fallback", model=name, to=of.name, error=reason)
                lost: list[ModelResponse] = []
                try:
                    heard = await _heard(conversation, of, sent, calls=calls, step=step, attempt=attempt, lost=lost)
                except ModelError:
                    if lost:
                        unused.append(_with_usage_of(lost[:-1], lost[-1]))
                        activity.attributes["response"] = unused[-1]
                    raise
                response = conversation.with_ids(well_formed_response(_with_usage_of(lost, heard)), step)
                activity.attributes["response"] = response
            return response

        if model.chain is None:
            response = await ask_one(model)
        else:
            response, by = await model.chain.answer(ask_one, conversation.answered_by)
        entry = response_to_json(_with_usage_of(unused, response))
        if by != model.name:
            entry["by"] = by
        return _with_notes(entry, notices, hooks, additions)

    agent_turn = conversation.agent_turn
    try:
        entry = await agent_turn.durable(step, ask, asked)
    except ModelError as error:
        agent_turn.finish_reason = error.finish_reason
        for of in unused:
            # The error of the model says more. The next step checks the limit again.
            with suppress(LimitError):
                agent_turn.add_usage(of.usage)
        raise
    if "p" in entry and additions is not None:
        additions.replay(entry)
    if "state" in entry:
        agent_turn.change_state(entry["state"])
    if "refused" in entry:
        raise TurnError(f"before_model refused a request to chat model {model.name!r}: {entry['refused']}")
    if model.chain is not None:
        # Also of a replayed step: the next one goes to the model that answered.
        conversation.answered_by = entry.get("by", "")
    response = response_from_json(entry)
    if response.tool_calls and not requested:
        # A journal of an earlier release can have other ids.
        response = conversation.with_ids(response, step)
    conversation.call_ids.update(call.id for call in response.tool_calls)
    agent_turn.finish_reason = response.finish_reason
    agent_turn.add_usage(response.usage)
    return response


def _with_usage_of(others: Iterable[ModelResponse], response: ModelResponse) -> ModelResponse:
    """Return the response with the usage of ``others`` added, which the provider bills as well."""
    for of in others:
        response = replace(response, usage=response.usage + of.usage)
    return response


def _instead(conversation: Conversation, step: str, decided: ModelResponse | Refusal) -> dict[str, Any]:
    """Return the journal entry of a request that a hook answered or refused."""
    if isinstance(decided, Refusal):
        return {"refused": decided.reason}
    return response_to_json(conversation.with_ids(well_formed_response(decided), step))


def _with_notes(
    entry: dict[str, Any], notices: Sequence[Notice], hooks: RequestHooks | None, additions: Additions | None
) -> dict[str, Any]:
    """Add notices, decisions and additions to the journal entry of a response."""
    if notices:
        entry["n"] = [notice.to_json() for notice in notices]
    if hooks is not None:
        entry.update(hooks.decisions())
    if additions is not None and additions.new:
        entry["p"] = additions.new
    return entry


async def _heard(
    conversation: Conversation,
    of: ModelRuntime | Candidate,
    request: ModelRequest,
    *,
    calls: str,
    step: str,
    attempt: Attempt,
    lost: list[ModelResponse],
) -> ModelResponse:
    """Return the answer of ``of``, the model of the conversation or one of its fallbacks.

    Observers of the turn, and tools that are streaming, receive it while it arrives. Answers that are not used are
    added to ``lost``.
    """
    listener = delta_listener()
    on_delta = None if listener is None else partial(_tell, listener, conversation, step)
    agent_turn = conversation.agent_turn
    if on_delta is not None and (agent_turn.steps.is_repeated or attempt.passed):
        on_delta(Discarded(restarted=True))
    incomplete = conversation.model.on_incomplete
    ask = partial(
        _request_with_retries,
        agent_turn.agent.config,
        of,
        attempt=attempt,
        clock=agent_turn.clock,
        keeps_filtered=incomplete == "emit" and request.output_schema is None,
        lost=lost,
    )
    tools = await conversation.tools()
    if not (tools.is_streaming and request.tools):
        response = await ask(request, on_delta)
        if end_of(response.finish_reason) is not AnswerEnd.CUT:
            return response
        return await _whole_or_cut(ask, request, response, on_delta, name=of.name, incomplete=incomplete, lost=lost)

    async def context_of(tool: Tool, index: int) -> ToolContext:
        return await conversation.tool_context(f"{calls}.{index}", workspace=tool.uses_workspace)

    async with ArgumentFeed(tools, context_of, on_delta) as feed:
        response = await ask(request, feed)
        return await _whole_or_cut(ask, request, response, feed, name=of.name, incomplete=incomplete, lost=lost)


async def _whole_or_cut(
    ask: Callable[[ModelRequest, OnDelta | None], Awaitable[ModelResponse]],
    request: ModelRequest,
    response: ModelResponse,
    on_delta: OnDelta | None,
    *,
    name: str,
    incomplete: str,
    lost: list[ModelResponse],
) -> ModelResponse:
    """Return the answer. With ``retry``, a cut one is requested again while that can have a larger ``max_tokens``."""
    for doublings in range(1, _MAX_DOUBLINGS + 1):
        most = request.settings.get("max_tokens")
        if incomplete != "retry" or end_of(response.finish_reason) is not AnswerEnd.CUT or not isinstance(most, int):
            break
        request = replace(request, settings={**request.settings, "max_tokens": 2 * most})
        reason = f"the answer was cut at max_tokens = {most}"
        _log.info("chat model %s: %s; again with max_tokens = %d", name, reason, 2 * most)
        emit("retry", model=name, error=reason, attempt=doublings, pause=0.0)
        if on_delta is not None:
            on_delta(Discarded(restarted=True))
        lost.append(response)
        try:
            response = await ask(request, on_delta)
        except ModelError as error:
            if error.finish_reason or not error.rejects_request:
                raise
            # The model allows no larger limit.
            response = lost.pop()
            if on_delta is not None:
                emit_response(response, on_delta)
            break
    if on_delta is not None and end_of(response.finish_reason) is AnswerEnd.CUT:
        is_text = not response.tool_calls and request.output_schema is None
        if incomplete == "fail" or not is_text:
            on_delta(Discarded())
    return response


def _tell(listener: OnDelta, conversation: Conversation, step: str, delta: Delta) -> None:
    """Pass a delta on. A call has the id that it gets in the response."""
    if isinstance(delta, ToolCallDelta):
        delta = replace(delta, call_id=conversation.call_id(delta.call_id, step, delta.index))
    listener(delta)


def _request(
    model: ModelRuntime | Candidate, request: ModelRequest, on_delta: OnDelta | None
) -> Awaitable[ModelResponse]:
    return model.chat_model.request(request) if on_delta is None else model.chat_model.stream(request, on_delta)


async def _request_with_retries(
    config: SkillConfig,
    model: ModelRuntime | Candidate,
    request: ModelRequest,
    on_delta: OnDelta | None,
    *,
    attempt: Attempt,
    clock: TurnClock,
    keeps_filtered: bool,
    lost: list[ModelResponse],
) -> ModelResponse:
    retries = 0 if attempt.once else config.get(SkillOptions.MODEL_MAX_RETRIES)
    wait = config.get(SkillOptions.MODEL_RETRY_BACKOFF)
    circuit = model.circuit if isinstance(model, Candidate) else None
    earlier = ""
    for number in range(retries + 1):
        try:
            # A pause before the next attempt holds no permit, and waiting for one is not part of the request's time.
            if model.permits is None:
                response = await _request(model, request, on_delta)
            else:
                async with model.permits.one(request) as permit:
                    response = await _request(model, request, on_delta)
                    permit.used(response.usage)
            lost.append(response)
            response = checked(response, model.chat_model.name, keeps_filtered=keeps_filtered)
            lost.pop()
        except asyncio.CancelledError:
            # The turn may end while it waits because of an error that another turn received.
            if model.permits is not None and (failed := model.permits.last_error) is not None:
                clock.note_other(model.name, *failed)
            raise
        except ModelError as error:
            if error.usage is not None:
                lost.append(ModelResponse("", usage=error.usage))
            clock.note(model.name, str(error))
            if model.permits is not None:
                model.permits.failed(error)
            if circuit is not None:
                circuit.failed(error)
            if not error.retryable:
                raise
            before = f"; the attempt before: {earlier}" if earlier not in ("", str(error)) else ""
            earlier = str(error)
            given_up = ModelError(
                f"{error} (given up after {counted(number + 1, 'attempt')}{before})", finish_reason=error.finish_reason
            )
            # A fallback answers sooner than a model that is known to fail, or that wants a long pause.
            has_open_circuit = circuit is not None and attempt.more and circuit.is_open
            wants_long_pause = attempt.more and (error.retry_after or 0.0) > _MAX_WAIT
            if number == retries or has_open_circuit or wants_long_pause:
                raise given_up from error
            # Jitter, so that a thousand turns that failed together do not return together.
            pause = min(wait * 2**number, _MAX_WAIT) * random.uniform(0.5, 1.0)
            pause = error.retry_after if error.retry_after is not None else pause
            if pause >= (rest := clock.rest):
                raise ModelError(
                    f"{error} (given up after {counted(number + 1, 'attempt')}, because the pause of {pause:.0f} s "
                    f"before the next one is longer than the rest of the turn, {rest:.0f} s{before}). Raise "
                    "skills.turn.timeout, or declare a fallback.",
                    finish_reason=error.finish_reason,
                ) from error
            _log.info("chat model %s: %s; again in %.1f s", model.name, error, pause)
            emit("retry", model=model.name, error=str(error), attempt=number + 1, pause=pause)
            if on_delta is not None:
                on_delta(Discarded(restarted=True))
            await asyncio.sleep(pause)
            request = replace(request, attempt=number + 1)
            if circuit is not None and attempt.more and circuit.is_open:
                raise given_up from error
        else:
            if circuit is not None:
                circuit.succeeded()
            return response
    raise AssertionError("unreachable")
