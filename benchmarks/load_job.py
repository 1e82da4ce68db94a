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
    ``options`` those of the agent, and ``answers`` the folder of answers to its waits or empty."""
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
        applied = StreamInput(agents_env, env, keyed, "json").apply_plan(plan)
        if request["answers"]:
            t_env = agents_env.table_environment()
            t_env.execute_sql(
                "CREATE TABLE answers (k STRING, wait_id STRING, answer STRING) WITH ('connector' = 'filesystem', "
                f"'path' = '{request['answers']}', 'format' = 'json', 'source.monitor-interval' = '100 ms')"
            )
            applied.answers(t_env.from_path("answers"), "k")
            questions = applied.to_wait_stream()._j_data_stream
            questions.sinkTo(_discard()).uid("no questions")
        output = applied.to_datastream()._j_data_stream
    output.sinkTo(_discard()).uid("nowhere")
    agents_env.execute("load")


def _discard() -> Any:
    return get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
