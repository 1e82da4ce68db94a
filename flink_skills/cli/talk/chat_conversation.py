"""Conversation with an open agent: the turns of one key on an event loop in a separate thread."""

from __future__ import annotations

import asyncio
import json
import logging
import queue
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from flink_skills.agents.open.generation import ModelRuntime
from flink_skills.agents.open.plan_opening import open_plan, telemetry_of
from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.agents.state.event import Record
from flink_skills.agents.state.keys import key_to_text
from flink_skills.agents.state.session import Session
from flink_skills.agents.turn.local import LocalTurns
from flink_skills.agents.turn.local_waits import Ask, LocalWaits
from flink_skills.agents.turn.turn_record import TurnOutcome, TurnStart, TurnStatus
from flink_skills.models.messages import Usage
from flink_skills.models.registry import has_listed_price
from flink_skills.options import SkillConfig
from flink_skills.telemetry import CostObserver, Observer
from flink_skills.tools import SkillState
from flink_skills.tools.base import ToolSpec

_log = logging.getLogger(__name__)

T = TypeVar("T")
_JOIN_SECONDS = 30


class Conversation:
    """Agent, opened as a worker opens it, and the session of one key.

    The event loop runs in a separate thread, so that the agent's background tasks continue between turns. All methods
    except :meth:`interrupt` must be called from the same thread.

    >>> with Conversation(plan, scratch_dir, observer) as conversation:
    ...     outcome = conversation.run_turn("hello")
    """

    def __init__(
        self,
        plan: AgentPlan,
        scratch_dir: str,
        observer: Observer,
        ask: Callable[[dict[str, Any]], Any] = lambda question: {"cancel": True},
        ask_in_terminal: Ask | None = None,
    ) -> None:
        """Open the agent.

        Args:
            plan: The agent.
            scratch_dir: An empty directory.
            observer: Receives the activities of turns.
            ask: Returns the answer to the record of a question. :meth:`run_turn` calls it in its thread.
            ask_in_terminal: Replaces ``ask``. It runs on the event loop, and is cancelled when the question ends.

        Raises:
            SkillsError: The agent, its skills or its model cannot be opened.
        """
        self._plan = replace(plan, session="key")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="flink-skills-chat", daemon=True)
        self._thread.start()
        self._current_task: asyncio.Task[TurnOutcome] | None = None
        self._is_interrupted = False
        self._ask, self._ask_in_terminal = ask, ask_in_terminal
        self._questions: queue.SimpleQueue[tuple[dict[str, Any], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._number = 1
        self._start_session()
        telemetry = telemetry_of(plan, SkillConfig(plan.options), events=False)
        # A telemetry with observers has one for costs, which precedes them.
        costs = [] if telemetry else [CostObserver(has_listed_price)]
        telemetry = telemetry.with_observers(*costs, observer)
        try:
            self.runtime = self._wait_for(
                open_plan(self._plan, scratch_dir=scratch_dir, telemetry=telemetry, quiet=True)
            )
        except BaseException:
            self._stop_loop()
            raise

    def _start_session(self) -> None:
        self._session = Session()
        self._turn = 1
        self.usage = Usage()
        #: Cost of the successful turns in USD, as far as prices are known.
        self.cost = 0.0

    @property
    def key(self) -> str:
        """Return the key of the conversation."""
        return "chat" if self._number == 1 else f"chat-{self._number}"

    @property
    def turns(self) -> int:
        """Return the number of successful turns."""
        return self._turn - 1

    def run_turn(self, line: str) -> TurnOutcome | None:
        """Run a turn. Return None if it was interrupted, which leaves the conversation unchanged."""
        self._is_interrupted = False
        running = asyncio.run_coroutine_threadsafe(self._run(line), self._loop)
        running.add_done_callback(lambda _: self._questions.put(None))
        while (asked := self._questions.get()) is not None:
            question, answer = asked
            if not answer.cancelled():
                self._loop.call_soon_threadsafe(_resolve, answer, self._ask(question))
        outcome = running.result()
        if outcome is not None and outcome.status == TurnStatus.DONE:
            self._session = outcome.session
            self._turn += 1
        return outcome

    def interrupt(self) -> None:
        """Request cancellation of the current turn. Safe to call from a signal handler."""
        self._is_interrupted = True
        self._loop.call_soon_threadsafe(self._cancel)

    def reset(self) -> None:
        """Start a new conversation with a new key and an empty workspace."""
        self._number += 1
        self._start_session()

    def models(self) -> list[ModelRuntime]:
        """Return the agent's chat models with their current skills and tools."""
        return list(self.runtime.generation.models.values())

    def skill_state(self, model: ModelRuntime) -> SkillState:
        """Return the skills that are loaded in the conversation with ``model``."""
        stored = self._session.conversation().skill_states.get(model.name)
        return SkillState.from_json(stored) if stored is not None else SkillState()

    def tools(self, model: ModelRuntime) -> list[ToolSpec]:
        """Return the tools of ``model``, including the bundled tools of its loaded skills."""
        if not model.is_dynamic:
            return model.tools.specs()
        return model.tools_with(model.tools, self.skill_state(model), {}).specs()

    def close(self) -> None:
        """Terminate running commands, close the agent and stop the event loop."""
        try:
            self._wait_for(self._close())
        finally:
            self._stop_loop()

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _run(self, line: str) -> TurnOutcome | None:
        event = parse_event(line)
        start = TurnStart(key_to_text(self.key), self._turn, json.dumps(event).encode(), event, self._session)
        waits = LocalWaits(self._ask_in_terminal or self._asked)
        turns = LocalTurns(self.runtime, SkillConfig(self._plan.options), waits, lambda event: None)
        self._current_task = asyncio.ensure_future(turns.run_one(start, self._add_usage))
        self._cancel()
        try:
            return await self._current_task
        except asyncio.CancelledError:
            return None
        finally:
            self._current_task = None
            for unused in waits.close():
                _log.warning("an answer to wait %s was not used: %s", unused.answer.wait, unused.reason)

    async def _asked(self, question: dict[str, Any]) -> Any:
        """Return the answer that the thread of :meth:`run_turn` obtains."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._questions.put((question, answer))
        return await answer

    def _add_usage(self, usage: Usage) -> None:
        self.usage += usage

    async def _close(self) -> None:
        if self._current_task is not None:  # A signal ended the session during a turn.
            self._current_task.cancel()
            await asyncio.gather(self._current_task, return_exceptions=True)
        await self.runtime.close()

    def _cancel(self) -> None:
        if self._is_interrupted and self._current_task is not None:
            self._current_task.cancel()

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop_loop(self) -> None:
        self._wait_for(_cancel_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_JOIN_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


def _resolve(answer: asyncio.Future[Any], value: Any) -> None:
    # A wait that has ended has no use for the answer.
    if not answer.done():
        answer.set_result(value)


async def _cancel_tasks() -> None:
    loop = asyncio.get_running_loop()
    tasks = asyncio.all_tasks(loop) - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await loop.shutdown_asyncgens()


def parse_event(line: str) -> Any:
    """Return the event of a line: a record if the line is a JSON object, otherwise the string.

    >>> parse_event('{"job": "a"}')["job"], parse_event("hello")
    ('a', 'hello')
    """
    if line.lstrip().startswith("{"):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return line
        if isinstance(value, dict):
            return Record(value)
    return line
