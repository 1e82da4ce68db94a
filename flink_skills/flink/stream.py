"""``from_*`` → ``apply`` → ``to_*``: where an agent meets a stream, a table or a list."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from flink_skills.agents.declare.agent import Agent, ModelOverrides, current_overrides
from flink_skills.agents.plan.compilation import instantiate
from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.agents.rows.wait_record import WAITS_TAG, WaitIds
from flink_skills.agents.state.keys import KeyText, check_key_selector, key_failure, key_text_of, selected_key
from flink_skills.agents.turn.local import ListOutcome, run_outcomes
from flink_skills.agents.turn.local_waits import GivenAnswer
from flink_skills.agents.turn.turn_record import ERROR_TAG
from flink_skills.errors import ConfigError
from flink_skills.flink import submit_checks
from flink_skills.telemetry.event_record import EVENTS_TAG, AgentEvent

if TYPE_CHECKING:
    from pyflink.common import TypeInformation
    from pyflink.datastream import DataStream, StreamExecutionEnvironment
    from pyflink.table import StreamTableEnvironment, Table

    from flink_skills.flink.output_types import OutputTypes
    from flink_skills.telemetry import CustomMetrics


class Job(Protocol):
    """The part of a job that its streams need: plans of agents, names of operators, and tables."""

    list_outputs: list[Any]
    """The outputs of agents over lists."""

    stream_outputs: list[Any]
    """The outputs of agents over streams."""

    def compile(
        self,
        agent: Agent | type[Agent],
        *,
        local: bool,
        events: str = "pickle",
        fields: Sequence[str] | None = None,
    ) -> AgentPlan:
        """Return the checked plan of ``agent`` in this job."""

    def check_options(self) -> None:
        """Raise :class:`ConfigError` if options were changed after they were read."""

    def with_others(self, plan: AgentPlan) -> AgentPlan:
        """Return ``plan`` with the names in options that other agents of the job have."""

    def add_operator(self, flink: StreamExecutionEnvironment, stream: Any, plan: AgentPlan) -> None:
        """Note the Java stream of outputs of an agent."""

    def add_control(self, flink: StreamExecutionEnvironment, operator: str) -> None:
        """Note that an agent has a control stream."""

    def is_local(self, flink: StreamExecutionEnvironment) -> bool:
        """Return True if the job runs in a mini cluster of this process."""

    def unique_name(self, name: str) -> str:
        """Return ``name``, with a number if another agent of the job has it."""

    def table_environment(self) -> StreamTableEnvironment:
        """Return the job's table environment."""


