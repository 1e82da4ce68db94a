"""A job with the front desk: cases from files, answers into an exactly-once file sink."""

from __future__ import annotations

import argparse
import json
from typing import Any

from front_desk import FrontDesk  # type: ignore[import-not-found] # shipped with the job
from pyflink.common import Duration, Encoder, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, FileSource, RollingPolicy, StreamFormat

from flink_skills import AgentsExecutionEnvironment


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", required=True, help="folder of files, a JSON object a line: k, case, files")
    parser.add_argument("--results", required=True, help="folder for the results")
    parser.add_argument("--model-url", required=True)
    parser.add_argument("--skills", required=True, help="folder of skills")
    parser.add_argument("--books", required=True, help="folder of skills of the librarian")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="an option of the job")
    options = parser.parse_args()

    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), options.events)
    watched = source.monitor_continuously(Duration.of_millis(100)).build()
    lines = env.from_source(watched, WatermarkStrategy.no_watermarks(), "lines")
    agents = AgentsExecutionEnvironment.get_execution_environment(env)
    for key, _, value in (item.partition("=") for item in options.set):
        agents.get_config().set(key, value)
    agents.add_skills_from_paths(options.skills)
    output = agents.from_datastream(lines.map(json.loads), lambda event: event["k"]).apply(
        FrontDesk(options.model_url, options.books)
    )

    def line(record: Any) -> str:
        return json.dumps(record)

    both = output.to_datastream().union(output.to_datastream(tag="errors"))
    sink = (
        FileSink.for_row_format(options.results, Encoder.simple_string_encoder())
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .build()
    )
    both.map(line, output_type=Types.STRING()).sink_to(sink)
    agents.execute("front desk")


if __name__ == "__main__":
    main()
