"""Runs the code of one agent on one event. It is the context that the code works with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from functools import lru_cache
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from flink_skills.agents.declare.context import FRESH, Fresh
from flink_skills.agents.declare.subagent import BudgetError
from flink_skills.agents.open.event_content import ContentScope
from flink_skills.agents.rows.table_rows import RESERVED_TAGS
from flink_skills.agents.rows.wait_record import WAITS_TAG
from flink_skills.agents.state.codec import StepCodec
from flink_skills.agents.state.event import event_text
from flink_skills.agents.state.fingerprints import fingerprint
from flink_skills.agents.state.journal import Asked
from flink_skills.agents.state.session import KeptConversation
from flink_skills.agents.state.waits import SLEEP, WaitRequest
from flink_skills.agents.turn.agent_turn import AgentTurn, TurnContext, session_json
from flink_skills.agents.turn.chat import Request, chat
from flink_skills.agents.turn.conversation import Conversation
from flink_skills.agents.turn.steps import Calls
from flink_skills.agents.turn.wait_requests import (
    AnswerReader,
    answer_of,
    sleep_request,
    time_in_milliseconds,
    wait_request,
)
from flink_skills.artifacts import artifact_ref
from flink_skills.errors import LimitError, SkillsError, TurnError
from flink_skills.models.messages import Media, Message
from flink_skills.telemetry import observe
from flink_skills.telemetry.event_record import EVENTS_TAG
from flink_skills.tools.base import AgentAnswer
from flink_skills.tools.function import in_thread

if TYPE_CHECKING:
    from flink_skills.agents.open.generation import Generation, ModelRuntime

_MAX_NAME = 100


class Conversations:
    """All conversations that an agent has in an attempt at a turn.

    Args:
        agent_turn: The agent's part in the attempt.
        models: The names of the agent's models.
    """

    __slots__ = ("_agent_turn", "_by_name", "_fresh", "_models")

    def __init__(self, agent_turn: AgentTurn, models: Collection[str]) -> None:
        self._agent_turn = agent_turn
        self._models = models
        # By the name in the session.
        self._by_name: dict[str, Conversation] = {}
        self._fresh: list[Conversation] = []

    def shared(self, model: ModelRuntime) -> Conversation:
        """Return the conversation that all chats with a model share."""
        return self._get(model, model.name)

    def select(self, model: ModelRuntime, conversation: str | Fresh | None) -> Conversation:
        """Return the conversation that ``ctx.chat`` names. Raises :class:`TurnError` for an invalid name."""
        if conversation is None:
            return self.shared(model)
        if conversation is FRESH:
            # Kept for the artifacts that it saves.
            self._fresh.append(Conversation(self._agent_turn, model, ""))
            return self._fresh[-1]
        if not isinstance(conversation, str) or not 0 < len(conversation) <= _MAX_NAME:
            raise TurnError(
                f"ctx.chat: conversation is {conversation!r}: give a string of 1 to {_MAX_NAME} characters, FRESH or "
                "None"
            )
        name = f"{model.name}#{conversation}"
        if "#" in model.name or name in self._models:
            raise TurnError(
                f"ctx.chat: chat model {model.name!r} cannot have named conversations, because '#' separates the two "
                "names: remove '#' from the names of the agent's models"
            )
        return self._get(model, name)

    def _get(self, model: ModelRuntime, name: str) -> Conversation:
        found = self._by_name.get(name)
        if found is None:
            found = self._by_name[name] = Conversation(self._agent_turn, model, name)
        elif found.model is not model:
            # `visible_skills` limited the skills of the model.
            found.model = model
        return found

    def __iter__(self) -> Iterator[Conversation]:
        yield from self._by_name.values()
        yield from self._fresh

    def loaded_skills(self) -> list[str]:
        """Return the names of the skills that are loaded now, in order of use in each conversation."""
        found: dict[str, None] = {}
        for conversation in self._by_name.values():
            for name in conversation.skill_state:
                found.pop(name, None)
                found[name] = None
        return list(found)

    def added(self) -> KeptConversation:
        """Return what the turn adds to the session."""
        messages, skill_states = {}, {}
        for name, of in self._by_name.items():
            state = of.skill_state_to_keep()
            of.omit_unloaded()
            if of.messages:
                messages[name] = of.messages
            if state is not None:
                skill_states[name] = state
        children = self._agent_turn.child_sessions
        if children is not None:
            added = children.added()
            return KeptConversation({**messages, **added.messages}, {**skill_states, **added.skill_states})
        return KeptConversation(messages, skill_states)

    def shortened(self) -> dict[str, Sequence[Message] | None]:
        """Return messages that replace stored ones, by conversation name. None removes a conversation."""
        found: dict[str, Sequence[Message] | None] = {}
        for name, of in self._by_name.items():
            if of.shortened is not None:
                found[name] = of.shortened
        children = self._agent_turn.child_sessions
        return found if children is None else {**found, **children.shortened()}


class AgentRun(TurnContext):
    """The run of one agent's code in an attempt at a turn.

    Args:
        agent_turn: The agent's part in the attempt.
        generation: Its models, skills and tools.
    """

    __slots__ = ("__weakref__", "_calls", "_conversations", "_generation")

    _calls: Calls
    _conversations: Conversations | None
    _generation: Generation

    def __init__(self, agent_turn: AgentTurn, generation: Generation) -> None:
        super().__init__(agent_turn)
        set_ = object.__setattr__
        set_(self, "_calls", Calls(agent_turn.steps, agent_turn.prefix))
        set_(self, "_conversations", None)
        set_(self, "_generation", generation)

    @property
    def conversations(self) -> Conversations:
        """The conversations of the agent."""
        found = self._conversations
        if found is None:
            found = Conversations(self._agent_turn, self._generation.models)
            object.__setattr__(self, "_conversations", found)
        return found

    async def run(self) -> Any:
        """Return what the agent's ``on_event`` returns."""
        agent = self._agent_turn.agent.agent
        with self._calls:
            visible = agent.visible_skills(self._agent_turn.event, self)
            if visible is not None:
                self._generation = self._generation.limited_to(visible)
            result = agent.on_event(self._agent_turn.event, self)
            if type(result) is CoroutineType or inspect.isawaitable(result):
                result = await result
            self._calls.check_awaited()
            self._calls.ended()
            return result

    async def read_event(self) -> None:
        """Read the media and the files of the event of the turn. Models read the event without them."""
        agent_turn = self._agent_turn
        agent, files, event = agent_turn.agent, agent_turn.files, agent_turn.event
        if agent.content.is_in(event):
            scope = ContentScope(
                agent_turn.media,
                agent_turn.durable,
                agent_turn.steps.call_id,
                self._known_artifacts,
                agent.keeps_conversation,
            )
            agent_turn.event_for_model, agent_turn.content = await agent.content.read(event, scope)
        files.event = agent_turn.event_for_model
        if agent.files.has_files(event):
            await files.read(agent_turn.steps, self._known_artifacts)
            agent_turn.event_for_model = files.event

    def _known_artifacts(self) -> Mapping[str, str]:
        return self.conversations.shared(self._generation.tool_scope(self._routed(None))).skill_state.artifacts

    def artifact_versions(self) -> dict[str, str]:
        """Return the newest version of each artifact that the conversations saved, by name."""
        versions: dict[str, str] = {}
        for conversation in self._known_conversations() or ():
            versions.update(conversation.skill_state.artifacts)
        return versions

    def _known_conversations(self) -> Conversations | None:
        """Return the conversations, including those with models that did not continue in this turn."""
        if self._agent_turn.kept.skill_states:
            for model in self._generation.models.values():
                self.conversations.shared(model)
        return self._conversations

    def _routed(self, model: str | None) -> str | None:
        """Return the model that a call names, or the one that the agent's route chooses for the event."""
        route = self._agent_turn.agent.plan.route
        return route.choose(self._agent_turn.event) if model is None and route is not None else model

    # The interface of AgentContext.

    @property
    def state(self) -> Any:
        return self._agent_turn.state

    @state.setter
    def state(self, value: Any) -> None:
        self._agent_turn.state = self._agent_turn.agent.assigned_state(value)

    @property
    def skills(self) -> list[str]:
        found = self._known_conversations()
        return [] if found is None else found.loaded_skills()

    @property
    def artifacts(self) -> dict[str, str]:
        return {name: artifact_ref(name, version) for name, version in self.artifact_versions().items()}

    def chat(
        self,
        message: Any = None,
        *,
        model: str | None = None,
        output_type: Any = ...,
        content: Sequence[Media] | None = None,
        conversation: str | Fresh | None = None,
        system: str | None = None,
    ) -> Coroutine[Any, Any, Any]:
        if system is not None and not isinstance(system, str):
            raise TurnError(f"ctx.chat: system is of type {type(system).__name__}: give the instructions as a string")
        call = self._chat(
            self._routed(model),
            message,
            output_type=output_type,
            content=content,
            conversation=conversation,
            system=system,
        )
        return self._calls.awaited("ctx.chat", call)

    async def _chat(
        self,
        model_name: str | None,
        message: Any,
        *,
        output_type: Any,
        content: Sequence[Media] | None,
        conversation: str | Fresh | None,
        system: str | None,
    ) -> Any:
        model, agent_turn = self._generation.model(model_name), self._agent_turn
        is_event = message is None or message is agent_turn.event
        media = agent_turn.content if content is None and is_event else tuple(content or ())
        with self._calls.call("chat") as (chat_id, place):
            # With the model: the conversation with one model must not get the messages of another one.
            selected = self.conversations.select(model, conversation)
            asked = selected.name or model.name
            if is_event and content is None:
                what = _about_event(asked)
            else:
                said = None if is_event else message
                if content is not None:
                    said = [said, [[of.name, of.media_type, of.size] for of in content]]
                what = fingerprint(asked, said) or fingerprint(asked)
            if media:
                media = tuple([await agent_turn.media.keep(of) for of in media])
            request = Request(
                chat_id,
                Asked(what, place.after, place.line),
                self._text(model, message, is_event=is_event),
                media,
                model.answer_type(output_type),
                system,
            )
            return await chat(selected, request, self._calls)

    def _text(self, model: ModelRuntime, message: Any, *, is_event: bool) -> str:
        """Return the text of a message. The prompt of the model renders the event."""
        if not is_event:
            return event_text(message)
        event, prompt = self._agent_turn.event_for_model, model.prompt
        return prompt.render_user(event) if prompt.user else event_text(event)

    def call_tool(
        self, name: str, arguments: Any = None, /, *, model: str | None = None, **more: Any
    ) -> Coroutine[Any, Any, Any]:
        call = self._call_tool(name, {**(arguments or {}), **more}, model)
        return self._calls.awaited(f"ctx.call_tool({name!r})", call)

    async def _call_tool(self, name: str, arguments: Mapping[str, Any], model: str | None) -> Any:
        conversation = self.conversations.shared(self._generation.tool_scope(self._routed(model)))
        with self._calls.call(f"tool:{name}") as (step, place):
            result = await conversation.run_tool(step, name, arguments, place)
            conversation.apply(name, arguments, result)
            if result.is_error:
                raise TurnError(f"tool {name}: {result.content}")
            return result.value if result.value is not None else result.content

    def step(
        self, name: str, fn: Callable[..., Any], *args: Any, result_type: Any = None, **kwargs: Any
    ) -> Coroutine[Any, Any, Any]:
        return self._calls.awaited(f"ctx.step({name!r})", self._step(name, fn, args, kwargs, result_type))

    async def _step(
        self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], result_type: Any
    ) -> Any:
        codec = StepCodec.of(fn, result_type, name)
        with self._calls.call(f"step:{name}") as (step, place):

            async def run() -> Any:
                with observe("step", name, step, call_id=self._agent_turn.steps.call_id(step)):
                    if inspect.iscoroutinefunction(fn):
                        value = await fn(*args, **kwargs)
                    else:
                        value = await in_thread(fn, *args, **kwargs)
                        if inspect.isawaitable(value):
                            value = await value
                    if self._calls.is_own_line():
                        self._calls.ended()
                    return codec.dump(value)

            # Without keyword arguments as in earlier releases, whose journals have these fingerprints.
            what = fingerprint(name, args, kwargs) if kwargs else fingerprint(name, args)
            kept = await self._agent_turn.durable(step, run, place._replace(what=what))
            return codec.load(kept)

    def wait(
        self,
        name: str,
        payload: Any = None,
        *,
        question: str = "",
        timeout: Any = None,
        answer_type: Any = None,
        event_time: bool = False,
    ) -> Coroutine[Any, Any, Any]:
        request = wait_request(
            name,
            question=question,
            payload=payload,
            timeout=timeout,
            event_time=event_time,
            timestamp=self.timestamp,
        )
        read = AnswerReader(answer_type, f"ctx.wait({name!r})")
        return self._calls.awaited(f"ctx.wait({name!r})", self._wait(f"wait:{name}", request, read))

    def sleep(self, seconds: Any, *, event_time: bool = False) -> Coroutine[Any, Any, None]:
        request = sleep_request(seconds, event_time=event_time, timestamp=self.timestamp)
        return self._calls.awaited("ctx.sleep", self._sleep(request))

    def sleep_until(self, when: Any, *, event_time: bool = False) -> Coroutine[Any, Any, None]:
        request = WaitRequest(SLEEP, "sleep", until=time_in_milliseconds(when), event_time=event_time)
        return self._calls.awaited("ctx.sleep_until", self._sleep(request))

    async def _sleep(self, request: WaitRequest) -> None:
        await self._wait(SLEEP, request, None)

    async def _wait(self, kind: str, request: WaitRequest, read: AnswerReader | None) -> Any:
        with self._calls.call(kind) as (step, place):
            result = await self._agent_turn.wait(step, request, read or (lambda value: value), place)
            return None if read is None else answer_of(f"wait {request.name!r}", result, read)

    def cancel_wait(self, wait: str) -> Coroutine[Any, Any, None]:
        return self._calls.awaited(f"ctx.cancel_wait({wait!r})", self._cancel_wait(wait))

    async def _cancel_wait(self, wait: str) -> None:
        with self._calls.call("cancel") as (step, place):

            async def run() -> Any:
                self._agent_turn.steps.cancel_wait(wait)
                return None

            await self._agent_turn.durable(step, run, place._replace(what=fingerprint(wait)))

    def forget(self) -> None:
        steps = self._agent_turn.steps
        steps.check_open()
        steps.forgets = True

    def emit(self, output: Any) -> None:
        self._emit("", output)

    def emit_to(self, tag: str, output: Any) -> None:
        if not tag.isascii():
            try:
                tag.encode()
            except UnicodeEncodeError as error:
                raise TurnError(f"emit_to({tag!r}): {error}; choose a tag without lone surrogates") from None
        if tag in (EVENTS_TAG, WAITS_TAG) or tag.startswith(RESERVED_TAGS):
            raise TurnError(f"emit_to({tag!r}): this side output is the runtime's own; choose another tag")
        self._emit(tag, output)

    def _emit(self, tag: str, output: Any) -> None:
        if inspect.iscoroutine(output):
            raise TurnError(f"an output is the coroutine {output.__qualname__}(…): await it, and emit its result")
        self._agent_turn.steps.check_open()
        self._agent_turn.outputs.append((tag, output))


