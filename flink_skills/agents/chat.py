"""The loop of model and tools: ask the model, run what it calls, until it answers."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flink_skills.agents.additions import Additions
from flink_skills.agents.answers import AnswerType
from flink_skills.agents.apart import Apart
from flink_skills.agents.code_rounds import CodeRounds
from flink_skills.agents.event import event_text
from flink_skills.agents.journal import Asked, fingerprint
from flink_skills.agents.materialise import build_request
from flink_skills.agents.messages import (
    AssistantMessage,
    Media,
    Message,
    ModelResponse,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from flink_skills.agents.notices import Notice, forget, journalled, notice_message, outdated
from flink_skills.agents.responding import respond
from flink_skills.agents.shortening import history_of
from flink_skills.agents.well_formed import well_formed_message
from flink_skills.errors import TurnError
from flink_skills.tools.base import ToolResult

if TYPE_CHECKING:
    from flink_skills.agents.agent_run import AgentRun
    from flink_skills.agents.generation import ModelRuntime
    from flink_skills.tools import ToolSet

__all__ = ["chat"]


async def chat(
    run: AgentRun, name: str | None, message: Any, output_type: Any, content: Sequence[Media] | None = None
) -> Any:
    """Answer ``message``, or the event if it is None, with the model ``name``. See ``AgentContext.chat``."""
    model = run.generation.model(name)
    is_event = message is None or message is run.event
    media = run.content if content is None and is_event else tuple(content or ())
    with run.call("chat") as (chat_id, place):
        # Also the model: what one said belongs into no conversation of another one.
        if is_event and content is None:
            what = _about_event(model.name)
        else:
            said = None if is_event else message
            if content is not None:
                said = [said, [[of.name, of.media_type, of.size] for of in content]]
            what = fingerprint(model.name, said) or fingerprint(model.name)
        asked = Asked(what, place.after, place.line)
        if media:
            media = tuple([await run.media.keep(of) for of in media])
        return await _chat(run, model, chat_id, asked, message=message, media=media, output_type=output_type)


@functools.lru_cache(maxsize=1024)
def _about_event(model: str) -> str:
    """The fingerprint of a chat about the event."""
    return fingerprint(model, None)


async def _chat(
    run: AgentRun,
    model: ModelRuntime,
    chat_id: str,
    asked: Asked,
    *,
    message: Any,
    media: tuple[Media, ...],
    output_type: Any,
) -> Any:
    answer_type = model.answer_type(output_type)
    conversation = run.conversations.get(model.name, [])
    history = await history_of(run, model)
    text = _text(run, model, run.event if message is None else message)
    notices = _take_notices(run, model, f"{chat_id}/m0")
    new: list[Message] = []

    def say(*messages: Message) -> None:
        new.extend(map(well_formed_message, messages))

    if notices:
        say(notice_message(notices))
    say(UserMessage(text, media))
    additions, code = Additions(), CodeRounds(run, model) if model.code is not None else None
    refused = 0
    for step in range(run.runtime.limits.steps + 1):
        id_ = f"{chat_id}/m{step}"
        said = [*history, *conversation, *new]
        request = await build_request(run, model, said, answer_type, step=id_, additions=additions)
        first: dict[str, Any] = {"notices": notices, "asked": asked} if step == 0 else {}
        calls = f"{chat_id}/t{step}"
        response = await respond(run, model, id_, request, calls=calls, additions=additions.take_new(), **first)
        if response.tool_calls:
            say(AssistantMessage(response.text, response.tool_calls, response.verbatim))
            results = await _run_tools(run, model, calls, response.tool_calls)
            say(*results)
            answered = _answered(await run.tools_of(model), results, answer_type)
            if answered is None:
                continue
            # As if the model had said so: what comes next in a conversation follows an answer.
            say(AssistantMessage(results[0].content))
            run.conversations[model.name] = [*run.conversations.get(model.name, []), *new]
            return answered[0]
        if code is not None and response.finish_reason != "invalid":
            printed = await code.outputs(f"{chat_id}/c{step}", response.text)
            if printed is not None:
                say(AssistantMessage(response.text, verbatim=response.verbatim), UserMessage(printed))
                continue
        problem, answer = _answer(response, answer_type)
        if response.text.strip() and response.finish_reason != "invalid":
            say(AssistantMessage(response.text, verbatim=response.verbatim))
        if problem is None:
            # Looked up again: another chat of this turn may have ended meanwhile.
            run.conversations[model.name] = [*run.conversations.get(model.name, []), *new]
            return answer
        refused += 1
        if refused > run.runtime.limits.output_retries:
            raise TurnError(f"chat model {model.name!r} gave no usable answer after {refused} attempts: {problem}")
        say(UserMessage(problem))
    raise TurnError(f"chat model {model.name!r} never came to an answer")


def _text(run: AgentRun, model: ModelRuntime, message: Any) -> str:
    """What the model reads: the agent's form for its event, anything else as it is."""
    if message is not run.event:
        return event_text(message)
    prompt = model.prompt
    return prompt.render_user(run.event_for_model) if prompt.user else event_text(run.event_for_model)