class AgentOutput(ABC):
    """What an agent emits. ``tag`` names a side output: ``"errors"`` for error records, or a tag of ``ctx.emit_to``."""

    @abstractmethod
    def answers(
        self, answers: Any, key_selector: Any, *, wait_id: str | Callable[[Any], Any] = "wait_id"
    ) -> AgentOutput:
        """Add the answers to waits of the agent. Call it before the outputs are read.

        Args:
            answers: A stream, a table, or for agents over a list an iterable.
            key_selector: The key of an answer, as in ``from_datastream``. It must be the key of the event that waits.
            wait_id: A field of an answer with the id or the name of the wait, or a function that returns it.

        Returns:
            This output.

        Raises:
            ConfigError: The outputs were read before, the agent has answers already, or an argument cannot be used.

        Example:
            >>> output = agents_env.from_datastream(orders, "order").apply(Refunds).answers(decisions, "order")
        """

    def control(self, records: Any) -> AgentOutput:
        """Control the agent, its skills and its tools with records, while the job runs.

        Call it before the outputs are read. Several agents can have the same records.

        Args:
            records: A stream or a table. A record has ``action`` (``pause``, ``refuse``, ``resume`` or ``forget``), one
                of ``agent``, ``skill``, ``tool`` and ``key``, and ``reason``.

        Returns:
            This output.

        Raises:
            ConfigError: The outputs were read before, the agent has a control stream already, or the agent is over a
                list.

        Example:
            >>> agents_env.from_datastream(orders, "order").apply(Refunds).control(records)
        """
        raise ConfigError("control(…) needs from_datastream() or from_table(): an agent over a list has no control")

    def to_wait_stream(self) -> DataStream:
        """Return the questions of the agent's waits and their ends, as a stream of dicts.

        The fields are those of :data:`flink_skills.agents.rows.wait_record.WAIT_COLUMNS`. A record is in a checkpoint
        exactly when the wait is.
        """
        raise ConfigError("to_wait_stream() needs from_datastream() or from_table(); use to_wait_list() here")

    def to_wait_table(self) -> Table:
        """Return the same as a table. Payload, arguments and answer are JSON.

        >>> output.to_wait_table().execute_insert("waits")
        """
        raise ConfigError("to_wait_table() needs from_datastream() or from_table(); use to_wait_list() here")

    def to_wait_list(self) -> list[dict[str, Any]]:
        """Return the same for agents over a list."""
        raise ConfigError("to_wait_list() belongs to from_list(); use to_wait_stream() or to_wait_table() here")

    def to_list(self, tag: str = "", *, raise_on_error: bool = False) -> list[Any]:
        """Return outputs as a list in the order of the events, for agents over a list.

        Args:
            tag: A side output.
            raise_on_error: Raise the error of the first turn that failed, with its traceback. For tests.
        """
        raise ConfigError("to_list() belongs to from_list(); use to_datastream() or to_table() here")

    def to_datastream(self, type_info: TypeInformation | None = None, tag: str = "") -> DataStream:
        """Return outputs as a stream of Python objects, or of ``type_info``. Rows are filled by field name."""
        raise ConfigError("to_datastream() needs from_datastream() or from_table(); use to_list() here")

    def to_table(self, schema: Any, tag: str = "") -> Table:
        """Return outputs as a table of a ``Schema``, ``DataTypes.ROW([…])`` or a dict of column name to type."""
        raise ConfigError("to_table() needs from_datastream() or from_table(); use to_list() here")

    def to_event_stream(self) -> DataStream:
        """Return the events of the agent's turns as a stream of :class:`~flink_skills.AgentEvent`, the audit trail.

        The events of a finished step are in a checkpoint exactly when the step is. Asking for them turns them on;
        ``skills.events.content`` says how much they hold.

        >>> output.to_event_stream().filter(lambda event: event.kind == "command")
        """
        raise ConfigError("to_event_stream() needs from_datastream() or from_table(); use to_event_list() here")

    def to_event_table(self) -> Table:
        """Return the events as a table with the columns of :data:`flink_skills.telemetry.event_record.EVENT_COLUMNS`.

        >>> output.to_event_table().execute_insert("audit")
        """
        raise ConfigError("to_event_table() needs from_datastream() or from_table(); use to_event_list() here")

    def to_event_list(self) -> list[AgentEvent]:
        """Return the events of agents over a list: those outside of turns, then turn by turn."""
        raise ConfigError("to_event_list() belongs to from_list(); use to_event_stream() or to_event_table() here")

    def to_metrics(self) -> CustomMetrics:
        """Return the custom metrics that ``ctx.metrics`` collected. It needs ``from_list``.

        >>> output.to_metrics().value("refunds", tenant="acme")
        2
        """
        raise ConfigError("to_metrics() belongs to from_list(); read the metrics in Flink here")


class AgentInput(ABC):
    """Keyed events, ready for an agent."""

    @abstractmethod
    def apply(self, agent: Agent | type[Agent], name: str | None = None) -> AgentOutput:
        """Put an agent on the events.

        Args:
            agent: An instance, or a class that needs no arguments.
            name: Name of the operator and stem of its uid; default: the agent's id.

        Raises:
            SkillsError: whatever can be known to be wrong before the job is submitted.
        """


