"""Runs an agent over events in a Flink mini cluster of this process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.errors import TurnError
from flink_skills.flink.agents_environment import AgentsExecutionEnvironment
from flink_skills.flink.bridge import flink_environment, start_java
from flink_skills.flink.flink_failures import flink_errors
from flink_skills.flink.job_execution import JobSummary

__all__ = ["run_in_minicluster"]


def run_in_minicluster(
    prepare: Callable[[AgentsExecutionEnvironment], AgentPlan],
    events: Iterable[tuple[str, str]],
    flink_options: Mapping[str, str],
    parallelism: int,
    take: Callable[[dict[str, Any]], None],
) -> JobSummary:
    """Run the agent that ``prepare`` compiles over ``events``, pairs of key text and event JSON without line ends.

    ``take`` receives each record when it arrives. Return the summary of the job.

    Raises:
        ConfigError: Flink cannot use an option.
        TurnError: the job failed; the message is that of the root cause.
    """
    start_java()
    with tempfile.TemporaryDirectory(prefix="flink-skills-run-") as folder:
        lines = Path(folder) / "events.txt"
        with lines.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{key}\t{event}\n" for key, event in events)
        env = flink_environment({"rest.port": "0", **flink_options})
        env.set_parallelism(parallelism)
        agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
        plan = prepare(agents_env)
        if lines.stat().st_size == 0:
            return JobSummary([])
        with flink_errors(TurnError), agents_env.run_lines(plan, lines) as records:
            for record in records:
                take(record)
            return records.summary()
