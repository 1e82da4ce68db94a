"""A job as a user would write it: orders from files, an agent, results into an exactly-once file sink."""

from __future__ import annotations

import argparse
import json

from job_agents import SKILL, OrderAgent  # type: ignore[import-not-found] # beside the script, where Python looks
from pyflink.common import Configuration, Duration, Encoder, Row, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, FileSource, RollingPolicy, StreamFormat

from flink_skills import AgentsExecutionEnvironment, SkillOptions


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--orders", required=True, help="folder of CSV files: customer, id")
    parser.add_argument("--results", required=True, help="folder for the results")
    parser.add_argument("--effects", required=True, help="file that steps and tools append to")
    parser.add_argument("--model-url", required=True)
    parser.add_argument("--skills", required=True, help="folder of skills")
    parser.add_argument("--skill-name", default=SKILL)
    parser.add_argument("--events", help="folder for what happens in turns")
    parser.add_argument("--watch", action="store_true", help="go on with files that come later")
    options = parser.parse_args()

    configuration = Configuration()
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)

    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), options.orders)
    if options.watch:
        source = source.monitor_continuously(Duration.of_millis(100))
    # One reader: each file holds all orders of one customer, and stays in order.
    lines = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "lines").set_parallelism(1)
    order_type = Types.ROW_NAMED(["customer", "id"], [Types.STRING(), Types.STRING()])
    orders = lines.map(lambda line: Row(*line.split(",")), output_type=order_type).set_parallelism(1)

    agents = AgentsExecutionEnvironment.get_execution_environment(env)
    agents.get_config().set(SkillOptions.WORKER_PROCESSES, 1)
    agents.get_config().set(SkillOptions.SHELL_NETWORK, "allow")
    agent = OrderAgent(options.model_url, options.effects, options.skills, options.skill_name)
    output = agents.from_datastream(orders, "customer").apply(agent)
    # One subtask each: a subtask with Python functions starts a process that imports Apache Beam.
    results = output.to_datastream(Types.STRING()).set_parallelism(1)
    results.sink_to(exactly_once(options.results)).set_parallelism(1)
    if options.events:
        texts = output.to_event_stream().map(json.dumps, Types.STRING()).set_parallelism(1)
        texts.sink_to(exactly_once(options.events)).set_parallelism(1)
    agents.execute("orders")


def exactly_once(folder: str) -> FileSink:
    sink = FileSink.for_row_format(folder, Encoder.simple_string_encoder())
    return sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()


if __name__ == "__main__":
    main()