class ListInput(AgentInput):
    """Pairs of key and event in memory."""

    def __init__(self, job: Job, events: Iterable[tuple[Any, Any]]) -> None:
        self._job, self._events = job, events

    def apply(self, agent: Agent | type[Agent], name: str | None = None) -> AgentOutput:
        submit_checks.check_name(name, "apply: name")
        plan = self._job.compile(agent, local=True)
        overrides = current_overrides()
        overrides.of(plan)  # checks them
        output = _ListOutput(self._job, plan, self._events, overrides)
        self._job.list_outputs.append(output)
        return output


class _ListOutput(AgentOutput):
    """Runs the turns when outputs are first requested, once."""

    def __init__(self, job: Job, plan: AgentPlan, events: Iterable[tuple[Any, Any]], overrides: ModelOverrides) -> None:
        self._job, self._plan, self._events, self._overrides = job, plan, events, overrides
        self._answers: Iterable[GivenAnswer] | None = None
        self._outcome: ListOutcome | None = None

    @property
    def agent_id(self) -> str:
        return self._plan.agent_id

    @property
    def has_run(self) -> bool:
        """True if the turns have run."""
        return self._outcome is not None

    def _run(self) -> ListOutcome:
        if self._outcome is None:
            overrides = self._overrides | current_overrides()
            overrides.of(self._plan)
            # With events, in case they are requested later: turns do not run a second time.
            plan = self._job.with_others(self._plan)
            self._outcome = run_outcomes(
                plan, self._events, record=True, overrides=overrides, answers=self._answers or ()
            )
        return self._outcome

    def answers(
        self, answers: Any, key_selector: Any, *, wait_id: str | Callable[[Any], Any] = "wait_id"
    ) -> AgentOutput:
        _check_order("answers", self._answers is not None, self.has_run, self._plan.agent_id)
        submit_checks.check_answers(answers)
        check_key_selector(key_selector, "answers")
        submit_checks.check_wait_id(wait_id)
        read = _given_answers(answers, key_selector, wait_id)
        self._answers = list(read) if isinstance(answers, Sequence) else read
        return self

    def to_list(self, tag: str = "", *, raise_on_error: bool = False) -> list[Any]:
        outcome = self._run()
        if raise_on_error and outcome.errors:
            raise outcome.errors[0]
        if not tag:
            # Without a usable key no turn has run, and the empty list would look like the outputs of an agent.
            problems = [key_failure(key) for key, _ in self._events]
            if problems and all(problems):
                raise ConfigError(f"from_list: none of the {len(problems)} events has a usable key: {problems[0]}")
        return [output for of, output in outcome.outputs if of == tag]

    def to_event_list(self) -> list[AgentEvent]:
        return self.to_list(EVENTS_TAG)

    def to_wait_list(self) -> list[dict[str, Any]]:
        return self.to_list(WAITS_TAG)

    def to_metrics(self) -> CustomMetrics:
        return self._run().metrics


def _check_order(call: str, has_input: bool, is_read: bool, agent: str) -> None:
    """Raise :class:`ConfigError` if an input cannot be added to an agent. ``call`` is the method that adds it."""
    if has_input:
        raise ConfigError(f"agent {agent}: {call}(…) was called before: join the streams with union, and call it once")
    if is_read:
        raise ConfigError(f"agent {agent}: {call}(…) follows the use of the outputs: call it directly after apply(…)")


def _given_answers(answers: Iterable[Any], key_selector: Any, wait_id: Any) -> Iterator[GivenAnswer]:
    wait_of = WaitIds(wait_id, answers=True)
    for answer in answers:
        key = key_text_of(partial(selected_key, answer, key_selector))
        yield GivenAnswer(key, wait_of(answer) or "", answer)


