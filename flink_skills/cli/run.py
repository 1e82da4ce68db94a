"""``flink-skills run``: events of a file through an agent, in a mini cluster or in this process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from flink_skills.agents.agent import Agent
from flink_skills.agents.keys import key_to_text
from flink_skills.agents.local import run_events
from flink_skills.agents.models.setup import ModelSetup
from flink_skills.agents.plan import AgentPlan
from flink_skills.agents.turn import ERROR_TAG, TurnStatus
from flink_skills.agents.turn_counts import kind_of, listed_kinds
from flink_skills.cli.agents import find_agent, model_setup, skill_sources
from flink_skills.cli.events import BadLine, InputEvent, bad_line_record, read_events, read_failed
from flink_skills.cli.interruption import ended_by_signals
from flink_skills.cli.output import complain, counted, print_line
from flink_skills.cli.problems import left_out_reported
from flink_skills.cli.progress import Progress
from flink_skills.errors import ConfigError, SkillsError, TurnError
from flink_skills.job.settings import split_assignments
from flink_skills.options import SkillConfig

__all__ = ["BAD_LINE", "RunRequest", "Sink", "private_stdout", "run_job"]

DONE, FAILED, SOME_ERRORS = 0, 1, 3
BAD_LINE = "unusable"


@dataclass(frozen=True)
class RunRequest:
    """What the command line asks for."""

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
    """Run the job; returns the exit code."""
    options, flink_options = split_assignments(request.assignments)
    setup = model_setup(request.model, request.base_url)
    # From here on the user's modules run, and what they print is no record.
    with ended_by_signals(), left_out_reported(), private_stdout() as stdout, contextlib.ExitStack() as stack:
        agent = find_agent(request.agent, request.instructions)
        lines = list(read_events(request.input, request.key) if request.key else read_failed(request.input))
        sink = Sink(request.output, request.errors, stdout, stack)
        run = _Run(request, setup=setup, agent=agent, options=options, lines=lines, sink=sink)
        try:
            if request.local:
                asyncio.run(run.local())
            else:
                run.minicluster(flink_options)
        except TurnError as error:
            run.progress.end()
            complain(f"the job failed: {error}")
            return FAILED
        finally:
            run.progress.end()
        run.sink.summarize(events=len(run.events), turns=run.turns, log=run.log)
        return SOME_ERRORS if run.sink.failures else DONE


class _Run:
    """One run: its events, where records go and how far it is."""

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
        self.turns = 0
        self.log = ""

    def compile(self, agents_env: Any) -> AgentPlan:
        """The agent's plan. Only when it is sound are the bad lines reported: bad usage writes no record."""
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
        from flink_skills.flink.environment import AgentsExecutionEnvironment

        plan = self.compile(AgentsExecutionEnvironment.get_execution_environment())
        pairs = ((event.key, event.event) for event in self.events)
        async for _, outcome in run_events(plan, pairs):
            for tag, record in outcome.outputs:
                if tag in ("", ERROR_TAG):
                    self.sink.write(record)
            self.turns += 1
            self.progress.turn(failed=outcome.status != TurnStatus.DONE)

    def minicluster(self, flink_options: dict[str, str]) -> None:
        try:
            from flink_skills.flink.minicluster import run_in_minicluster
        except ImportError as error:
            raise ConfigError(
                f"{error.name} is not installed: pip install 'flink-skills[flink]', or run with --local"
            ) from error

        def take(record: dict[str, Any]) -> None:
            self.sink.write(record)
            self.progress.turn(failed=record["error"] is not None)

        pairs = ((key_to_text(e.key), json.dumps(e.event, ensure_ascii=False)) for e in self.events)
        self.progress.note(f"{counted(len(self.events), 'event')}; starting a Flink mini cluster")
        with self.progress.above_prints():
            summary = run_in_minicluster(self.compile, pairs, flink_options, self._request.parallelism, take)
        self.turns, self.log = sum(agent.turns for agent in summary.agents), summary.log


class Sink:
    """Writes records as JSON lines, each as soon as it is known.

    Outputs go to the file ``output`` (None: to ``stdout``), error records to ``errors`` (None: to the outputs). The
    files are closed with ``stack``.
    """

    def __init__(self, output: Path | None, errors: Path | None, stdout: TextIO, stack: contextlib.ExitStack) -> None:
        self._output = self._open(output, "--output", stack) if output else stdout
        self._errors = self._open(errors, "--errors", stack) if errors else self._output
        self.outputs = 0
        self._kinds: Counter[str] = Counter()

    @property
    def failures(self) -> int:
        """The number of error records."""
        return self._kinds.total()

    @staticmethod
    def _open(path: Path, option: str, stack: contextlib.ExitStack) -> TextIO:
        try:
            return stack.enter_context(path.open("w", encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{option} {path}: {error.strerror or error}") from error

    def write(self, record: dict[str, Any], kind: str = "") -> None:
        """Write one record. ``kind`` is the kind of its error in the summary, if that is not the class of the error."""
        failed = record["error"] is not None
        if failed:
            self._kinds[kind or kind_of(record["error"])] += 1
        self.outputs += not failed
        target = self._errors if failed else self._output
        target.write(json.dumps(record, ensure_ascii=False) + "\n")
        target.flush()

    def summarize(self, *, events: int, turns: int, log: str = "") -> None:
        """Write the summary of a run to stderr. ``log`` is the location of its log."""
        numbers = (counted(events, "event"), counted(turns, "turn"), counted(self.outputs, "output"))
        text = f"{', '.join(numbers)}, {counted(self.failures, 'error')}"
        if self.failures:
            text += f" ({listed_kinds(self._kinds)})"
        print_line(f"{text}; the log is {log}" if log else text, stream=sys.stderr)


@contextlib.contextmanager
def private_stdout() -> Iterator[TextIO]:
    """Give stdout to records alone. What an agent or a JVM prints goes to stderr."""
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
