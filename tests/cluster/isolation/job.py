"""A job whose agent is an intruder: events from files, answers into an exactly-once file sink."""

from __future__ import annotations

import argparse

from intruders import Intruder  # type: ignore[import-not-found] # beside the script, where Python looks
from pyflink.common import Configuration, Duration, Encoder, Row, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, FileSource, RollingPolicy, StreamFormat

from flink_skills import AgentsExecutionEnvironment, SkillOptions


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", required=True, help="folder of CSV files: key, what")
    parser.add_argument("--results", required=True, help="folder for the results")
    parser.add_argument("--model-url", required=True)
    parser.add_argument("--skills", required=True, help="folder of skills")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()

    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.set_parallelism(2)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), options.events)
    source = source.monitor_continuously(Duration.of_millis(100))
    lines = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "lines").set_parallelism(1)
    event_type = Types.ROW_NAMED(["key", "what"], [Types.STRING(), Types.STRING()])
    events = lines.map(lambda line: Row(*line.split(",")), output_type=event_type).set_parallelism(1)

    agents = AgentsExecutionEnvironment.get_execution_environment(env)
    agents.get_config().set(SkillOptions.WORKER_PROCESSES, 1)
    for option in options.option:
        key, _, value = option.partition("=")
        agents.get_config().set(key, value)
    agent = Intruder(options.model_url, options.skills)
    results = agents.from_datastream(events, "key").apply(agent).to_datastream(Types.STRING())
    sink = (
        FileSink.for_row_format(options.results, Encoder.simple_string_encoder())
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .build()
    )
    results.sink_to(sink)
    agents.execute("intruders")


if __name__ == "__main__":
    main()