class ListEvents:
    """Pairs of key and event, read from an iterable once: at the time of the first run that needs them."""

    def __init__(self, events: Iterable[Any], key_selector: Any) -> None:
        self._source = iter(events)
        self._selector = key_selector
        self._read: list[tuple[KeyText, Any]] = []

    def __iter__(self) -> Iterator[tuple[KeyText, Any]]:
        yield from self._read
        for event in self._source:
            self._read.append((key_text_of(partial(selected_key, event, self._selector)), event))
            yield self._read[-1]


class StreamInput(AgentInput):
    """Keyed events of a stream.

    Args:
        job: The job.
        flink: Its execution environment.
        keyed: A Java stream of rows (key text, event bytes), or a function that returns it. The function receives the
            field that makes an event an answer.
        events: How the bytes of events are written, as a plan names it.
        fields: The names of the fields of all events, if the type of the stream says them.
    """

    def __init__(
        self,
        job: Job,
        flink: StreamExecutionEnvironment,
        keyed: Any,
        events: str,
        fields: Sequence[str] | None = None,
    ) -> None:
        self._job, self._flink, self._events = job, flink, events
        self._key: Callable[[str], Any] | None = keyed if callable(keyed) else None
        self._keyed: Any = None if callable(keyed) else keyed
        self._fields = fields

    @property
    def keyed(self) -> Any:
        """The Java stream of rows (key text, event bytes)."""
        if self._keyed is None and self._key is not None:
            self._keyed = self._key("")
        return self._keyed

    def _with_answers(self, agent: Agent | None) -> Any:
        """Return the Java stream, in which events can be answers if the agent has an ``answer_field``."""
        field = "" if agent is None else agent.answer_field
        if not field:
            return self.keyed
        if self._key is None:
            raise ConfigError(
                f"answer_field of an agent needs from_datastream or from_table: remove answer_field = {field!r}, and "
                "add the answers with .answers(…)"
            )
        return self._key(field)

    @property
    def events(self) -> str:
        """Format of the bytes of events, as a plan names it."""
        return self._events

    def apply(self, agent: Agent | type[Agent], name: str | None = None) -> AgentOutput:
        submit_checks.check_name(name, "apply: name")
        agent = instantiate(agent)
        local = self._job.is_local(self._flink)
        plan = self._job.compile(agent, local=local, events=self._events, fields=self._fields)
        if current_overrides().of(plan):
            raise ConfigError(
                f"agent {plan.agent_id}: override replaces models of from_list() only, because the workers of a job "
                "are other processes; use a flink_skills.testing.ScriptedModelServer here"
            )
        return self.apply_plan(plan, name, agent)

    def apply_plan(self, plan: AgentPlan, name: str | None = None, agent: Agent | None = None) -> AgentOutput:
        """Put a compiled agent on the events. With ``agent`` the types of its outputs are checked."""
        from flink_skills.flink.graph import add_operator
        from flink_skills.flink.output_types import OutputTypes, outputs_of

        operator = self._job.unique_name(name or plan.agent_id)
        if operator != plan.agent_id:
            plan = replace(plan, operator=operator)
        plan = self._job.with_others(plan)
        stream = add_operator(self._flink, self._with_answers(agent), plan)
        outputs = OutputTypes(operator) if agent is None else outputs_of(agent, operator)
        self._job.add_operator(self._flink, stream, plan)
        output = StreamOutput(self._job, self._flink, stream, outputs, plan.operator_name)
        self._job.stream_outputs.append(output)
        return output