@lru_cache(maxsize=1024)
def _about_event(model: str) -> str:
    """Return the fingerprint of a chat about the event."""
    return fingerprint(model, None)


async def call_agent(generations: Mapping[int, Generation], agent_turn: AgentTurn, is_continued: bool) -> AgentAnswer:
    """Run an agent that is a tool. See :meth:`flink_skills.tools.base.Caller.run_agent`.

    Args:
        generations: Models, skills and tools of each agent when the turn began, by the id of its open agent.
        agent_turn: The agent's part in the attempt.
        is_continued: True if the session of its caller continues its conversations.
    """
    run = AgentRun(agent_turn, generations[id(agent_turn.agent)])
    try:
        with observe("agent", agent_turn.agent.plan.agent_id) as activity:
            answer = await run.run()
            activity.attributes.update(skills=list(agent_turn.loaded))
    except LimitError as error:
        if not isinstance(error, BudgetError) or error.budget is not agent_turn.budget:
            raise  # the limit is that of the whole turn, or of an agent that calls this one
        return AgentAnswer(problem=str(error))
    except SkillsError as error:
        return AgentAnswer(problem=str(error))
    session = session_json(run.conversations.added(), run.conversations.shortened()) if is_continued else None
    return AgentAnswer(answer, state=agent_turn.state, artifacts=run.artifact_versions(), session=session)
