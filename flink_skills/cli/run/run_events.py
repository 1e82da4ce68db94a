"""Runs of an agent, or of the agents of a job file, over a file of events."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.agents.state.event import key_of
from flink_skills.agents.state.keys import key_to_text
from flink_skills.agents.turn.local import run_events
from flink_skills.agents.turn.turn_record import ERROR_TAG, TurnOutcome, TurnStatus
from flink_skills.cli.agent_args import compile_agent, find_agent, model_setup
from flink_skills.cli.run.run_records import (
    BadLine,
    InputEvent,
    Progress,
    Sink,
    bad_line_record,
    private_stdout,
    read_error_records,
    read_events,
)
from flink_skills.cli.signal_guard import exit_on_signals, run_until_signal
from flink_skills.cli.talk.terminal_questions import count_unanswered, report_unanswered, terminal_ask
from flink_skills.cli.terminal_output import print_error, report_omitted_skills
from flink_skills.errors import ConfigError, TurnError, counted
from flink_skills.job.job_reading import read_job, split_assignments
from flink_skills.job.local_job import LocalJob
from flink_skills.models.registry import create_model

if TYPE_CHECKING:
    from flink_skills.flink.agents_environment import AgentsExecutionEnvironment

DONE, FAILED, SOME_ERRORS = 0, 1, 3


@dataclass(frozen=True)
class RunRequest:
    """Arguments of ``flink-skills run`` for events.

    Attributes:
        agent: Job file or agent. None selects a plain agent.
        key: Name of the key field. None reads error records. A job file has its own keys.
        job_agent: Agent of the job file that receives the events.
        local: Whether to run in this process. A job file always does.
    """

    agent: str | None
    input: Path
    key: str | None = None
    output: Path | None = None
    errors: Path | None = None
    skills: tuple[str, ...] = ()
    model: str | None = None
    base_url: str | None = None
    instructions: str = ""
    parallelism: int = 1
    assignments: tuple[str, ...] = ()
    local: bool = False
    job_agent: str | None = None


class _Run:
    """State of one run: its events, sink, progress and counts."""

    def __init__(self, request: RunRequest, stdout: TextIO, stack: contextlib.ExitStack) -> None:
        self._request, self._stdout, self._stack = request, stdout, stack
        self.turns = self.unanswered = 0
        self.log = ""

    def read(self, lines: Iterable[InputEvent | BadLine]) -> None:
        """Read the events and open the output files."""
        self._lines = list(lines)
        self.events = [line for line in self._lines if isinstance(line, InputEvent)]
        bad = [line for line in self._lines if isinstance(line, BadLine)]
        if bad and not self.events and all(line.no_key for line in bad):
            option = "the key of the job's input" if self._request.key is None else f"--key {self._request.key}"
            raise ConfigError(
                f"{option}: none of the events of {self._request.input} has a usable key: {bad[0].problem}"
            )
        self.progress = Progress(len(self.events))
        self._stack.callback(self.progress.end)
        self.sink = Sink(self._request.output, self._request.errors, self._stdout, self._stack, self.progress.write)

    def report_bad_lines(self, plan: AgentPlan) -> AgentPlan:
        """Report the invalid lines after the agent was compiled, because a usage error writes no records."""
        for line in self._lines:
            if isinstance(line, BadLine):
                self.progress.note(f"{self._request.input}, line {line.line}: {line.problem}")
                self.sink.write(bad_line_record(line, plan.operator_name), "unusable")
        return plan

    async def write(self, records: AsyncIterator[dict[str, Any]]) -> None:
        """Write the records of turns in this process."""
        async for record in records:
            self.sink.write(record)

    def count(self, outcome: TurnOutcome) -> None:
        """Count an ended turn."""
        self.turns += 1
        self.unanswered += count_unanswered(outcome)
        self.progress.turn(failed=outcome.status != TurnStatus.DONE)


def _run(request: RunRequest, work: Callable[[_Run], None]) -> int:
    """Run ``work``, print the summary, and return the exit code."""
    # The user's modules run from here on. Keep their output out of the records.
    with exit_on_signals(), report_omitted_skills(), private_stdout() as stdout, contextlib.ExitStack() as stack:
        run = _Run(request, stdout, stack)
        try:
            work(run)
        except TurnError as error:
            run.progress.end()
            print_error(f"the job failed: {error}")
            return FAILED
        run.progress.end()
        report_unanswered(run.unanswered)
        run.sink.summarize(events=len(run.events), turns=run.turns, log=run.log)
        return SOME_ERRORS if run.sink.failures else DONE


def run_agent(request: RunRequest) -> int:
    """Run an agent over events, in a MiniCluster or in this process. Return the exit code."""
    options, flink_options = split_assignments(request.assignments)
    setup = model_setup(request.model, request.base_url)

    def work(run: _Run) -> None:
        agent = find_agent(request.agent, request.instructions)
        if setup is not None:
            # Without its key the model cannot answer: report this before Flink starts.
            asyncio.run(create_model(setup, options).close())
        run.read(read_events(request.input, request.key) if request.key else read_error_records(request.input))

        def compile_in(agents_env: AgentsExecutionEnvironment | None = None) -> AgentPlan:
            return run.report_bad_lines(compile_agent(agent, request.skills, options, setup, agents_env))

        if request.local:
            run_until_signal(run.write(_records_of(compile_in(), run)))
        else:
            _run_in_minicluster(run, compile_in, flink_options, request.parallelism)

    return _run(request, work)


async def _records_of(plan: AgentPlan, run: _Run) -> AsyncIterator[dict[str, Any]]:
    async for _, outcome in run_events(plan, iter(run.events), ask=terminal_ask(alone=run.progress.question)):
        for tag, record in outcome.outputs:
            if tag in ("", ERROR_TAG):
                yield record
        run.count(outcome)


def _run_in_minicluster(
    run: _Run,
    compile_in: Callable[[AgentsExecutionEnvironment], AgentPlan],
    flink_options: dict[str, str],
    parallelism: int,
) -> None:
    try:
        from flink_skills.flink.minicluster import run_in_minicluster
    except ImportError as error:
        raise ConfigError(
            f"{error.name} is not installed. Run pip install 'flink-skills[flink]', or use --local."
        ) from error

    def on_record(record: dict[str, Any]) -> None:
        run.sink.write(record)
        run.progress.turn(failed=record["error"] is not None)

    pairs = ((key_to_text(key), json.dumps(event, ensure_ascii=False)) for key, event in run.events)
    run.progress.note(f"{counted(len(run.events), 'event')}; starting a Flink MiniCluster")
    with run.progress.above_prints():
        summary = run_in_minicluster(compile_in, pairs, flink_options, parallelism, on_record)
    run.turns, run.log = sum(agent.turns for agent in summary.agents), summary.log


def run_job_locally(request: RunRequest) -> int:
    """Run the agents of a job file over events in this process. Return the exit code.

    Each output that the job writes to a table becomes a record with the name of its agent.
    """
    declared = read_job(Path(str(request.agent)), request.assignments)

    def work(run: _Run) -> None:
        job = LocalJob(declared, model=model_setup(request.model, request.base_url))
        entry = job.entry(request.job_agent)
        # Compile every plan before the first turn, so that no turn runs if one of them is invalid.
        plans = {stage.name: job.plan(stage.name) for stage in declared.stages}
        run.read(read_events(request.input, lambda event: key_of(event, entry.keys)))
        run.report_bad_lines(plans[entry.name])
        ask = terminal_ask(alone=run.progress.question)
        run_until_signal(run.write(job.run(entry, run.events, ended=run.count, ask=ask)))

    with declared.hiding():
        return _run(request, work)
