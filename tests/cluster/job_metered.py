"""A job of one agent that has something to count, without an end."""

from __future__ import annotations

import argparse

from metered_agents import Metered  # type: ignore[import-not-found] # beside it
from pyflink.common import Configuration, Duration, Types, WatermarkStrategy
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat

from flink_skills import AgentsExecutionEnvironment, SkillOptions


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="URL of the model")
    parser.add_argument("--skills", required=True, help="a folder of skills")
    parser.add_argument("--events", required=True, help="a folder of files with an event in each line")
    parser.add_argument("--control", required=True, help="a folder of files with a control record in each line")
    options = parser.parse_args()

    configuration = Configuration()
    configuration.set_string("skills.user.tenant", "acme")
    # The lines have no fields: the label has the value for events without one.
    configuration.set_string("skills.metrics.labels", "team")
    configuration.set_string("execution.checkpointing.interval", "1 s")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    agents = AgentsExecutionEnvironment.get_execution_environment(env)
    agents.add_skills_from_paths([options.skills])
    agents.get_config().set(SkillOptions.WORKER_PROCESSES, 2).set(SkillOptions.METRICS_INTERVAL, 0.2)
    agents.get_config().set(SkillOptions.SHELL_MIN_ISOLATION, "HYGIENE").set("skills.user.amount", 2.5)

    def lines(folder: str, name: str) -> DataStream:
        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), folder)
        # Without an end: Flink removes the metrics of a subtask that has finished.
        without_end = source.monitor_continuously(Duration.of_millis(100)).build()
        return env.from_source(without_end, WatermarkStrategy.no_watermarks(), name)

    keyed = agents.from_datastream(lines(options.events, "events"), lambda event: event)
    output = keyed.apply(Metered(options.model, "metered")).control(lines(options.control, "control"))
    output.to_datastream(Types.STRING()).print()
    agents.execute("metered")


if __name__ == "__main__":
    main()
