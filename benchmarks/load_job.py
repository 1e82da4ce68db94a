"""An agent on the lines of files in a folder, as a job for a cluster: ``flink run -py load_job.py JSON``."""

from __future__ import annotations

import json
import sys
from typing import Any

from pyflink.common import Duration, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat
from pyflink.java_gateway import get_gateway

from benchmarks import agents
from flink_skills import AgentsExecutionEnvironment
from flink_skills.flink.bridge import add_bridge
from flink_skills.flink.stream import StreamInput


def main(request: dict[str, Any]) -> None:
    """Submit the job: ``agent`` is a class of :mod:`benchmarks.agents` or empty for none, ``events`` the folder,
    ``options`` those of the agent."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(request["parallelism"])
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    for key, value in request["options"].items():
        agents_env.get_config().set(key, value)
    lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), request["events"])
    source = lines.monitor_continuously(Duration.of_millis(200)).build()
    text = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").set_parallelism(1).uid("events")
    keyed = add_bridge(env).keyLines(text._j_data_stream)
    keyed.setParallelism(1)
    output = keyed
    if request["agent"]:
        plan = agents_env.compile(getattr(agents, request["agent"]), local=False, events="json")
        output = StreamInput(agents_env, env, keyed, "json").apply_plan(plan).to_datastream()._j_data_stream
    sink = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()
    output.sinkTo(sink).uid("nowhere")
    agents_env.execute("load")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