class StreamOutput(AgentOutput):
    """The outputs of an agent over a stream."""

    def __init__(
        self, job: Job, flink: StreamExecutionEnvironment, j_stream: Any, outputs: OutputTypes, operator: str
    ) -> None:
        self._job, self._flink, self._j_stream, self._outputs = job, flink, j_stream, outputs
        self.operator = operator
        self.reads_errors = False
        self._is_read = self._has_answers = self._has_control = False

    def answers(
        self, answers: Any, key_selector: Any, *, wait_id: str | Callable[[Any], Any] = "wait_id"
    ) -> AgentOutput:
        from pyflink.table import Table

        from flink_skills.flink.bridge import add_bridge
        from flink_skills.flink.keyed_streams import EventKeys

        _check_order("answers", self._has_answers, self._is_read, self.operator)
        submit_checks.check_wait_id(wait_id)
        stream = self._job.table_environment().to_changelog_stream(answers) if isinstance(answers, Table) else answers
        submit_checks.check_input_stream("answers", stream)
        keyed = EventKeys(self._flink, stream, key_selector, "answers").answers(wait_id)
        env = self._flink._j_stream_execution_environment
        self._j_stream = add_bridge(self._flink).withAnswers(env, self._j_stream, keyed)
        self._has_answers = True
        return self

    def control(self, records: Any) -> AgentOutput:
        from pyflink.table import Table

        from flink_skills.flink.keyed_streams import control_records

        stream = self._job.table_environment().to_changelog_stream(records) if isinstance(records, Table) else records
        submit_checks.check_input_stream("control", stream)
        return self.control_by(control_records(self._flink, stream))

    def control_by(self, records: Any) -> AgentOutput:
        """Add a Java stream of control records."""
        from flink_skills.flink.bridge import add_bridge

        _check_order("control", self._has_control, self._is_read, self.operator)
        env = self._flink._j_stream_execution_environment
        self._j_stream = add_bridge(self._flink).withControl(env, self._j_stream, records)
        self._has_control = True
        self._job.add_control(self._flink, self.operator)
        return self

    def to_datastream(self, type_info: TypeInformation | None = None, tag: str = "") -> DataStream:
        submit_checks.check_type_info(type_info)
        return self._typed(type_info, tag, "to_datastream(type_info)")

    def _typed(self, type_info: TypeInformation | None, tag: str, call: str) -> DataStream:
        """Return the outputs of ``tag``. ``call`` is the method that is given the type, for messages."""
        from pyflink.common import Types
        from pyflink.datastream import DataStream, OutputTag

        from flink_skills.flink.flink_types import shape_of, typed_stream

        self._job.check_options()
        self._is_read = True
        if type_info is not None:
            self._outputs.check(shape_of(type_info), tag, call)
        stream = DataStream(self._j_stream)
        self.reads_errors = self.reads_errors or tag == ERROR_TAG
        if tag:
            side = OutputTag(tag, Types.PICKLED_BYTE_ARRAY()).get_java_output_tag()
            stream = DataStream(self._j_stream.getSideOutput(side))
        return (
            stream
            if type_info is None
            else typed_stream(stream, type_info, f"{call} of agent {self._outputs.agent_id}")
        )

    def to_table(self, schema: Any, tag: str = "") -> Table:
        from flink_skills.flink.flink_types import type_of_schema

        type_info, flink_schema = type_of_schema(schema, self._job.table_environment())
        return self._job.table_environment().from_data_stream(
            self._typed(type_info, tag, "to_table(schema)"), flink_schema
        )

    def to_event_stream(self) -> DataStream:
        from flink_skills.flink.bridge import add_bridge

        add_bridge(self._flink).enableEvents(self._j_stream)
        return self.to_datastream(tag=EVENTS_TAG)

    def to_wait_stream(self) -> DataStream:
        return self.to_datastream(tag=WAITS_TAG)

    def to_wait_table(self) -> Table:
        from flink_skills.flink.flink_types import wait_rows

        return wait_rows(self.to_wait_stream(), self._job.table_environment())

    def to_event_table(self) -> Table:
        from flink_skills.flink.flink_types import event_rows

        return event_rows(self.to_event_stream(), self._job.table_environment())


def plan_json(plans: Sequence[AgentPlan], flink: str | None) -> str:
    """Return the plans of all agents and Flink's own plan as JSON."""
    graph = json.loads(flink) if flink else None
    return json.dumps({"agents": [plan.describe() for plan in plans], "flink": graph}, indent=2, ensure_ascii=False)
