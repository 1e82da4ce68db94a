"""Runs an agent over events in a Flink mini cluster of this process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pyflink.common import WatermarkStrategy
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat
from pyflink.datastream.data_stream import CloseableIterator

from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.errors import TurnError
from flink_skills.flink.agents_environment import AgentsExecutionEnvironment
from flink_skills.flink.bridge import add_bridge, flink_environment, start_java
from flink_skills.flink.flink_failures import flink_errors
from flink_skills.flink.job_execution import JobSummary, job_summary
from flink_skills.flink.stream import StreamInput


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
        with flink_errors(TurnError):
            stream = _records_of(agents_env, env, plan, lines)
            records = CloseableIterator(stream._j_data_stream.collectAsync(), stream.get_type())
            # Before the block, because the records of a job that was not submitted cannot be closed.
            client = env.execute_async(plan.agent_id)
            with records:
                for record in records:
                    take(record)
                result = client.get_job_execution_result().result()
        return job_summary(env, agents_env.stream_outputs, result)


def _records_of(
    agents_env: AgentsExecutionEnvironment, env: StreamExecutionEnvironment, plan: AgentPlan, lines: Path
) -> DataStream:
    """Return outputs and error records of an agent over a file of lines ``key text, TAB, event JSON``."""
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(lines)).build()
    text = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").set_parallelism(1)
    keyed = add_bridge(env).keyLines(text._j_data_stream)
    keyed.setParallelism(1)
    output = StreamInput(agents_env, env, keyed, "json").apply_plan(plan)
    return output.to_datastream().union(output.to_datastream(tag="errors"))
