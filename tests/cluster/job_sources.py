"""A job with skills from a bucket, a jar and a folder; what its agents see goes to files."""

from __future__ import annotations

import argparse
import os

from pyflink.common import Configuration, Encoder, Row, Types
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, RollingPolicy
from source_agents import EVENTS, CrashOnce, JobSkillsOnly, WithFolder  # type: ignore[import-not-found] # beside it

from flink_skills import AgentsExecutionEnvironment, SkillOptions


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True, help="URL of a zip of skills")
    parser.add_argument("--jar", required=True, help="a jar with a folder 'skills'")
    parser.add_argument("--folder", required=True, help="a folder of skills on the TaskManagers")
    parser.add_argument("--results", required=True)
    parser.add_argument("--seen", required=True, help="a folder for a file per agent and event")
    parser.add_argument("--crash", default="", help="file that says that the job has failed once already")
    options = parser.parse_args()

    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.set_parallelism(4)
    env.add_jars(f"file://{options.jar}")
    agents = AgentsExecutionEnvironment.get_execution_environment(env)
    agents.add_skills_from_urls([options.url]).add_skills_from_resources(["skills"])
    agents.get_config().set(SkillOptions.WORKER_PROCESSES, 2).set(SkillOptions.VALIDATE_ON_SUBMIT, "never")
    agents.get_config().set(SkillOptions.SOURCE_ALLOW_HTTP, True).set(SkillOptions.SOURCE_ALLOW_PRIVATE, True)
    agents.get_config().set(SkillOptions.SOURCE_OPTIONS, os.environ["TEST_SOURCE_OPTIONS"])

    # Few subtasks have Python functions: each of them starts a process that imports Apache Beam.
    row = Types.ROW_NAMED(["id"], [Types.STRING()])
    events = env.from_collection([Row(event) for event in EVENTS], row)
    if options.crash:
        events = events.map(CrashOnce(options.crash, options.seen), output_type=row).set_parallelism(2)
    keyed = agents.from_datastream(events, "id")
    both = (JobSkillsOnly(options.seen), WithFolder(options.folder, options.seen))
    results = [keyed.apply(agent).to_datastream(Types.STRING()).set_parallelism(1) for agent in both]
    sink = (
        FileSink.for_row_format(options.results, Encoder.simple_string_encoder())
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .build()
    )
    results[0].union(results[1]).sink_to(sink).set_parallelism(1)
    agents.execute("sources")


if __name__ == "__main__":
    main()
