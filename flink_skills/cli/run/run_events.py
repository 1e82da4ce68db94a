"""``flink-skills run``: an agent over a file of events, in a MiniCluster or in this process."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.agents.state.keys import key_to_text
from flink_skills.agents.turn.local import run_events
from flink_skills.agents.turn.turn import ERROR_TAG, TurnStatus
from flink_skills.agents.turn.turn_counts import kind_of, listed_kinds
from flink_skills.cli.agent_args import find_agent, model_setup
from flink_skills.cli.command_options import skill_sources
from flink_skills.cli.printing import counted, print_error, print_line, report_omitted_skills
from flink_skills.cli.run.input_events import BadLine, InputEvent, bad_line_record, read_error_records, read_events
from flink_skills.cli.run.progress import Progress
from flink_skills.cli.signal_guard import exit_on_signals, run_until_signal
from flink_skills.cli.talk.terminal_questions import count_unanswered, report_unanswered, terminal_ask
from flink_skills.errors import ConfigError, SkillsError, TurnError
from flink_skills.job.job_reading import split_assignments
from flink_skills.models.setup import ModelSetup
from flink_skills.options import SkillConfig

__all__ = ["BAD_LINE", "RunRequest", "Sink", "private_stdout", "run_job"]

DONE, FAILED, SOME_ERRORS = 0, 1, 3
BAD_LINE = "unusable"


@dataclass(frozen=True)
class RunRequest:
    """Arguments of ``flink-skills run`` for an agent."""

    agent: str | None
    input: Path
    key: str | None
    output: Path | None
    errors: Path | None
    skills: tuple[str, ...]
    model: str | None
    base_url: str | None
    instructions: str
    parallelism: int
    assignments: tuple[str, ...]
    local: bool


def run_job(request: RunRequest) -> int:
    """Run the agent over the events and return the exit code."""
    options, flink_options = split_assignments(request.assignments)
    setup = model_setup(request.model, request.base_url)
    # The user's modules run from here on. Keep their output out of the records.
    with exit_on_signals(), report_omitted_skills(), private_stdout() as stdout, contextlib.ExitStack() as stack:
        agent = find_agent(request.agent, request.instructions)
        lines = list(read_events(request.input, request.key) if request.key else read_error_records(request.input))
        sink = Sink(request.output, request.errors, stdout, stack)
        run = _Run(request, setup=setup, agent=agent, options=options, lines=lines, sink=sink)
        try:
            if request.local:
                run_until_signal(run.local())
            else:
                run.minicluster(flink_options)
        except TurnError as error:
            run.progress.end()
            print_error(f"the job failed: {error}")
            return FAILED
        finally:
            run.progress.end()
        report_unanswered(run.unanswered)
        run.sink.summarize(events=len(run.events), turns=run.turns, log=run.log)
        return SOME_ERRORS if run.sink.failures else DONE


class _Run:
    """State of one run: its events, sink and progress."""

    def __init__(
        self,
        request: RunRequest,
        *,
        setup: ModelSetup | None,
        agent: Agent,
        options: SkillConfig,
        lines: list[InputEvent | BadLine],
        sink: Sink,
    ) -> None:
        self._request, self._setup, self._agent, self._options = request, setup, agent, options
        self.events = [line for line in lines if isinstance(line, InputEvent)]
        self._bad = [line for line in lines if isinstance(line, BadLine)]
        self.sink = sink
        self.progress = Progress(len(self.events))
        self.turns = self.unanswered = 0
        self.log = ""

    def compile(self, agents_env: Any) -> AgentPlan:
        """Compile the agent, then report the invalid lines. A usage error writes no records."""
        for key in self._options:
            agents_env.get_config().set(key, self._options.get(key))
        paths, urls = skill_sources(self._request.skills)
        agents_env.add_skills_from_paths(paths).add_skills_from_urls(urls)
        plan: AgentPlan = agents_env.compile(
            self._agent, local=True, events="json", outputs="record", model=self._setup
        )
        for bad in self._bad:
            self.progress.note(f"{self._request.input}, line {bad.line}: {bad.problem}")
            self.sink.write(bad_line_record(bad, plan.operator_name), BAD_LINE)
        return plan

    async def local(self) -> None:
        """Run the events in this process."""
        from flink_skills.flink.agents_environment import AgentsExecutionEnvironment

        plan = self.compile(AgentsExecutionEnvironment.get_execution_environment())
        pairs = ((event.key, event.event) for event in self.events)
        async for _, outcome in run_events(plan, pairs, ask=terminal_ask()):
            for tag, record in outcome.outputs:
                if tag in ("", ERROR_TAG):
                    self.sink.write(record)
            self.turns += 1
            self.unanswered += count_unanswered(outcome)
            self.progress.turn(failed=outcome.status != TurnStatus.DONE)

    def minicluster(self, flink_options: dict[str, str]) -> None:
        """Run the events in a MiniCluster."""
        try:
            from flink_skills.flink.minicluster import run_in_minicluster
        except ImportError as error:
            raise ConfigError(
                f"{error.name} is not installed. Run pip install 'flink-skills[flink]', or use --local."
            ) from error

        def on_record(record: dict[str, Any]) -> None:
            self.sink.write(record)
            self.progress.turn(failed=record["error"] is not None)

        pairs = ((key_to_text(event.key), json.dumps(event.event, ensure_ascii=False)) for event in self.events)
        self.progress.note(f"{counted(len(self.events), 'event')}; starting a Flink MiniCluster")
        with self.progress.above_prints():
            summary = run_in_minicluster(self.compile, pairs, flink_options, self._request.parallelism, on_record)
        self.turns, self.log = sum(agent.turns for agent in summary.agents), summary.log


class Sink:
    """Writer of records as JSON Lines, flushed after each record.

    Args:
        output: File for outputs. None writes them to ``stdout``.
        errors: File for error records. None writes them to the same stream as the outputs.
        stdout: Stream for records without a file.
        stack: Exit stack that closes the files.
    """

    def __init__(self, output: Path | None, errors: Path | None, stdout: TextIO, stack: contextlib.ExitStack) -> None:
        self._output = self._open(output, "--output", stack) if output else stdout
        self._errors = self._open(errors, "--errors", stack) if errors else self._output
        self.outputs = 0
        self._kinds: Counter[str] = Counter()

    @property
    def failures(self) -> int:
        """Return the number of error records."""
        return self._kinds.total()

    @staticmethod
    def _open(path: Path, option: str, stack: contextlib.ExitStack) -> TextIO:
        try:
            return stack.enter_context(path.open("w", encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{option} {path}: {error.strerror or error}") from error

    def write(self, record: dict[str, Any], kind: str = "") -> None:
        """Write one record. ``kind`` names its error in the summary. An empty string means the class of the error."""
        failed = record["error"] is not None
        if failed:
            self._kinds[kind or kind_of(record["error"])] += 1
        self.outputs += not failed
        target = self._errors if failed else self._output
        target.write(json.dumps(record, ensure_ascii=False) + "\n")
        target.flush()

    def summarize(self, *, events: int, turns: int, log: str = "") -> None:
        """Print the summary of a run on stderr.

        Args:
            events: Number of events.
            turns: Number of turns.
            log: Path of the log. Empty if there is none.
        """
        numbers = (counted(events, "event"), counted(turns, "turn"), counted(self.outputs, "output"))
        text = f"{', '.join(numbers)}, {counted(self.failures, 'error')}"
        if self.failures:
            text += f" ({listed_kinds(self._kinds)})"
        print_line(f"{text}; the log is {log}" if log else text, stream=sys.stderr)


@contextlib.contextmanager
def private_stdout() -> Iterator[TextIO]:
    """Reserve stdout for records. Other output of the process and of the JVM goes to stderr."""
    sys.stdout.flush()
    private = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(os.dup(private), "w", encoding="utf-8") as stdout:
            yield stdout
    except BrokenPipeError as error:
        raise SkillsError("stdout was closed before all records were written") from error
    finally:
        sys.stdout.flush()
        os.dup2(private, 1)
        os.close(private)
