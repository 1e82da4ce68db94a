"""A conversation with an open agent: the turns of one key, on an event loop of their own thread."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from flink_skills.agents.event import Record
from flink_skills.agents.generation import ModelRuntime
from flink_skills.agents.keys import key_to_text
from flink_skills.agents.messages import Usage
from flink_skills.agents.observers import telemetry_of
from flink_skills.agents.plan import AgentPlan
from flink_skills.agents.runtime import AgentRuntime
from flink_skills.agents.session import Session
from flink_skills.agents.turn import Turn, TurnOutcome, TurnStart, TurnStatus
from flink_skills.options import SkillConfig
from flink_skills.telemetry import Observer
from flink_skills.tools import SkillState
from flink_skills.tools.base import ToolSpec

__all__ = ["Conversation", "event_of"]

T = TypeVar("T")
_STOP_SECONDS = 30


class Conversation:
    """An agent, opened as a worker opens it, and the session of one key.

    Turns run on a thread, so that the agent's background work goes on while a person thinks. Everything here is
    called from one other thread, but for :meth:`interrupt`.

    >>> with Conversation(plan, scratch_dir, observer) as conversation:
    ...     outcome = conversation.say("hello")
    """

    def __init__(self, plan: AgentPlan, scratch_dir: str, observer: Observer) -> None:
        """Raises :class:`~flink_skills.errors.SkillsError` for what no turn could do without."""
        self._plan = replace(plan, session="key")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="flink-skills-chat", daemon=True)
        self._thread.start()
        self._running: asyncio.Task[TurnOutcome] | None = None
        self._interrupted = False
        self._number = 1
        self._begin()
        telemetry = telemetry_of(plan, SkillConfig(plan.options), events=False).also(observer)
        try:
            self.runtime = self._call(
                AgentRuntime.open(self._plan, scratch_dir=scratch_dir, telemetry=telemetry, quiet=True)
            )
        except BaseException:
            self._end_loop()
            raise

    def _begin(self) -> None:
        self._session = Session()
        self._turn = 1
        self.usage = Usage()

    @property
    def key(self) -> str:
        """The key of the conversation."""
        return "chat" if self._number == 1 else f"chat-{self._number}"

    @property
    def turns(self) -> int:
        """How many turns have ended well."""
        return self._turn - 1

    def say(self, line: str) -> TurnOutcome | None:
        """Run a turn to its end. None: it was interrupted; the conversation is then as it was before."""
        self._interrupted = False
        outcome = self._call(self._run(line))
        if outcome is not None and outcome.status == TurnStatus.DONE:
            self._session = outcome.session
            self._turn += 1
        return outcome

    def interrupt(self) -> None:
        """Cancel the turn that runs. Only notes it, so that a signal handler may call it."""
        self._interrupted = True
        self._loop.call_soon_threadsafe(self._cancel)

    def reset(self) -> None:
        """Begin another conversation: that of a new key, with an empty workspace."""
        self._number += 1
        self._begin()

    def models(self) -> list[ModelRuntime]:
        """The agent's chat models, with what they may use now."""
        return list(self.runtime.generation.models.values())

    def loaded(self, model: ModelRuntime) -> SkillState:
        """What is loaded in the conversation with ``model``."""
        kept = self._session.conversation().skill_states.get(model.name)
        return SkillState.from_json(kept) if kept is not None else SkillState()

    def tools(self, model: ModelRuntime) -> list[ToolSpec]:
        """The tools of ``model``, with those that its loaded skills bring themselves."""
        if not model.is_dynamic:
            return model.tools.specs()
        return model.tools_with(model.tools, self.loaded(model), {}).specs()

    def close(self) -> None:
        """End commands, and remove what belongs to the conversation."""
        try:
            self._call(self._close())
        finally:
            self._end_loop()

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _run(self, line: str) -> TurnOutcome | None:
        event = event_of(line)
        start = TurnStart(key_to_text(self.key), self._turn, json.dumps(event).encode(), event, self._session)
        turn = Turn(self.runtime, start, lambda entry, reset, outputs: None)
        self._running = asyncio.ensure_future(turn.run())
        self._cancel()
        try:
            return await self._running
        except asyncio.CancelledError:
            return None
        finally:
            self._running = None
            self.usage += turn.usage

    async def _close(self) -> None:
        if self._running is not None:  # the session is ended from outside
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        await self.runtime.close()

    def _cancel(self) -> None:
        if self._interrupted and self._running is not None:
            self._running.cancel()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end_loop(self) -> None:
        self._call(_end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


async def _end_tasks() -> None:
    loop = asyncio.get_running_loop()
    tasks = asyncio.all_tasks(loop) - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await loop.shutdown_asyncgens()


def event_of(line: str) -> Any:
    """The event of a line: a record where it is a JSON object, as ``flink-skills run`` reads it, else the text.

    >>> event_of('{"job": "a"}')["job"], event_of("hello")
    ('a', 'hello')
    """
    if line.lstrip().startswith("{"):
        try:
            read = json.loads(line)
        except (ValueError, RecursionError):
            return line
        if isinstance(read, dict):
            return Record(read)
    return line
