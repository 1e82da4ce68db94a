"""Execution of a job: its result, the summary of its turns, or the message of its failure."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyflink.common import JobExecutionResult
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway

from flink_skills.agents.turn.turn_record import TurnCounts, listed_kinds
from flink_skills.errors import counted
from flink_skills.flink.flink_failures import JobFailedError, job_failure
from flink_skills.flink.graph import is_local
from flink_skills.texts import visible

_FIRST_SHOWN = 500


class Applied(Protocol):
    """The output of an agent in a job: the name of its operator, and whether the job reads its error records."""

    operator: str
    reads_errors: bool


@dataclass(frozen=True)
class JobSummary:
    """Turns of the agents of a job.

    ``unread`` are the agents whose error records the job does not read, and ``log`` is the log of a local job. After a
    restart the numbers continue from the checkpoint.
    """

    agents: Sequence[TurnCounts]
    unread: frozenset[str] = frozenset()
    log: str = ""

    @property
    def failed(self) -> int:
        """The number of failed turns of all agents."""
        return sum(agent.failed for agent in self.agents)

    def lines(self, *, errors: str = 'use to_datastream(tag="errors")') -> list[str]:
        """Return the summary: one line, and one more for each agent with error records that the job does not read.

        ``errors`` tells how the job reads them.
        """
        total = TurnCounts.total(self.agents)
        text = counted(total.turns, "turn")
        if total.failed:
            text += f", {total.failed:,} failed ({self._kinds(total)})"
        lines = [f"{text}; the log is {self.log}" if self.log else text]
        for agent in self.agents:
            if agent.failed and agent.agent in self.unread:
                records = "1 error record was" if agent.failed == 1 else f"{agent.failed:,} error records were"
                lines.append(
                    f"agent {agent.agent}: {records} not read, the first: {agent.first}; to read them, {errors}"
                )
        return lines

    def _kinds(self, total: TurnCounts) -> str:
        if len(self.agents) == 1:
            return listed_kinds(total.kinds)
        return "; ".join(f"{agent.agent}: {listed_kinds(agent.kinds)}" for agent in self.agents if agent.failed)


def summary_of(accumulators: Mapping[str, Any], outputs: Iterable[Applied], log: str = "") -> JobSummary:
    """Return the summary of a job from its accumulators, which ``TurnCounts.java`` fills."""
    agents, unread = [], set()
    for output in outputs:
        prefix = f"agent {output.operator}: "
        kinds = f"{prefix}failed turns: "
        first = accumulators.get(f"{prefix}first failure") or [""]
        agents.append(
            TurnCounts(
                output.operator,
                int(accumulators.get(f"{prefix}turns", 0)),
                {
                    name.removeprefix(kinds): int(value)
                    for name, value in accumulators.items()
                    if name.startswith(kinds)
                },
                _one_line(str(first[0])),
            )
        )
        if not output.reads_errors:
            unread.add(output.operator)
    return JobSummary(agents, frozenset(unread), log)


def _one_line(text: str) -> str:
    """Return the text as a terminal may show it: on one line, without control characters, and bounded."""
    shown = "".join(char if char.isprintable() else "\ufffd" for char in " ".join(text.split()))
    return shown if len(shown) <= _FIRST_SHOWN else f"{shown[:_FIRST_SHOWN]}…"


def execute(
    env: StreamExecutionEnvironment, outputs: Sequence[Applied], name: str | None
) -> tuple[JobExecutionResult, JobSummary | None]:
    """Run or submit a job, and return its result and its summary. Raises :class:`JobFailedError`.

    The summary is None for a job without agents, and for one that is submitted without waiting for its end.
    """
    try:
        result = _run_here(env, name) if is_local(env) else env.execute(name) if name is not None else env.execute()
    except Exception as error:
        message = job_failure(error)
        if message is None:
            raise
        # Flink's error has a hundred lines. It stays the context, and is not printed.
        raise JobFailedError(message) from None
    if not outputs or not result._j_job_execution_result.isJobExecutionResult():
        return result, None
    return result, job_summary(env, outputs, result)


def _run_here(env: StreamExecutionEnvironment, name: str | None) -> JobExecutionResult:
    """Run a job in a MiniCluster of this process until it ends. On a terminal, stderr shows that it starts and runs."""
    label = "the job" if name is None else f"job {visible(name)}"
    _show(f"{label}: starting a Flink MiniCluster in this process")
    client = env.execute_async(name) if name is not None else env.execute_async()
    _show(f"{label}: running; the first answers follow")
    return client.get_job_execution_result().result()


def _show(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def job_summary(env: StreamExecutionEnvironment, outputs: Sequence[Applied], result: JobExecutionResult) -> JobSummary:
    """Return the summary of a job that has ended."""
    accumulators = dict(result.get_all_accumulator_results().items())
    # Flink's log in this process, if it has one.
    log = get_gateway().jvm.java.lang.System.getProperty("log.file") if is_local(env) else None
    return summary_of(accumulators, outputs, str(log or ""))
