"""A job with the workshop: orders from files, results into an exactly-once file sink."""

from __future__ import annotations

import argparse

from kinds_agent import Workshop  # type: ignore[import-not-found] # shipped with the job
from pyflink.common import Duration, Encoder, Row, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, FileSource, RollingPolicy, StreamFormat

from flink_skills import AgentsExecutionEnvironment


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--orders", required=True, help="folder of CSV files: customer, id")
    parser.add_argument("--results", required=True, help="folder for the results")
    parser.add_argument("--effects", required=True, help="file that tools append to")
    parser.add_argument("--model-url", required=True)
    parser.add_argument("--mcp-url", required=True)
    parser.add_argument("--skills", required=True, help="folder of skills")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="an option of the job")
    parser.add_argument("near", nargs="+", help="arguments of Python for the MCP server on stdio")
    options = parser.parse_args()

    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), options.orders)
    watched = source.monitor_continuously(Duration.of_millis(100)).build()
    # One reader: each file holds all orders of one customer, and stays in order.
    lines = env.from_source(watched, WatermarkStrategy.no_watermarks(), "lines").set_parallelism(1)
    order_type = Types.ROW_NAMED(["customer", "id"], [Types.STRING(), Types.STRING()])
    orders = lines.map(lambda line: Row(*line.split(",")), output_type=order_type).set_parallelism(1)
    agents = AgentsExecutionEnvironment.get_execution_environment(env)
    for key, _, value in (item.partition("=") for item in options.set):
        agents.get_config().set(key, value)
    agent = Workshop(options.model_url, options.effects, options.skills, options.mcp_url, options.near)
    output = agents.from_datastream(orders, "customer").apply(agent)
    sink = FileSink.for_row_format(options.results, Encoder.simple_string_encoder())
    sink = sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()
    output.to_datastream(Types.STRING()).set_parallelism(1).sink_to(sink).set_parallelism(1)
    agents.execute("workshop")


if __name__ == "__main__":
    main()
