"""``flink-skills run JOB.yaml --local``: the agents of a job file on a file of events, without Flink."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flink_skills.agents.state.event import key_of
from flink_skills.agents.turn.turn import TurnOutcome
from flink_skills.cli.agent_args import model_setup
from flink_skills.cli.printing import print_error, report_omitted_skills
from flink_skills.cli.run.input_events import BadLine, bad_line_record, read_events
from flink_skills.cli.run.run_events import BAD_LINE, Sink, private_stdout
from flink_skills.cli.signal_guard import exit_on_signals, run_until_signal
from flink_skills.cli.talk.terminal_questions import count_unanswered, report_unanswered, terminal_ask
from flink_skills.errors import TurnError
from flink_skills.job.job_reading import read_job
from flink_skills.job.local_job import LocalJob

__all__ = ["LocalRequest", "run_locally"]

DONE, FAILED, SOME_ERRORS = 0, 1, 3


@dataclass(frozen=True)
class LocalRequest:
    """Arguments of ``--local``, which runs the agents of a job file on a file of events."""

    input: Path
    agent: str | None = None
    output: Path | None = None
    errors: Path | None = None
    model: str | None = None
    base_url: str | None = None


def run_locally(file: Path, assignments: tuple[str, ...], request: LocalRequest) -> int:
    """Run the agents of a job file on events, and return the exit code.

    Each output that the job writes to a table becomes a record with the name of its agent.
    """
    declared = read_job(file, assignments)
    with (
        declared.hiding(),
        exit_on_signals(),
        report_omitted_skills(),
        private_stdout() as stdout,
        contextlib.ExitStack() as stack,
    ):
        job = LocalJob(declared, model=model_setup(request.model, request.base_url))
        entry = job.entry(request.agent)
        # Compile every plan before the first turn, so that no turn runs if one of them is invalid.
        for stage in declared.stages:
            job.plan(stage.name)
        lines = list(read_events(request.input, lambda event: key_of(event, entry.keys)))
        sink = Sink(request.output, request.errors, stdout, stack)
        events = []
        for line in lines:
            if isinstance(line, BadLine):
                print_error(f"{request.input}, line {line.line}: {line.problem}")
                sink.write(bad_line_record(line, job.plan(entry.name).operator_name), BAD_LINE)
            else:
                events.append((line.key, line.event))
        try:
            turns, unanswered = run_until_signal(_run(job, entry, events, sink))
        except TurnError as error:
            print_error(f"the job failed: {error}")
            return FAILED
        report_unanswered(unanswered)
        sink.summarize(events=len(events), turns=turns)
        return SOME_ERRORS if sink.failures else DONE


async def _run(job: LocalJob, entry: Any, events: list[tuple[Any, Any]], sink: Sink) -> tuple[int, int]:
    """Run all turns. Return their number, and the number of questions without an answer."""
    turns = unanswered = 0

    def count(outcome: TurnOutcome) -> None:
        nonlocal turns, unanswered
        turns += 1
        unanswered += count_unanswered(outcome)

    async for record in job.run(entry, events, ended=count, ask=terminal_ask()):
        sink.write(record)
    return turns, unanswered
