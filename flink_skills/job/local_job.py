"""The agents of a job file in this process, without Flink and without tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from typing import Any

from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.agents.rows.columns import OutputShape, checked_path
from flink_skills.agents.rows.table_rows import NextEvent
from flink_skills.agents.state.event import key_of
from flink_skills.agents.turn.local import run_events
from flink_skills.agents.turn.local_waits import Ask
from flink_skills.agents.turn.turn_record import ERROR_TAG, TurnOutcome, TurnStatus
from flink_skills.errors import ConfigError, SkillsError, UnknownNameError
from flink_skills.job.agent_source import AgentSources
from flink_skills.job.building import add_to_environment
from flink_skills.job.job_reading import ReadJob
from flink_skills.job.stages import Stage
from flink_skills.models.setup import ModelSetup


class LocalJob:
    """The agents of a job file, for events that do not come from its tables.

    Args:
        read: The file.
        model: Replaces the chat models of all agents.

    >>> LocalJob(read_job("job.yaml")).plan("router").agent_id  # doctest: +SKIP
    'router'
    """

    def __init__(self, read: ReadJob, *, model: ModelSetup | None = None) -> None:
        from flink_skills.flink.agents_environment import AgentsExecutionEnvironment

        self._read, self._model = read, model
        self._sources = AgentSources(read)
        self._plans: dict[str, AgentPlan] = {}
        self._environment = AgentsExecutionEnvironment.get_execution_environment()
        add_to_environment(read, self._environment)
        self._stages = {stage.name: stage for stage in read.stages}

    @property
    def names(self) -> list[str]:
        """The names of the agents, those that are only tools included. A job with one agent has one: ""."""
        return list(self._read.job.agents or [""])

    def plan(self, name: str = "") -> AgentPlan:
        """Return an agent's plan, for events that are JSON. It is compiled once.

        Raises :class:`DocumentError` for a wrong file, and :class:`UnknownNameError` for an unknown agent.
        """
        if name not in self.names:
            raise UnknownNameError("agent", name, self.names, place=self._read.file.name)
        if name not in self._plans:
            self._plans[name] = self._compiled(name)
        return self._plans[name]

    def _compiled(self, name: str) -> AgentPlan:
        agent = self._sources.of(name).agent
        stage = self._stages.get(name)
        at = stage.agent_at if stage is not None else ("agents", name)
        try:
            plan = self._environment.compile(agent, local=True, events="json", outputs="record", model=self._model)
        except SkillsError as error:
            raise self._read.problem(at, str(error)) from error
        return replace(plan, operator=name) if name and name != plan.agent_id else plan

    def entry(self, name: str | None = None) -> Stage:
        """Return the agent that events from outside enter: ``name``, or the only one that reads a table or query.

        Raises :class:`ConfigError` if there are several, and :class:`UnknownNameError` for an unknown agent.
        """
        if name is not None:
            if name not in self._stages:
                raise UnknownNameError(
                    "agent", name, [stage for stage in self._stages if stage], place="the job's agents"
                )
            return self._stages[name]
        first = [stage for stage in self._stages.values() if not stage.sources]
        if len(first) != 1:
            names = ", ".join(stage.name for stage in first)
            raise ConfigError(
                f"{self._read.file.name}: agents {names} read tables; say with --agent which gets the events"
            )
        return first[0]

    async def run(
        self,
        entry: Stage,
        events: Iterable[tuple[Any, Any]],
        *,
        ended: Callable[[TurnOutcome], None] = lambda outcome: None,
        ask: Ask | None = None,
    ) -> AsyncIterator[dict[str, Any]]:
        """Run pairs of key and event through an agent and all agents behind it.

        Yields the records of outputs that go to a table, and all error records. An agent gets its events when the
        agents before it have ended, in the order of the events from outside. ``ended`` receives the end of each turn.
        ``ask`` returns the answer to a question. Without it, waits end with the events.
        """
        waiting: dict[str, list[tuple[Any, Any]]] = {entry.name: list(events)}
        for stage in self._stages.values():
            arrived = waiting.pop(stage.name, [])
            if not arrived:
                continue
            following = {target: self._next(stage, self._stages[target]) for target in stage.targets}
            found: dict[int, list[dict[str, Any]]] = {}
            async for number, outcome in run_events(self.plan(stage.name), arrived, ask=ask):
                ended(outcome)
                records = [record for tag, record in outcome.outputs if tag in ("", ERROR_TAG)]
                for record in records:
                    if record["error"] is not None or stage.output is not None:
                        yield record
                if outcome.status == TurnStatus.DONE:
                    found[number] = [record for record in records if record["error"] is None]
            for number in sorted(found):
                for record in found[number]:
                    for target, of in following.items():
                        event = of.event({**record, "event": arrived[number][1]})
                        try:
                            waiting.setdefault(target, []).append((key_of(event, of.keys), event))
                        except ConfigError as error:
                            failed = {**record, "agent": target, "key": None, "turn": None, "output": None}
                            yield {**failed, "error": str(error), "event": event}

    def _next(self, stage: Stage, target: Stage) -> NextEvent:
        fields = {}
        for name, text in stage.event_columns.items():
            try:
                fields[name] = checked_path(text or "", (), OutputShape(), is_open=True)
            except SkillsError as error:
                raise self._read.problem(stage.path("output", "columns", name), str(error)) from error
        return NextEvent(target.keys, fields)