def _answer(response: ModelResponse, answer_type: AnswerType) -> tuple[str | None, Any]:
    if response.finish_reason == "invalid":
        return response.text, None
    if not response.text.strip():
        return "Your last message was empty. Answer the request, or call a tool.", None
    return answer_type.read(response.text)


def _answered(tools: ToolSet, results: Sequence[ToolMessage], answer_type: AnswerType) -> list[Any] | None:
    """The answer that the only call of a response gave, in a list; None where the model has to answer."""
    tool = tools.get(results[0].name) if len(results) == 1 else None
    if tool is None or not tool.ends_chat or results[0].is_error or not results[0].content.strip():
        return None
    problem, answer = answer_type.read(results[0].content)
    return [answer] if problem is None else None


def _take_notices(run: AgentRun, model: ModelRuntime, first_step: str) -> list[Notice]:
    """What this conversation must be told of its skills, which it then has no longer loaded.

    The first response of a chat is journalled together with the notices that its request began with: a replay tells
    the same, also where the skills have changed again meanwhile.
    """
    state = run.skill_state_of(model)
    entry = run.turn.journal.peek(first_step)
    if entry is None and not run.before.messages.get(model.name):
        return []
    notices = outdated(state, model.view) if entry is None else journalled(entry)
    forget(notices, state)
    return notices


async def _run_tools(run: AgentRun, model: ModelRuntime, step: str, calls: tuple[ToolCall, ...]) -> list[ToolMessage]:
    """Run the calls of one response, at the same time where none decides what another does; results in their order."""
    results: list[ToolResult] = []
    for group in _groups(model, calls):
        first = len(results)
        done = await _all(
            run,
            [
                run.run_tool(model, f"{step}.{first + i}", call.name, call.arguments, model_call_id=call.id)
                for i, call in enumerate(group)
            ],
        )
        for call, result in zip(group, done, strict=True):
            run.apply(model, call.name, call.arguments, result)
        results += done
    return [_message(model, call, result) for call, result in zip(calls, results, strict=True)]


async def _all(run: AgentRun, calls: Sequence[Coroutine[Any, Any, ToolResult]]) -> list[ToolResult]:
    """The results of calls that run at the same time. Where one ends the turn, the others end with it."""
    if len(calls) == 1:
        call = Apart(calls[0], run)
        # The response that asks for the call leaves this process before the call begins.
        await asyncio.sleep(0)
        return [await call]
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _groups(model: ModelRuntime, calls: Sequence[ToolCall]) -> Iterator[list[ToolCall]]:
    """The calls in groups that may run at the same time: a call that loads a skill comes before those that use it."""
    group: list[ToolCall] = []
    for call in calls:
        tool = model.tools.get(call.name)
        if tool is not None and tool.changes_state:
            if group:
                yield group
            yield [call]
            group = []
        else:
            group.append(call)
    if group:
        yield group


def _message(model: ModelRuntime, call: ToolCall, result: ToolResult) -> ToolMessage:
    effect: Mapping[str, Any] = next((of for of in result.effects if of.get("op") in ("load", "docs")), {})
    in_place = bool(effect) and model.settings.loads_in_place
    return ToolMessage(
        call.id,
        call.name,
        result.content,
        result.is_error,
        skill=str(effect.get("skill", "")),
        stub=bool(effect) and not in_place,
        holds=str(effect.get("digest", "")) if in_place else "",
        media=result.media,
    )
